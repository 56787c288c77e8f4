"""Event time does not wait for tasks that got nothing of a batch, nor goes further than a source has come (C2)."""

from __future__ import annotations

import pytest

from penstock.core.epochs.idleness import InputWatermarks, watermarks_behind
from penstock.core.epochs.work import EpochAnswer
from penstock.core.records import MAX_WATERMARK

ACTIVE, IDLE = False, True


@pytest.mark.parametrize(
    ("told", "watermark", "are_idle"),
    [
        ([], None, False),
        ([(0, 50, ACTIVE), (0, 30, ACTIVE)], 30, False),
        ([(0, 50, ACTIVE), (0, 30, IDLE)], 50, False),
        ([(0, 50, IDLE), (0, 30, IDLE)], 30, True),
        ([(0, 50, ACTIVE), (1, 30, IDLE)], 30, False),
        ([(0, 50, ACTIVE), (1, 70, ACTIVE), (1, 30, IDLE)], 50, False),
        ([(0, MAX_WATERMARK, ACTIVE), (1, 30, IDLE)], 30, True),
        ([(0, MAX_WATERMARK, ACTIVE), (0, 30, IDLE)], 30, True),
        ([(0, MAX_WATERMARK, ACTIVE), (1, 30, ACTIVE)], 30, False),
        ([(0, MAX_WATERMARK, ACTIVE), (1, MAX_WATERMARK, IDLE)], MAX_WATERMARK, False),
    ],
    ids=[
        "nobody",
        "lowest",
        "idle",
        "all idle",
        "a source without data holds others back",
        "two sources",
        "one source has ended and the other is idle",
        "one task of a source has ended and the other is idle",
        "one source has ended and the other goes on",
        "all have ended",
    ],
)
def test_a_consumer_waits_for_active_producers(
    told: list[tuple[int, int, bool]], watermark: int | None, are_idle: bool
) -> None:
    """C2: over each edge those that were active count; where none was, it stays where the producers were."""
    inputs = InputWatermarks()
    for edge, reached, is_idle in told:
        inputs.add(edge, reached, is_idle)
    assert inputs.watermark == watermark
    assert inputs.are_idle is are_idle


def marks(watermark: int) -> dict[int, int]:
    """Of a task whose input is 5 ms behind its output, until both end."""
    return {-1: watermark if watermark == MAX_WATERMARK else watermark - 5, 0: watermark}


def answer(watermark: int, is_idle: bool) -> EpochAnswer:
    return EpochAnswer({}, marks(watermark), False, 0, is_idle=is_idle)


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ([(50, ACTIVE), (30, ACTIVE), (0, IDLE)], [50, 30, 30]),
        ([(50, ACTIVE), (70, IDLE)], [50, 70]),
        ([(50, IDLE), (30, IDLE)], [50, 30]),
        ([(MAX_WATERMARK, ACTIVE), (30, IDLE)], [MAX_WATERMARK, 30]),
        ([(MAX_WATERMARK, ACTIVE), (50, ACTIVE), (30, IDLE)], [MAX_WATERMARK, 50, 50]),
    ],
    ids=["catches up", "is ahead", "all idle", "the other has ended", "one has ended and one goes on"],
)
def test_an_idle_task_takes_over_where_its_vertex_is(before: list[tuple[int, bool]], behind: list[int]) -> None:
    """C2: so that a later batch of which nobody gets anything leaves event time where it is; other vertices do not
    matter."""
    answers = {(0, subtask): answer(*one) for subtask, one in enumerate(before)} | {(1, 0): answer(10, ACTIVE)}
    found = watermarks_behind(answers)
    assert [found[0, subtask] for subtask in range(len(before))] == [marks(mark) for mark in behind]
    assert found[1, 0] == {-1: 5, 0: 10}
