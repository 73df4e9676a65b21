"""Faults that change nothing that anybody could see, each with the reason.

A fault is known by its file, its function, and what it changes: see `python -m tests.mutation
--json`.
"""

EQUIVALENTS: dict[tuple[str, str, str, str], str] = {
    ("lease/rules/observations.py", "observe", "continue", "pass"): (
        "The observation is made anew, with equal values; the first one spares a copy of each."
    ),
}
