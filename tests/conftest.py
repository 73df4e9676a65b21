"""How tests share the processes of a run: their order, and one Spark session for many files."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections import Counter
from collections.abc import Container, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import is_hypothesis_test, settings

from tests import hangs, promises
from tests.examples import examples
from tests.simulation.drawn import draw_no_constants

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).parents[1]
_SHARED = {
    "spark: SparkSession": "tests/spark, one session",
    "cluster: Cluster": "tests/spark, one cluster",
}
"""Scopes of the test files that ask for a fixture which takes long to set up."""
_ORDER = (
    "tests/spark/test_p2_no_gap_no_overlap.py",
    "tests/spark/test_fleet.py",
    "tests/spark/test_batch_read.py",  # the first file of those that share a session
    "tests/spark/",
    "tests/integration/worker/test_fleet.py",
    "tests/integration/worker/test_kills.py",
    "tests/integration/worker/test_exactly_once.py",
    "tests/integration/worker/test_expired.py",
    "tests/integration/worker/test_memory.py",
    "tests/integration/",
    "tests/properties/",
    "tests/hostile/",
    "tests/simulation/",
    "",
)
"""The longest come first; tests that wait run beside Spark's, and those that compute follow."""
_ALONE = (
    "tests/integration/worker/test_kills.py",
    "tests/simulation/test_bugs.py",
    "tests/simulation/test_histories.py",
)
"""Files whose tests are long and have nothing in common: each may run in another process."""
_MORE = (
    "tests/aws/test_run.py",
    "tests/benchmarks/",
    "tests/deploy/",
    "tests/hostile/test_aggregates.py::test_a_megabyte_of_harm_takes_time_and_space_like_any_megabyte[the",
    "tests/hostile/test_sizes.py::test_the_largest_records",
    "tests/integration/cli/test_completion.py",
    "tests/integration/cli/test_examples.py",
    "tests/integration/cli/test_init.py::test_its_steps",
    "tests/integration/cli/test_init.py::test_its_test_passes",
    "tests/integration/cli/test_runbooks.py",
    "tests/integration/cli/test_tail_and_put.py",
    "tests/integration/compat/test_kclpy_sample.py",
    "tests/integration/examples/test_active_users.py::test_old_heartbeats",
    "tests/integration/lease/test_partial_scans.py::test_a_crash_of_the_leader",
    "tests/integration/lease/test_partial_scans.py::test_the_whole_table_is_read_again",
    "tests/integration/lease/test_partial_scans.py::test_who_reads_its_own_rows",
    "tests/integration/lease/test_partial_scans.py::test_without_the_index_the_whole_table_is_read[AccessDenied",
    "tests/integration/lease/test_partial_scans.py::test_without_the_index_the_whole_table_is_read[Resource",
    "tests/integration/lease/test_partial_scans.py::test_workers_of_several",
    "tests/integration/local/test_cloudwatch.py::test_only_the_newest",
    "tests/integration/local/test_command.py::test_it_serves_until_a_signal_and_exits_with_0[module]",
    "tests/integration/local/test_http2.py",
    "tests/integration/local/test_unfinished_requests.py",
    "tests/integration/queue/test_once.py::test_postgres",
    "tests/integration/queue/test_processes.py::test_sigterm_repeats_nothing[two programs]",
    "tests/integration/queue/test_start.py",
    "tests/integration/stream/direct/test_usual.py::test_each_request_is_botocores[dynamodb",
    "tests/integration/stream/direct/test_usual.py::test_each_request_is_botocores[kinesis-None",
    "tests/integration/stream/test_following.py::test_an_idle_shard_is_asked_once_a_second",
    "tests/integration/stream/test_following.py::test_what_comes_later_is_not_there_now",
    "tests/integration/testing/test_documented.py::test_the_documented",
    "tests/integration/worker/test_archive_example.py",
    "tests/integration/worker/test_deleted_table.py",
    "tests/integration/worker/test_doctor_command.py::test_a_subscription_that_is_refused",
    "tests/integration/worker/test_exactly_once.py::test_kills",
    "tests/integration/worker/test_exactly_once.py::test_postgres",
    "tests/integration/worker/test_expired.py::test_a_quiet_shard_that_somebody_reads",
    "tests/integration/worker/test_exporter_command.py",
    "tests/integration/worker/test_fleet.py",
    "tests/integration/worker/test_health.py::test_a_deleted_table",
    "tests/integration/worker/test_health.py::test_a_long_outage",
    "tests/integration/worker/test_health.py::test_a_table_that_answers",
    "tests/integration/worker/test_kills.py",
    "tests/integration/worker/test_leases_command.py::test_a_running",
    "tests/integration/worker/test_many_subscriptions.py",
    "tests/integration/worker/test_memory.py::test_slow_processors_of_many_shards_have_a_budget_together[polling-plain]",
    "tests/integration/worker/test_parquet_sink.py::test_a_killed",
    "tests/integration/worker/test_permissions.py::test_commands_",
    "tests/integration/worker/test_run_command.py::test_a_changed_file",
    "tests/integration/worker/test_s1_trouble.py::test_a_function_that_fails",
    "tests/integration/worker/test_s1_trouble.py::test_a_lease_table_that_is_not_available",
    "tests/mutation/test_main.py",
    "tests/page/",
    "tests/properties/test_kept_plans.py::test_no_plan_depends_on_quiet_shards_or_on_what_is_kept[1-",
    "tests/properties/test_p10_time.py::test_p10_a_light_shard_is_not_read_ahead_of_a_busy_one[size",
    "tests/properties/test_p10_time.py::test_p10_ten_reshards",
    "tests/properties/test_p7_call_budget.py::test_p7_planner_and_readers_together",
    "tests/properties/test_quiet_shards.py::test_plans_are_those_of_shards_that_are_asked_one_by_one[1-",
    "tests/properties/test_quiet_shards.py::test_plans_are_those_of_shards_that_are_asked_one_by_one[16777216-arrival",
    "tests/properties/test_quiet_shards.py::test_plans_are_those_of_shards_that_are_asked_one_by_one[16777216-internal",
    "tests/properties/test_quiet_shards.py::test_plans_are_those_of_shards_that_are_asked_one_by_one[16777216-throttled",
    "tests/simulation/query/test_queries.py::test_subscriptions_break",
    "tests/simulation/test_bugs.py::test_without_a_bug",
    "tests/simulation/test_determinism.py::test_the_same_seed_plays",
    "tests/simulation/test_reach.py",
    "tests/simulation/test_regressions.py",
    "tests/simulation/test_takeover.py",
    "tests/simulation/test_turns.py",
    "tests/snippets/test_pages.py",
    "tests/spark/lakes/",
    "tests/spark/test_cluster.py",
    "tests/spark/test_columns.py::test_a_read",
    "tests/spark/test_coming_from.py",
    "tests/spark/test_connect.py",
    "tests/spark/test_credentials.py",
    "tests/spark/test_demo.py::test_a_quick_run",
    "tests/spark/test_errors.py::test_a_task_that_fails",
    "tests/spark/test_errors.py::test_an_option_of_another_use",
    "tests/spark/test_errors.py::test_workers_of_another_python",
    "tests/spark/test_fleet.py",
    "tests/spark/test_fleet_queue.py::test_workers_on_executors",
    "tests/spark/test_functions.py::test_no_data_fails_a_query_or_loses_a_row[true]",
    "tests/spark/test_java.py::test_spark_runs",
    "tests/spark/test_notebook.py::test_a_kernel",
    "tests/spark/test_p10_active_users.py",
    "tests/spark/test_p10_watermark.py",
    "tests/spark/test_parquet_sink.py",
    "tests/spark/test_payload_processes.py",
    "tests/spark/test_pipeline.py",
    "tests/spark/test_run_command.py",
    "tests/spark/test_settings.py",
    "tests/spark/test_sql.py::test_no_write",
    "tests/spark/test_sql.py::test_options_of",
    "tests/spark/test_sql.py::test_the_page",
    "tests/spark/test_testing_kit.py::test_a_windowed_count",
    "tests/spark/test_union.py",
    "tests/spark/test_watch.py::test_the_lag_follows",
    "tests/spark/test_wrong_statements.py::test_a_",
    "tests/unit/test_hangs.py::test_each_of_many",
)
"""What `make test` leaves to `make test-more`: the slowest tests, whose properties others hold in
less time or at a smaller scale. The second way of reading is left, too: see `_is_second_way`."""
_KILLS = "tests/integration/worker/test_kills.py::test_kills_lose_nothing_and_repeat_only"
_LONG = (
    "tests/integration/cli/test_tail_and_put.py::test_lines_move_from_stream_to_stream_each_key_in_order[100000]",
    "tests/integration/worker/test_fleet.py::test_a_fleet_through_crashes_pauses_shutdowns_and_reshards[6-6-",
    *(
        f"{_KILLS}_what_no_checkpoint_covers[2-{way}]"
        for way in (
            "async class",
            "async function",
            "async loop",
            "concurrency",
            "function",
            "loop",
        )
    ),
    "tests/spark/lakes/test_parquet.py",
    "tests/spark/test_connect.py::test_a_session_has_the_parts_of_records_of_the_glue",
    "tests/spark/test_connect.py::test_the_printed_sql",
    "tests/spark/test_fleet.py::test_workers_of_a_decommissioned_executor",
    "tests/spark/test_notebook.py::test_a_kernel",
    "tests/spark/test_p10_watermark.py",
)
"""What `make test-more` leaves to `make test-long`: tests that are like another one, which it runs,
at a larger scale, in a further way, or on a further host."""
_LEFT_OUT = pytest.StashKey[Counter[str]]()
_MOST_SPARKS = 4
"""For memory: each process that runs the tests of Spark has a JVM or several."""
_WAITING_PROCESSES = 8
"""Processes beyond the cores: most tests without Spark wait for something most of their time.

Each of them collects all tests, which costs five seconds of a core."""
_GIBS_OF_A_PROCESS = 2
"""The memory that a machine has for each of these processes: half of it is Spark's and others'."""


