"""Watermarks of sources: of several splits at a time, by custom generators, and held back by alignment."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import pytest

from penstock.base.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from penstock.runtime.connector import Boundedness, InputStatus, Source, SourceReader, SplitBatch
from penstock.runtime.operators.connector import Emitted, SourceOperator
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.testing import OneInputOperatorHarness

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()


class Scripted(Source[Any, Any]):
    """Its reader gives what the test puts into `script`: batches, or names of splits to open or to close."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.retry_ms = 0
        self.paused: set[str] = set()

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        raise NotImplementedError

    def create_reader(self, context: Any) -> SourceReader[Any, Any]:
        return _ScriptedReader(self, context)


class _ScriptedReader(SourceReader[Any, Any]):
    def __init__(self, source: Scripted, context: Any) -> None:
        self.source = source
        self.context = context

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        while self.source.script:
            found = self.source.script.pop(0)
            if not isinstance(found, str):
                return found  # type: ignore[no-any-return]
            (self.context.open_split if found[0] == "+" else self.context.close_split)(found[1:])
        return InputStatus.NOTHING_AVAILABLE

    def retry_after_ms(self) -> int:
        return self.source.retry_ms

    def add_splits(self, splits: Any) -> None: ...

    def no_more_splits(self) -> None: ...

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return []

    def pause_or_resume_splits(self, splits_to_pause: Any, splits_to_resume: Any) -> None:
        assert self.source.paused.isdisjoint(splits_to_pause)
        assert self.source.paused.issuperset(splits_to_resume)
        self.source.paused |= set(splits_to_pause)
        self.source.paused -= set(splits_to_resume)


class Rig:
    """A source operator whose reader is scripted."""

    def __init__(self, strategy: WatermarkStrategy, aligned: bool = False) -> None:
        self.source = Scripted()
        self.harness = OneInputOperatorHarness(partial(SourceOperator, self.source, strategy))
        self.reported: list[int] = []
        if aligned:
            self.harness.context.report_watermark = self.reported.append
        self.harness.open()
        self.operator: Any = self.harness.operator

    def poll(self, *script: Any) -> Emitted:
        """Give this to the reader, and poll until it is read."""
        self.source.script += script
        self.operator.add_splits((), False)  # after which a source polls at once
        emitted = Emitted.RECORDS
        while emitted is Emitted.RECORDS:
            emitted = self.operator.emit_next(100)
        return emitted

    def wait(self, ms: int) -> None:
        self.harness.advance_processing_time(ms)


def of(split: str | None, *timestamps: int) -> Batch:
    values = [str(split)] * len(timestamps)
    return Batch(values, list(timestamps)) if split is None else SplitBatch(values, list(timestamps), split)


def test_the_slowest_open_split_holds_the_watermark_back() -> None:
    """C2: each split has its own; one without records holds it back too, one that is closed does not."""
    rig = Rig(MONOTONOUS)
    rig.poll("+a", "+b", of("a", 10, 20))
    assert rig.harness.watermarks == []
    rig.wait(10)
    rig.poll(of("b", 5), of("b", 30))
    assert rig.harness.watermarks == [4, 19]
    rig.wait(10)
    rig.poll("-a")
    assert rig.harness.watermarks == [4, 19, 29]


def test_an_idle_split_does_not_hold_the_others_back() -> None:
    """C2: idleness is that of each split; the source is idle when all of them are."""
    rig = Rig(MONOTONOUS.with_idleness(100))
    rig.poll("+a", "+b", of("a", 10), of("b", 5))
    rig.wait(60)
    rig.poll(of("a", 20))
    rig.wait(60)
    rig.poll(of("a", 30))
    assert rig.harness.watermarks == [4, 29]
    assert rig.harness.idle_changes == []
    for _ in range(12):
        rig.wait(10)
        rig.poll()
    assert rig.harness.idle_changes == [True]
    rig.poll(of("b", 6))
    assert rig.harness.idle_changes == [True, False]
    assert rig.harness.watermarks == [4, 29], "b is behind what was given out"


def test_a_source_is_active_again_before_its_records_are_sent() -> None:
    """C2: others could make event time pass them meanwhile."""
    rig = Rig(MONOTONOUS.with_idleness(100))
    rig.poll("+a", of("a", 10))
    rig.wait(100)
    rig.poll()
    assert rig.harness.idle_changes == [True]
    sent = mock.Mock()
    with (
        mock.patch.object(rig.operator.output, "emit_status", sent.status),
        mock.patch.object(rig.operator.output, "collect", sent.records),
    ):
        rig.poll(of("a", 20))
    assert sent.mock_calls == [mock.call.status(False), mock.call.records(mock.ANY)]


def test_a_source_becomes_idle_though_its_reader_waits_for_longer() -> None:
    """C2: such as one that looks for new files every ten seconds."""
    rig = Rig(MONOTONOUS.with_idleness(100))
    rig.source.retry_ms = 10_000
    rig.poll(of(None, 10))
    assert rig.operator.next_timer_ms() - rig.harness.context.now_ms() == 100
    rig.wait(100)
    assert rig.operator.emit_next(100) is Emitted.NOTHING
    assert rig.harness.idle_changes == [True]
    assert rig.operator.next_timer_ms() - rig.harness.context.now_ms() == 10_000


