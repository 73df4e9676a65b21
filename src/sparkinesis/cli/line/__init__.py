"""The command line itself: its help, and what a shell completes."""