@functools.cache
def _scope(path: str) -> str:
    """Return what is run in one process and in one go: a file, or all that share a fixture."""
    if path.startswith(("tests/spark/", "tests/snippets/")):
        text = (_ROOT / path).read_text()
        return next((scope for fixture, scope in _SHARED.items() if fixture in text), path)
    return path


settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=examples(100))
settings.load_profile("repeatable")
draw_no_constants()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--promise",
        metavar="NAME",
        help="run the tests of a promise, such as P6 or maxRecordsPerTrigger: tests/promises.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch for tests that hang. Heed Ctrl-C, as do all processes that tests start.

    A shell without job control starts what runs in the background with SIGINT ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hangs.configure(config)
    if name := config.getoption("--promise"):
        select_promise(config, name)


def select_promise(config: pytest.Config, name: str) -> None:
    """Let the run have the tests of a promise alone, whatever their markers."""
    try:
        config.args = [str(promises.FOLDER / test) for test in promises.look_up(name)]
    except LookupError as error:
        raise pytest.UsageError(error.args[0]) from None
    config.option.markexpr = ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests in their order, by a stable sort, and mark what `make test` leaves out."""

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(config.rootpath).as_posix()
        return next(n for n, prefix in enumerate(_ORDER) if path.startswith(prefix))

    items.sort(key=rank)
    known = {item.nodeid for item in items}
    for item in items:
        if item.nodeid.startswith(_LONG):
            item.add_marker("long")
        elif item.nodeid.startswith(_MORE) or _is_second_way(item.nodeid, known):
            item.add_marker("more")
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("drawn")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what is left out, by the target of make that runs it."""
    found = Counter[str]()
    for item in items:
        for marker in ("long", "more"):
            if item.get_closest_marker(marker):
                found[f"make test-{marker}"] += 1
                break
    if found:
        config = items[0].config
        config.stash[_LEFT_OUT] = found
        # Under xdist, the process that collects is not the one that sums up.
        getattr(config, "workeroutput", {})["left out"] = dict(found)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    found = getattr(node, "workeroutput", {}).get("left out")
    if found:
        node.config.stash[_LEFT_OUT] = Counter(found)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for target, count in sorted(config.stash.get(_LEFT_OUT, {}).items()):
        terminalreporter.write_line(f"LEFT OUT, for `{target}` to run: {count}")


