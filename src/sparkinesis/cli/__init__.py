"""The ``sparkinesis`` command: a module for each subcommand, or for two that do alike.

`app` is the command itself, with its subcommands; `command_options` is what they share, with help
and completion. Commands on an application: `leases` (with ``top``), `serving` (``ui`` and
``exporter``) and `doctor`, by `monitor` and `ui`; `reset` (with ``restart``) and `convert_leases`
move it. `compile_pyspark` prepares Spark's archives.

Folders: `running` runs applications, `streams` has the commands on streams and records, `queues`
those on queues and theirs. `python -m tests.unit.cli.commands_page` prints docs/commands.md, whose
examples tests/integration/cli/test_examples.py runs.
"""
