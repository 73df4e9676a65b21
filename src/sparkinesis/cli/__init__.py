"""The ``sparkinesis`` command: one module for each subcommand.

`app` is the command itself, with its subcommands; `command_options` has the options, errors and
JSON objects that they share. Commands on an application: `leases`, `top`, `ui`, `exporter` and
`doctor`, by `monitor` and `ui`. `compile_pyspark` prepares Spark's archives.

Folders: `running` runs applications, `moving` moves them, `streams` has the commands on streams and
records, `queues` those on queues and theirs. `line` is the help and the completion. `python -m
tests.unit.cli.commands_page` prints docs/commands.md, whose examples
tests/integration/cli/test_examples.py runs.
"""
