"""Watermark alignment: the job master's answers, and whole jobs in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.job.master_rig import running, two_vertices
from tests.spec.virtual_job import LEDGER, REFUSED, LedgerSink, Timed, VirtualJob, clear_ledger, environment, records

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from penstock.runtime.graph import JobVertex
from penstock.runtime.job.sources import AlignmentGroups
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.protocol import AnnounceWatermark, ReportWatermark, TriggerCheckpoint
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.runtime.task.processing import Phase


def vertex(index: int, operator_id: str, parallelism: int, group: str, drift_ms: int) -> JobVertex:
    return JobVertex(
        index, operator_id, parallelism, 128, (), b"", alignments={operator_id: WatermarkAlignment(group, drift_ms, 50)}
    )


def test_a_source_may_be_ahead_of_the_slowest_by_its_drift() -> None:
    """C2: every subtask of every source of the group counts, and each strategy has its own drift."""
    groups = AlignmentGroups([vertex(0, "one", 1, "g", 10), vertex(1, "two", 2, "g", 20)])
    assert groups.on_report("one", 0, 100) == MIN_TIMESTAMP, "the others have not said anything"
    assert groups.on_report("two", 0, 50) == MIN_TIMESTAMP
    assert groups.on_report("two", 1, 70) == 70
    assert groups.on_report("one", 0, 100) == 60
    assert groups.on_report("two", 0, MAX_WATERMARK) == 90


def test_groups_do_not_wait_for_each_other() -> None:
    """C2: alignment is within a group."""
    groups = AlignmentGroups([vertex(0, "one", 1, "g", 10), vertex(1, "two", 1, "h", 10)])
    assert groups.on_report("one", 0, 100) == 110
    assert groups.on_report("nobody", 0, 5) is None


def test_when_all_have_ended_all_may_go_on() -> None:
    """C2: and the sum does not run over."""
    groups = AlignmentGroups([vertex(0, "one", 1, "g", 10)])
    assert groups.on_report("one", 0, MAX_WATERMARK) == MAX_WATERMARK


def test_a_new_attempt_begins_with_nothing_reported() -> None:
    """C2, G8: what the last attempt said does not count."""
    groups = AlignmentGroups([vertex(0, "one", 1, "g", 10), vertex(1, "two", 1, "g", 10)])
    groups.on_report("two", 0, 5)
    groups.reset()
    assert groups.on_report("one", 0, 100) == MIN_TIMESTAMP


@pytest.mark.parametrize("readers", [1, 3])
def test_a_rescaled_source_waits_for_the_readers_it_has_then(readers: int) -> None:
    """C2, D4: not for those that are gone, and for each new one."""
    graph = two_vertices()
    source = replace(graph.vertices[0], alignments={"id-source": WatermarkAlignment("g", 10, 50)})
    rig = running(graph=replace(graph, vertices=(source, *graph.vertices[1:])))
    rig.master.rescale({"source": readers}, lambda result, error: None)
    rig.register(max(0, readers - 2))
    rig.acknowledge(rig.of(TriggerCheckpoint)[-1].checkpoint_id)
    rig.end_cancelled()
    rig.run_all()
    ran = [execution for execution in rig.executions if execution.vertex == 0]
    assert len(ran) == readers
    for execution in ran:
        rig.master.on_message(ReportWatermark(execution, "id-source", 100 + execution.subtask))
    allowed = [message.allowed_ms for message in rig.of(AnnounceWatermark)]
    assert allowed == [MIN_TIMESTAMP] * (readers - 1) + [110]


# --- whole jobs -----------------------------------------------------------------------------------------------------

#: One source with 1000 ms of event time each 10 ms, another with 100 ms of event time each 100 ms.
FAST, SLOW = Timed(10, (60,)), Timed(100, (60,))


def run(strategy_of: Any, fails: bool = False) -> tuple[VirtualJob, int]:
    """A job of both; how far (ms) the fast source was ahead of the slow one at most, while both were running."""
    clear_ledger()
    env = environment()
    fast, slow = (
        env.from_source(source, strategy_of(step_ms), name)
        for source, step_ms, name in ((FAST, 1000, "fast"), (SLOW, 100, "slow"))
    )
    fast.union(slow).sink_to(LedgerSink("out"))
    job = VirtualJob(env)
    ahead = [0]

    def watch() -> bool:
        found: dict[str, int | None] = {}
        for executor in job._cluster._executors.values():
            for task in executor.tasks:
                if isinstance(task.source, SourceOperator) and task.phase is Phase.PROCESSING:
                    found[task.deployment.task_name.split()[0]] = task.source.emitted_watermark
        fast, slow = found.get("fast"), found.get("slow")
        if fast is not None and slow is not None:
            ahead[0] = max(ahead[0], fast - slow)
        return False

    job.when(watch, lambda: None)
    if fails:
        job.at(900, lambda: REFUSED.add("out"))
    assert job.run() is JobStatus.FINISHED
    return job, ahead[0]


def times(step_ms: int) -> WatermarkStrategy:
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record: record[1] * step_ms)


@pytest.mark.parametrize("fails", [False, True], ids=["undisturbed", "with a restart"])
def test_a_fast_source_keeps_close_to_a_slow_one(fails: bool) -> None:
    """C2, G8: by the drift, one record, and what the slow one gets on between two reports; and all is read."""
    drift_ms, interval_ms = 2_000, 50
    job, ahead = run(lambda step: times(step).with_watermark_alignment("g", drift_ms, interval_ms), fails)
    assert 0 < ahead <= drift_ms + 1_000 + 100
    assert sorted(LEDGER["out"]) == sorted(records(60) + records(60))
    assert job.master.history.restarts == int(fails)


def test_without_alignment_it_runs_away() -> None:
    """C2: the measure of the test above tells the difference."""
    _, ahead = run(times)
    assert ahead > 30_000
