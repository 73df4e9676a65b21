"""The `sparkinesis` command: one module for each subcommand."""
