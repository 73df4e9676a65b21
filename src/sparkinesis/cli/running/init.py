"""`sparkinesis init`: writes a first application, with its test and the steps that come next."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from sparkinesis.cli.command_options import errors_in_one_line
from sparkinesis.errors import OptionError
from sparkinesis.stream.address import STREAM_NAME


@errors_in_one_line("init")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to write into; made if missing.")
    ] = Path(),
    *,
    stream: Annotated[
        str, typer.Option(metavar="STREAM", help="The name of the stream to process.")
    ] = "events",
) -> None:
    """Write a first application: app.py for `sparkinesis run app:app`, its test, and a README.

    No file is overwritten. The steps that come next are printed.
    """
    if not STREAM_NAME.fullmatch(stream) or len(stream) > 124:
        raise OptionError(
            f"--stream is {stream[:200]!r}; a stream's name has 1 to 124 letters, digits, '_', '.' "
            "and '-', so that STREAM-app is the name of the application."
        )
    files = _files_of(stream)
    there = [str(folder / name) for name in files if (folder / name).exists()]
    if there:
        raise OptionError(
            f"There is {' and '.join(there)} already, and no file is overwritten. Name another DIR."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise OptionError(
            f"{folder} cannot be written to: {error.strerror}. Name another DIR."
        ) from None
    typer.echo(f"Wrote {', '.join(str(folder / name) for name in files)}. Next:\n")
    if folder.resolve() != Path.cwd():
        typer.echo(f"cd {os.fspath(folder)}")
    typer.echo(_STEPS.replace("{stream}", stream))


_APP = '''"""Counts the records of each partition key in the stream {stream}."""

import os
from collections import Counter

from sparkinesis import Application, RecordBatch

counts: Counter[str | None] = Counter()


def handle(batch: RecordBatch) -> None:
    """Process the next records of a shard. An exception brings them again."""
    for record in batch:
        counts[record.partition_key] += 1
        print(record.partition_key, record.data.decode(errors="replace"), flush=True)


# Processes that run this application share the shards of the stream, by a lease table
# in DynamoDB, which has the application's name.
app = Application(
    "{stream}-app",
    "{stream}",
    handle,
    endpoint=os.environ.get("KINESIS_ENDPOINT"),  # None: AWS
    initial_position="trim_horizon",  # of a shard without a checkpoint
)
'''

_TEST = '''"""The application on given records: on a Kinesis within this process, without AWS."""

from collections.abc import Callable

from app import app, counts


def test_records_are_counted_by_their_keys(run_application: Callable) -> None:
    given = [("ann", "first"), ("bob", "second"), ("ann", "third")]
    result = run_application(app, given)
    assert counts == {"ann": 2, "bob": 1}
    assert [one.data for one in result.processed] == [b"first", b"second", b"third"]
'''

_README = """# {stream}-app

`app.py` processes the stream `{stream}`. `test_app.py` tests it.

```shell
{steps}
```

On AWS, leave `KINESIS_ENDPOINT` out, set `AWS_REGION`, and check what is missing with
`sparkinesis doctor {stream}-app --stream {stream} --new`.
"""

# The commands that test and run the application on this machine.
_STEPS = """\
pip install 'sparkinesis[local]' pytest
python -m pytest

# A Kinesis on this machine; leave it running.
sparkinesis local --streams {stream}:2

# In another terminal, the application:
export KINESIS_ENDPOINT=http://127.0.0.1:4566
sparkinesis run app:app

# In a third one, lines to process:
sparkinesis put {stream} --endpoint http://127.0.0.1:4566"""


def _files_of(stream: str) -> Mapping[str, str]:
    """Return the text of each file, by its name."""
    return {
        "app.py": _APP.replace("{stream}", stream),
        "test_app.py": _TEST,
        "README.md": _README.replace("{steps}", _STEPS).replace("{stream}", stream),
    }
