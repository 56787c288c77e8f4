"""The log names the input that holds a watermark back, once it has for a minute while others went on (C2)."""

from __future__ import annotations

from typing import Any

from tests.runtime.job.master_rig import MasterRig, Numbers, running

from penstock.runtime.graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.runtime.job.sources import AGAIN_MS, NAMED_MS, REMEDY, Origin, trace_origin
from penstock.runtime.protocol import ExecutionId, InputWatermark, TaskFigures, TaskMetrics, WatermarkHold
from penstock.runtime.records import MIN_TIMESTAMP

QUIET = {"execution.checkpointing.interval": None}


def a_join() -> JobGraph:
    """orders -> enrich -> join <- payments: (edge 0, edge 1, edge 2)."""

    def vertex(index: int, name: str, **more: Any) -> JobVertex:
        return JobVertex(index, name, 2, 128, (OperatorInfo(f"id-{name}", name, None, True),), b"program", **more)

    orders = vertex(0, "orders", sources={"id-orders": Numbers(True)})
    payments = vertex(2, "payments", sources={"id-payments": Numbers(True)})
    edges = (
        JobEdge(0, 0, 1, 0, "HASH", False),
        JobEdge(1, 1, 3, 0, "HASH", False),
        JobEdge(2, 2, 3, 1, "HASH", False),
    )
    return JobGraph("job", (orders, vertex(1, "enrich"), payments, vertex(3, "join")), edges)


def held(edge: int | None, parts: tuple[str, ...], for_ms: int, *others: InputWatermark, lowest: int = 0) -> Any:
    """A hold that began at 0, whose others moved until then."""
    slow = InputWatermark(edge, lowest, lowest, is_idle=False, holds=True, parts=parts, count=len(parts))
    return WatermarkHold(lowest, 0, for_ms, (slow, *others))


def report(
    rig: MasterRig, vertex: int, subtask: int, hold: WatermarkHold | None, makes_watermarks: bool | None = None
) -> None:
    figures = TaskFigures(hold=hold, makes_watermarks=makes_watermarks)
    rig.master.on_message(TaskMetrics(ExecutionId(vertex, subtask, 0), 0, 0, 0, figures=figures))


def named(rig: MasterRig) -> list[str]:
    return [line for line in rig.logs if "watermark" in line]


FAST = InputWatermark(1, 290_000, 300_000, is_idle=False, holds=False)


def test_an_input_that_stands_still_for_a_minute_is_named() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    rig.advance(70_000)
    report(rig, 3, 1, held(2, ("0",), NAMED_MS - 1, FAST))
    assert named(rig) == []
    report(rig, 3, 1, held(2, ("0",), NAMED_MS, FAST))
    assert named(rig) == [
        "the watermark of 'join' (subtask 2/2) has stood still for 70 s while other inputs go on: it waits for input "
        f"'payments' (subtask 1), which is not idle and is 300 s behind the one that is furthest ahead; {REMEDY}"
    ]


def test_it_is_named_once_and_after_long_again() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    for _ in range(AGAIN_MS // 60_000):
        report(rig, 3, 0, held(2, ("0",), NAMED_MS, FAST))
        report(rig, 3, 1, held(2, ("0",), NAMED_MS, FAST))
        rig.advance(60_000)
    assert len(named(rig)) == 1
    report(rig, 3, 0, held(2, ("0",), NAMED_MS, FAST))
    assert len(named(rig)) == 2


def test_when_the_watermark_goes_on_that_is_said_once() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    report(rig, 3, 0, None)
    report(rig, 3, 0, held(2, ("0",), NAMED_MS, FAST))
    report(rig, 3, 1, None)
    report(rig, 3, 0, None)
    report(rig, 3, 0, None)
    assert named(rig)[1:] == ["the watermark of 'join' goes on"]


def test_a_job_whose_inputs_all_pause_leaves_no_line() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    rig.advance(10 * NAMED_MS)
    report(rig, 3, 0, held(2, ("0",), NAMED_MS - 1, FAST))
    assert named(rig) == []


def test_an_input_without_a_watermark_and_idle_ones_are_told() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    idle = InputWatermark(1, MIN_TIMESTAMP, MIN_TIMESTAMP, is_idle=True, holds=False)
    report(rig, 3, 0, held(2, ("0", "1"), NAMED_MS, idle, lowest=MIN_TIMESTAMP))
    (line,) = named(rig)
    assert (
        "input 'payments' (subtasks 1, 2), which is not idle and has no watermark yet; input 'enrich' is idle" in line
    )


def test_a_split_of_a_source_is_named() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    report(rig, 0, 1, held(None, ("orders-3",), NAMED_MS))
    (line,) = named(rig)
    assert "the watermark of 'orders' (subtask 2/2)" in line
    assert "it waits for split orders-3, which" in line


def test_an_operator_that_waits_for_a_held_one_is_not_named() -> None:
    """The held one is, in its own line."""
    rig = running(graph=a_join(), conf=QUIET)
    report(rig, 1, 0, held(0, ("1",), NAMED_MS))
    report(rig, 3, 0, held(1, ("0",), NAMED_MS))
    (line,) = named(rig)
    assert "the watermark of 'enrich'" in line


def test_the_source_that_a_slow_input_comes_from_is_named() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    report(rig, 3, 0, held(1, ("0", "1"), NAMED_MS))
    (line,) = named(rig)
    assert "input 'enrich' (subtasks 1, 2), from 'orders', which" in line


def test_a_source_without_watermarks_leaves_no_line() -> None:
    """A join of a table with event time and one without has no event time, and needs none."""
    rig = running(graph=a_join(), conf=QUIET)
    hold = held(1, ("0",), NAMED_MS, lowest=MIN_TIMESTAMP)
    report(rig, 0, 0, None, makes_watermarks=False)
    report(rig, 3, 0, hold)
    assert named(rig) == []
    report(rig, 0, 0, None, makes_watermarks=True)
    report(rig, 3, 0, hold)
    assert len(named(rig)) == 1


def test_an_operator_that_makes_watermarks_is_where_a_hold_comes_from() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    report(rig, 0, 0, None, makes_watermarks=False)
    report(rig, 1, 0, None, makes_watermarks=True)
    report(rig, 3, 0, held(1, ("0",), NAMED_MS, lowest=MIN_TIMESTAMP))
    (line,) = named(rig)
    assert "input 'enrich' (subtask 1), which is not idle" in line


def test_a_hold_is_followed_to_the_split() -> None:
    edges = a_join().edges
    holds = {(3, 0): held(1, ("1",), 0), (1, 1): held(0, ("0",), 0), (0, 0): held(None, ("orders-3",), 0)}
    find = lambda vertex, subtask: TaskFigures(hold=holds.get((vertex, subtask)))  # noqa: E731
    assert trace_origin(edges, find, 3, 0) == Origin(0, ("0",), ("orders-3",))
    del holds[0, 0]
    assert trace_origin(edges, find, 3, 0) == Origin(0, ("0",))
    del holds[1, 1]
    assert trace_origin(edges, find, 3, 0) == Origin(0)
    assert trace_origin(edges, find, 1, 0) is None, "it is held by nothing"


def test_a_report_of_a_former_attempt_leaves_no_line() -> None:
    rig = running(graph=a_join(), conf=QUIET)
    figures = TaskFigures(hold=held(2, ("0",), NAMED_MS, FAST))
    rig.master.on_message(TaskMetrics(ExecutionId(3, 0, 7), 0, 0, 0, figures=figures))
    assert named(rig) == []