def _is_second_way(test: str, known: Container[str]) -> bool:
    """Return True for a test by enhanced fan-out that is the same test as one by polling."""
    path, _, case = test.partition("[")
    return "efo" in case and f"{path}[{case.replace('efo', 'polling')}" in known


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt all modules and test items from garbage collection, for they stay.

    To look for garbage among them takes a tenth of the time of their collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes: those for Spark, and those that mostly wait."""
    gibs = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    return _sparks() + max(1, min(_WAITING_PROCESSES, gibs // _GIBS_OF_A_PROCESS))


def _sparks() -> int:
    """Return how many processes may run Spark at once; a JVM keeps a core busy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(max(cores or 1, 2), _MOST_SPARKS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Hand out a scope at a time; Spark's go to the first processes while there are any."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - may be switched off

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(_ALONE) else _scope(nodeid.partition("::")[0])

        def _assign_work_unit(self, node: Any) -> None:
            runs_spark = node in self.nodes[: _sparks()]
            for scope in self.workqueue:
                if scope.startswith("tests/spark") == runs_spark:
                    self.workqueue.move_to_end(scope, last=False)
                    break
            super()._assign_work_unit(node)

        def _reschedule(self, node: Any) -> None:
            if node in self.registered_collections:  # else it is new, and has no tests yet
                super()._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            """Return the test that has ended its process; the tests behind it run in another."""
            work = self.assigned_work.pop(node)
            left = [test for unit in work.values() for test, is_done in unit.items() if not is_done]
            # A test whose fixture hangs in the end is done.
            test: str | None = hangs.ended_with(config, node) or next(iter(left), None)
            for scope, unit in work.items():
                if test in unit:
                    unit[test] = True
                if not all(unit.values()):
                    self.workqueue[scope] = unit
            for other in self.nodes:
                self._reschedule(other)
            return test

    return Scheduling(config, log)
