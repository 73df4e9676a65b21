"""The files of a first application, and the steps that come after. Pure."""

from __future__ import annotations

from collections.abc import Mapping

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


def files_of(stream: str) -> Mapping[str, str]:
    """Return the text of each file, by its name."""
    steps = steps_of(stream)
    return {
        "app.py": _APP.replace("{stream}", stream),
        "test_app.py": _TEST,
        "README.md": _README.replace("{steps}", steps).replace("{stream}", stream),
    }


def steps_of(stream: str) -> str:
    """Return the commands that test and run the application on this machine."""
    return _STEPS.replace("{stream}", stream)