def test_a_reader_that_waits_for_less_is_asked_before_the_source_becomes_idle() -> None:
    """C2: its next records may come in time."""
    rig = Rig(MONOTONOUS.with_idleness(100))
    rig.source.retry_ms = 20
    rig.poll(of(None, 10))
    assert rig.operator.next_timer_ms() - rig.harness.context.now_ms() == 20
    rig.wait(20)
    rig.source.script.append(of(None, 20))
    assert rig.operator.emit_next(100) is Emitted.RECORDS


def test_records_of_a_split_that_is_not_open_are_refused() -> None:
    """C2: the error tells the connector's author what to call."""
    with pytest.raises(RuntimeError, match=r"context\.open_split in add_splits"):
        Rig(MONOTONOUS).poll(of("a", 1))


class CountsPeriods(WatermarkGenerator):
    def __init__(self) -> None:
        self.highest = MIN_TIMESTAMP

    def on_event(self, value: Any, timestamp_ms: int) -> int | None:  # type: ignore[override]
        self.highest = max(self.highest, timestamp_ms)
        return None

    def on_periodic_emit(self) -> int | None:  # type: ignore[override]
        return self.highest


def test_a_periodic_generator_of_each_split_is_asked_by_the_clock() -> None:
    """C2: the lowest of their answers counts; and none is asked after the end."""
    rig = Rig(WatermarkStrategy.for_generator(CountsPeriods))
    rig.poll("+a", "+b", of("a", 10), of("b", 5))
    assert rig.harness.watermarks == []
    rig.wait(200)
    assert rig.harness.watermarks == [5]
    rig.operator.quiesce_timers()
    rig.poll(of("b", 7))
    rig.wait(200)
    assert rig.harness.watermarks == [5]


def test_a_source_waits_while_it_is_too_far_ahead() -> None:
    """C2: it reads nothing past what the job master allows, and goes on when it may."""
    rig = Rig(MONOTONOUS.with_watermark_alignment("group", 10, 50), aligned=True)
    rig.wait(0)
    assert rig.reported == [MIN_TIMESTAMP]
    rig.poll(of(None, 101), of(None, 102))
    assert len(rig.harness.output) == 1, "no limit has been set yet"
    rig.wait(50)
    assert rig.reported == [MIN_TIMESTAMP, 100]
    rig.operator.align(99)
    rig.poll()
    assert len(rig.harness.output) == 1
    rig.operator.align(100)
    rig.poll()
    assert len(rig.harness.output) == 2


def test_waiting_is_not_idleness() -> None:
    """C2: a source that is held back has records; only silence of its own counts."""
    rig = Rig(MONOTONOUS.with_idleness(100).with_watermark_alignment("group", 10, 50), aligned=True)
    rig.poll(of(None, 101))
    for _ in range(10):
        rig.wait(50)
        rig.poll()
    assert rig.reported[-1] == 100
    rig.operator.align(1000)
    rig.poll()
    assert rig.harness.idle_changes == []
    rig.wait(99)
    rig.poll()
    assert rig.harness.idle_changes == []
    for _ in range(5):
        rig.wait(50)
        rig.poll()
    assert rig.harness.idle_changes == [True]
    assert rig.reported[-1] == MAX_WATERMARK, "an idle source holds nothing up"


def test_splits_too_far_ahead_are_paused_one_by_one() -> None:
    """C2: the others of the same reader go on."""
    rig = Rig(MONOTONOUS.with_watermark_alignment("group", 10, 50), aligned=True)
    rig.operator.align(50)
    rig.poll("+a", "+b", of("a", 100), of("b", 20))
    assert rig.source.paused == {"a"}
    rig.operator.align(99)
    assert rig.source.paused == set()


def test_at_its_end_a_source_holds_nobody_back() -> None:
    """C2, F3: it reports the end of time."""
    rig = Rig(MONOTONOUS.with_watermark_alignment("group", 10, 50), aligned=True)
    rig.operator.quiesce_timers()
    assert rig.reported == [MAX_WATERMARK]


def test_a_recovered_source_that_had_finished_holds_nobody_back() -> None:
    """C2, G10: it is never opened, but says so all the same."""
    source = Scripted()
    strategy = MONOTONOUS.with_watermark_alignment("group", 10, 50)
    harness = OneInputOperatorHarness(partial(SourceOperator, source, strategy))
    reported: list[int] = []
    harness.context.report_watermark = reported.append
    harness.recover_finished()
    assert reported == [MAX_WATERMARK]


def test_a_source_says_how_late_its_records_are_and_for_how_long_there_are_none() -> None:
    rig = Rig(MONOTONOUS)
    rig.wait(100)
    assert rig.operator.measured() == {"currentEmitEventTimeLag": -1, "sourceIdleTime": 0}
    rig.poll("+a", of("a", 20, 40))
    rig.wait(30)
    assert rig.operator.measured() == {"currentEmitEventTimeLag": 60, "sourceIdleTime": 30}
    rig.source.script.append(of("a", 120))
    rig.operator.add_splits((), False)
    rig.operator.emit_next(100)
    assert rig.operator.measured() == {"currentEmitEventTimeLag": 10, "sourceIdleTime": 0}
