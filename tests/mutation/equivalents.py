"""Faults that change nothing that anybody could see, each with the reason.

A fault is known by its file, its function, and what it changes: see `python -m tests.mutation
--json`.
"""

_COST = "It decides how the work is shared out or how long it takes, and not what comes of it."

_FOR_PEOPLE = "A part of a sentence, or of a name, that only people read."

EQUIVALENTS: dict[tuple[str, str, str, str], str] = {
    ("lease/renewer.py", "", "20", "21"): _COST,
    ("lease/renewer.py", "LeaseRenewer._renew_all", "'lease-renewal'", "'lease-renewalx'"): (
        _FOR_PEOPLE
    ),
    (
        "lease/renewer.py",
        "LeaseRenewer._renew",
        "zip(left, results, strict=True)",
        "zip(left, results)",
    ): "There is a result for each write.",
    ("lease/renewer.py", "LeaseRenewer._renew", "True", "False"): (
        "There is a result for each write."
    ),
    (
        "lease/observer.py",
        "TableObserver.require_unique_worker_id",
        "moved_leases(leases, self.scan(consistent=True).leases, self._worker_id)",
        "moved_leases(self.scan(consistent=True).leases, leases, self._worker_id)",
    ): "The two are compared, whichever comes first.",
    ("lease/coordinator.py", "LeaseCoordinator._take", "1", "2"): "Nothing is taken then.",
    (
        "lease/coordinator.py",
        "LeaseCoordinator._take",
        "not wish.is_leaving() and (due or takes.take)",
        "not wish.is_leaving()",
    ): "Nothing is taken then.",
    ("stream/calls/direct/http_answer.py", "", "65536", "65537"): _COST,
    ("lease/rules/observations.py", "observe", "continue", "pass"): (
        "The observation is made anew, with equal values; the first one spares a copy of each."
    ),
    (
        "worker/lifecycle/shard/concurrent_delivery.py",
        "OpenRecords._open",
        "room <= 0",
        "room < 0",
    ): _COST,
    (
        "worker/lifecycle/shard/concurrent_delivery.py",
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
    (
        "stream/kpl/envelope.py",
        "_thread_pool",
        "ThreadPoolExecutor(os.cpu_count(), thread_name_prefix='kpl')",
        "ThreadPoolExecutor(os.cpu_count())",
    ): _FOR_PEOPLE,
    ("stream/kpl/envelope.py", "_thread_pool", "'kpl'", "'kplx'"): _FOR_PEOPLE,
    (
        "stream/kpl/envelope.py",
        "open_sound",
        "chain(keys, hash_keys)",
        "chain(hash_keys, keys)",
    ): "All of them are looked at, in whatever order.",
    (
        "stream/kpl/envelope.py",
        "message_of",
        "hashlib.md5(message, usedforsecurity=False)",
        "hashlib.md5(message)",
    ): "Only a machine in FIPS mode knows the difference.",
    ("stream/kpl/envelope.py", "message_of", "False", "True"): (
        "Only a machine in FIPS mode knows the difference."
    ),
    (
        "stream/kpl/envelope.py",
        "_shared_by_two",
        "sum([len(record.data) for record in records]) < _MIN_SIZE_FOR_THREAD",
        "sum([len(record.data) for record in records]) <= _MIN_SIZE_FOR_THREAD",
    ): _COST,
    ("stream/kpl/envelope.py", "_shared_by_two", "len(records) // 2", "len(records) * 2"): _COST,
    ("stream/kpl/envelope.py", "_shared_by_two", "2", "3"): _COST,
    ("stream/kpl/unpack.py", "", "2 << 20", "2 >> 20"): _COST,
    (
        "stream/kpl/unpack.py",
        "deaggregate",
        "replace(part, data=_NO_COLUMNS.data)",
        "replace(part)",
    ): _COST,
    (
        "stream/kpl/unpack.py",
        "_columns",
        "len(explicit_hash_keys) > 0",
        "len(explicit_hash_keys) >= 0",
    ): _COST,
    ("stream/kpl/unpack.py", "", "2", "3"): _COST,
    ("stream/kpl/unpack.py", "", "20", "21"): _COST,
    ("stream/calls/answers/decoding.py", "", "1000", "1001"): _COST,
    ("stream/calls/retry.py", "", "32", "33"): "A wait is at its cap after fewer doublings.",
    (
        "stream/fan_out/current_subscription.py",
        "CurrentSubscription.due_in",
        "left > 0",
        "left >= 0",
    ): ("It is due at once, and looks no longer before it reads."),
    (
        "stream/fan_out/cursor.py",
        "FanOutCursor._pause_or_raise",
        "error is not None and is_unknown_position(error, self._position)",
        "is_unknown_position(error, self._position)",
    ): "None is no error of the service.",
    (
        "stream/fan_out/cursor.py",
        "FanOutCursor._pause_or_raise",
        "not had_begun and isinstance(error, ClientError | BotoCoreError)",
        "not had_begun",
    ): "A subscription that did not begin failed by an error of botocore's.",
    (
        "stream/calls/direct/connection.py",
        "ConnectionPool._connect",
        "connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)",
        "connection.setsockopt(socket.IPPROTO_TCP, 1, socket.TCP_NODELAY)",
    ): "The option's number is 1.",
    ("stream/calls/direct/http_answer.py", "read_body", "''", "'x'"): (
        "Neither asks for the end of the connection."
    ),
    ("lease/rules/shard_sync.py", "require_tiling", "first > expected", "first >= expected"): (
        "The two differ."
    ),
    (
        "lease/scan_schedule.py",
        "between_renewals",
        "now + pause - renewed_at - interval",
        "now + pause - renewed_at + interval",
    ): "The two differ by a whole round of two intervals, of which only the remainder counts.",
    (
        "lease/rules/row_streams.py",
        "_contradiction",
        "known is not None and is_of_another_stream(known, created_ms)",
        "is_of_another_stream(known, created_ms)",
    ): "The function returns False for None, too, which only its type rules out.",
    (
        "lease/rules/row_streams.py",
        "require_single_stream",
        "{lease.stream.name for lease in several.leases if lease.stream}",
        "{lease.stream.name for lease in several.leases}",
    ): "Each of these leases names its stream; the type does not tell.",
    (
        "lease/shards/shard_ends.py",
        "ShardEnds._still_waits",
        "any((self._leases.table.get(lease_key(self._leases.stream, each)) for each in shard_ids))",
        "all((self._leases.table.get(lease_key(self._leases.stream, each)) for each in shard_ids))",
    ): "Two shards are merged, so that a child waits for one shard.",
    ("lease/table/requests.py", "take", "1", "2"): (
        "Workers name a token; without one, either is below all tokens that they take."
    ),
    ("stream/reading/range.py", "read_range", "1", "2"): "One fetch is under way at a time.",
    (
        "source/planning/batch_instant.py",
        "_latest_within_limit.total",
        "return sum((survey.weight(instant) for survey in surveys.values()))",
        "pass",
    ): _COST,
    ("source/planning/batch_instant.py", "_latest_within_limit", "1", "2"): _COST,
    ("stream/kpl/unpack.py", "_columns", "stop - start", "stop + start"): _COST,
    (
        "stream/calls/answers/decoding.py",
        "_ascend",
        "map(lt, numbers, numbers[1:])",
        "map(lt, numbers[1:], numbers)",
    ): _COST,
}
