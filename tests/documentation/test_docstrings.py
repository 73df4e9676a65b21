"""Docstrings as the site shows them."""

from __future__ import annotations

import pytest

from docs.extension.docstrings import as_rst

PARAMETERS = """\
Wait.

timeout: seconds to wait;
None: without end.
base, cap: seconds.

Raises `OptionError`.
"""

AS_LIST = """\
Wait.

- ``timeout``: seconds to wait;
  None: without end.
- ``base``, ``cap``: seconds.

Raises `OptionError`.
"""

ERRORS = """\
All methods raise:
`CheckpointError` for a checkpoint that is not permitted; nothing
is written.
`LeaseLostError`; stop.
"""

ERRORS_AS_LIST = """\
All methods raise:

- `CheckpointError` for a checkpoint that is not permitted; nothing
  is written.
- `LeaseLostError`; stop.
"""

CODE = """\
What it is.

    with it:

        pass

Marked::

    text

Terms
    `Name`, of which
    `Other` is one

- an item

    of two paragraphs
"""

CODE_MARKED = CODE.replace("What it is.\n", "What it is.\n\n::\n")

PROSE = """\
It is made by a call. The time
`Worker.start` takes is short: see.
`Worker.wait` waits.
"""


PLURAL = """\
A list of `StreamConfig`s, or of ``names``.
"""

PLURAL_MARKED = """\
A list of `StreamConfig`\\ s, or of ``names``.
"""


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        pytest.param(PARAMETERS, AS_LIST, id="parameters"),
        pytest.param(ERRORS, ERRORS_AS_LIST, id="errors"),
        pytest.param(CODE, CODE_MARKED, id="code"),
        pytest.param(PLURAL, PLURAL_MARKED, id="plural"),
        pytest.param(PROSE, PROSE, id="prose"),
    ],
)
def test_a_docstring_becomes_rst(written: str, shown: str) -> None:
    assert as_rst(written.splitlines()) == shown.splitlines()
