"""The command line itself: its help, and what a shell completes.

`help` writes the usage of all commands in plain text; `completion` asks for the names of
applications, streams and profiles.
"""
