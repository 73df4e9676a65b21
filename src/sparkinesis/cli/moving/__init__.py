"""Commands that move an application."""
