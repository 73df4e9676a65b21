"""The docstrings of the package as reStructuredText.

They are written to be read in the source, where a line begins with the parameter that it is about:

    timeout: seconds to wait;
    None: without end.
"""

from __future__ import annotations

import re

_PARAMETER = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): (\S.*)")
_ERROR = re.compile(r"`[\w.]+`.*")
_PLURAL = re.compile(r"(?<!`)(`[\w.]+`)(?=[a-z])")
"""A name with an ending, which reStructuredText takes only if it is told where the name ends."""

_BULLET = "- "


def as_rst(lines: list[str]) -> list[str]:
    """Return a docstring with lists of parameters and errors, and with its indented code marked."""
    found: list[str] = []
    for paragraph in _paragraphs(lines):
        if found:
            found.append("")
        if _is_code(paragraph, found):
            found += ["::", ""]
        found += [_PLURAL.sub(r"\1\\ ", line) for line in _with_list(paragraph)]
    return found


def _paragraphs(lines: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [paragraph for paragraph in found if paragraph]


def _is_code(paragraph: list[str], before: list[str]) -> bool:
    """Return True for the first paragraph of an indented block that nothing marks as code."""
    above = next((line for line in reversed(before) if line), "")
    is_indented = all(line.startswith("    ") for line in paragraph)
    return is_indented and not above.startswith((" ", _BULLET)) and not above.endswith("::")


def _with_list(paragraph: list[str]) -> list[str]:
    """Return a paragraph whose parameters are items of a list, and so the errors after a colon."""
    found: list[str] = []
    is_list = are_errors = False
    above = ""
    for line in paragraph:
        parameter = _PARAMETER.fullmatch(line)
        are_errors = are_errors or above.endswith(":")
        is_error = are_errors and above.endswith((":", ".", ";")) and _ERROR.fullmatch(line)
        if (parameter or is_error) and not is_list:
            found += [""] if found else []
            is_list = True
        if parameter:
            names = ", ".join(f"``{name}``" for name in parameter[1].split(", "))
            found.append(f"{_BULLET}{names}: {parameter[2]}")
        elif is_error:
            found.append(f"{_BULLET}{line}")
        else:
            found.append(f"  {line}" if is_list else line)
        above = line
    return found
