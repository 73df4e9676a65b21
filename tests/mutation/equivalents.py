"""Faults that change nothing that anybody could see, each with the reason.

A fault is known by its file, its function, and what it changes: see `python -m tests.mutation
--json`.
"""

_COST = "It decides how the work is shared out or how long it takes, and not what comes of it."

_FOR_PEOPLE = "A part of a sentence, or of a name, that only people read."

EQUIVALENTS: dict[tuple[str, str, str, str], str] = {
    ("lease/renewer.py", "", "20", "21"): _COST,
    ("stream/calls/direct/connection.py", "", "65536", "65537"): _COST,
    ("lease/rules/observations.py", "observe", "continue", "pass"): (
        "The observation is made anew, with equal values; the first one spares a copy of each."
    ),
    ("worker/lifecycle/shard/open_records.py", "OpenRecords._open", "room <= 0", "room < 0"): _COST,
    (
        "worker/lifecycle/shard/open_records.py",
        "OpenRecords._open",
        "batch is None or room <= 0",
        "batch is None",
    ): _COST,
    ("worker/lifecycle/shard/reaction.py", "_cause", "10", "11"): (
        "It ends the walk through a circular chain of causes; none without a circle is as long."
    ),
    ("stream/kpl/envelope.py", "", "1 << 18", "1 >> 18"): _COST,
    ("stream/kpl/envelope.py", "", "1", "2"): _COST,
    ("stream/kpl/envelope.py", "", "18", "19"): _COST,
    ("stream/kpl/envelope.py", "_thread_pool", "'kpl'", "'kplx'"): _FOR_PEOPLE,
    (
        "stream/kpl/envelope.py",
        "open_sound",
        "chain(keys, hash_keys)",
        "chain(hash_keys, keys)",
    ): "All of them are looked at, in whatever order.",
    ("stream/kpl/envelope.py", "message_of", "False", "True"): (
        "Only a machine in FIPS mode knows the difference."
    ),
    (
        "stream/kpl/envelope.py",
        "_shared_by_two",
        "sum([len(record.data) for record in records]) < _MIN_SIZE_FOR_THREAD",
        "sum([len(record.data) for record in records]) >= _MIN_SIZE_FOR_THREAD",
    ): _COST,
    ("stream/kpl/envelope.py", "_shared_by_two", "len(records) // 2", "len(records) * 2"): _COST,
    ("stream/kpl/envelope.py", "_shared_by_two", "2", "3"): _COST,
    ("lease/rules/shard_sync.py", "require_tiling", "first > expected", "first >= expected"): (
        "The two differ."
    ),
}
