"""The ``sparkinesis`` command: a module for each subcommand, or for two that do alike.

`app` is the command itself, with its subcommands; `command_options` has the options, errors and
JSON objects that they share. Commands on an application: `leases`, `top`, `serving` (``ui`` and
``exporter``) and `doctor`, by `monitor` and `ui`; `reset` (with ``restart``) and `convert_leases`
move it. `compile_pyspark` prepares Spark's archives.

Folders: `running` runs applications, `streams` has the commands on streams and records, `queues`
those on queues and theirs. `line` is the help and the completion. `python -m
tests.unit.cli.commands_page` prints docs/commands.md, whose examples
tests/integration/cli/test_examples.py runs.
"""
