"""Tasks with a broadcast input, and those ahead of them and behind them, in the unaligned modes (G5).

Such a task aligns, whatever the mode and however long it takes, so that no record on its way to it is in a checkpoint.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.runtime.task.fakes import Rig
from tests.runtime.task.gate_rig import GateRig, element_of
from tests.runtime.task.test_in_flight import ECHO, in_flight, read_channels, records, restored, taken

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.datastream.functions import KeyedBroadcastProcessFunction
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.record.process import KeyedBroadcastProcessOperator
from penstock.runtime.protocol import AcknowledgeCheckpoint, NotifyCheckpointAborted, TriggerCheckpoint
from penstock.runtime.records import Batch, CancelCheckpointMarker, CheckpointBarrier, Element
from penstock.runtime.task.channels.result_partition import BroadcastPartitioner, ForwardPartitioner

RULES = MapStateDescriptor("rules")
RECORDS = ListStateDescriptor("records")
UNALIGNED: Any = {"unaligned": True, "buffer_records": 1}
OVERTAKING = CheckpointBarrier(1, 0, is_unaligned=True)
IN_BAND = OVERTAKING.forced_aligned()
TIMED = CheckpointBarrier(1, 0, alignment_timeout_ms=50)

# --- the barrier handler ----------------------------------------------------------------------------------------------

#: `f1` is unaligned elsewhere, `t1` is aligned on for 10 ms at most elsewhere
FORCED = {
    "one channel": (1, "0:r1 0:f1 0:r2", "r1 | take 1 | r2"),
    "what waits is processed first": (1, "0.r1,r2 0.f1 0.r3 p", "r1 | r2 | take 1 | r3"),
    "channels are held back": (2, "0:f1 0:r1 1:r2 1:f1 1:r3", "r2 | take 1 | r1 | r3"),
    "the time-out passes while records come": (2, "0:t1 0:r1 1:r2 +10 1:r3 1:t1", "r2 | r3 | take 1 | r1"),
    "the time-out passes while it waits in the queue": (1, "0.r1,t1 0.r2 +20", "r1 | take 1 | r2"),
    "one upstream gave up aligning": (2, "0:t1 0:r1 1:r2 +10 1:f1", "r2 | take 1 | r1"),
    "the other one gave up first": (2, "0:f1 0:r1 1:r2 1:t1", "r2 | take 1 | r1"),
    "an ended channel": (2, "1:e 0:f1 0:r1", "take 1 | r1"),
    "the end completes": (2, "0:f1 0:r1 1:r2,e", "r2 | take 1 | r1"),
    "aborted while aligning": (2, "0:f1 0:r1 x1 1:f1 1:r2 0:f2 1:f2", "r1 | r2 | take 2"),
    "aborted before any barrier": (2, "x1 0:f1 0:r1 1:f1 1:r2", "r1 | r2"),
    "a newer one while aligning": (2, "0:f1 0:r1 1:f2 0:f2", "abort 1 | r1 | take 2"),
    "an older one late": (2, "0:f2 1:f2 0:f1 1:f1 1:r1", "take 2 | r1"),
    "cancel marker while aligning": (2, "0:f1 0:r1 1:c1 1:r2", "abort 1 | r1 | r2"),
    "a savepoint's": (2, "0:b1 0:r1 1:r2 1:b1", "r2 | take 1 | r1"),
}


@pytest.mark.parametrize("case", FORCED)
def test_forced_alignment(case: str) -> None:
    """G5: barriers that are unaligned elsewhere, or have a time-out there, are aligned on to the end."""
    channels, script, expected = FORCED[case]
    rig = GateRig(channels, "forced")
    assert rig.play(script) == expected
    assert not any(c.is_blocked for c in rig.gate.channels)
    assert rig.handler.next_deadline() is None
    assert not any(rig.in_flight.values())


@pytest.mark.parametrize(
    ("script", "goes_on_as"),
    [("0:f1 1:f1", "o1"), ("0:t1 +9 1:t1", "t1"), ("0:t1 +10 1:t1", "o1"), ("0:b1 +10 1:b1", "b1")],
)
def test_behind_the_task_the_barrier_is_what_it_was(script: str, goes_on_as: str) -> None:
    """G5: it overtakes again, or has a time-out again; when that has passed meanwhile it overtakes at once."""
    rig = GateRig(2, "forced")
    rig.play(script)
    assert rig.taken[1][0] == element_of(goes_on_as)


def test_a_time_out_of_nothing_has_passed_on_every_clock() -> None:
    """G5: a host whose clock is behind the job master's passes an unaligned barrier on as one."""
    rig = GateRig(1, "forced")
    rig.gate.on_buffer(rig.gate.channels[0].channel, [CheckpointBarrier(1, 5_000, is_unaligned=True).forced_aligned()])
    rig.drain()
    assert rig.taken[1][0].is_unaligned


# --- the task ---------------------------------------------------------------------------------------------------------


class Pairs(KeyedBroadcastProcessFunction):
    """Every record with every rule, once: at the later of the two."""

    def open(self, runtime_context: Any) -> None:
        self.records = runtime_context.get_list_state(RECORDS)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.records.add(value)
        for rule in list(ctx.get_broadcast_state(RULES).keys()):
            yield value, rule

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value, True)
        found: list[Any] = []
        ctx.apply_to_key_state(RECORDS, lambda key, state: found.extend((record, value) for record in state.get()))
        return found


def pairs(**options: Any) -> Rig:
    """A task with one producer of records (channel 0) and one that broadcasts rules (channel 1)."""
    operator = partial(KeyedBroadcastProcessOperator, Pairs(), lambda record: record, (RULES,))
    return Rig([operator], broadcast_inputs=1, partitioner=ForwardPartitioner(), settings=UNALIGNED, **options)


def barriers(elements: list[Element]) -> list[Element]:
    return [element for element in elements if isinstance(element, CheckpointBarrier)]


@pytest.mark.parametrize("barrier", [IN_BAND, TIMED], ids=["unaligned", "timed"])
def test_a_task_with_a_broadcast_input_has_nothing_in_flight(barrier: CheckpointBarrier) -> None:
    """G5: keyed and broadcast records ahead of the barrier are processed, however late the other barrier is; then the
    barrier overtakes the task's own output, which is captured."""
    rig = pairs(credit=1)
    rig.feed(0, barrier)
    rig.feed(0, Batch(["behind"], [0]))
    rig.feed(1, Batch(["rule"]))
    rig.advance(60)
    assert rig.outbox.of(AcknowledgeCheckpoint) == []
    assert not barriers(rig.outbox.elements())
    rig.feed(1, Batch(["another"]))
    rig.feed(1, barrier)
    state = taken(rig)
    assert read_channels(state).keys() == {"rules"}
    assert state.operator["rules"][0].items == 2
    assert state.keyed == {}
    assert barriers(rig.outbox.elements()) == [OVERTAKING]
    for channel in rig.outputs:
        rig.executor.on_credit(channel, 9)
    rig.run()
    assert records(rig.outbox.elements()) == [("behind", "rule"), ("behind", "another")]


def test_output_of_such_a_task_is_captured() -> None:
    """G5: behind the task the checkpoint is an unaligned one as ever."""
    rig = pairs(credit=0)
    rig.feed(1, Batch(["rule"]))
    rig.feed(0, Batch(["a"], [0]))
    rig.feed(0, IN_BAND)
    rig.feed(1, IN_BAND)
    assert read_channels(taken(rig)) == {"rules": 1, "out.9.0": 1}
    assert rig.outbox.elements() == [OVERTAKING]


def test_such_a_task_that_is_blocked_waits() -> None:
    """G5: the records ahead of the barrier are to be processed, for which there has to be room in the output."""
    rig = pairs(credit=0)
    rig.feed(1, Batch(["rule"]))
    for name in "abcd":
        rig.feed(0, Batch([name], [0]))
    rig.feed(0, IN_BAND)
    rig.feed(1, IN_BAND)
    assert rig.outbox.of(AcknowledgeCheckpoint) == []
    rig.executor.on_credit(rig.outputs[0], 3)
    rig.run()
    assert read_channels(taken(rig)) == {"rules": 1, "out.9.0": 1}
    assert rig.outbox.elements()[-1] == OVERTAKING


def test_such_a_task_gives_up_what_is_aborted() -> None:
    """G3, G5: as every alignment does."""
    rig = pairs()
    rig.feed(0, IN_BAND)
    rig.feed(0, Batch(["a"], [0]))
    rig.message(NotifyCheckpointAborted(rig.execution, 1))
    rig.feed(1, Batch(["rule"]))
    assert records(rig.outbox.elements()) == [("a", "rule")]
    assert rig.outbox.of(AcknowledgeCheckpoint) == []


def test_a_checkpoint_of_a_version_that_captured_there() -> None:
    """G5, G8: restored at the same parallelism, records in flight of both inputs are processed ahead of all others, and
    the next checkpoint has none of them."""
    old = restored(in_flight("in", 0, 0, Batch(["a"], [0])), in_flight("in", 1, 0, Batch(["rule"])))
    rig = pairs(restored=old)
    rig.feed(0, Batch(["b"], [0]))
    rig.feed(0, IN_BAND)
    rig.feed(1, IN_BAND)
    assert records(rig.outbox.elements()) == [("a", "rule"), ("b", "rule")]
    assert read_channels(taken(rig)) == {"rules": 1}


# --- the tasks ahead of it --------------------------------------------------------------------------------------------


def test_the_task_ahead_captures_what_it_has_for_others() -> None:
    """G5: its barrier overtakes on the one edge and keeps its place on the other, of which nothing is captured."""
    rig = Rig(
        ECHO,
        partitioner=ForwardPartitioner(),
        to_aligned=BroadcastPartitioner(),
        credit=0,
        settings=UNALIGNED,
    )
    for n in range(3):
        rig.feed(0, Batch([n]))
    rig.feed(0, OVERTAKING)
    assert read_channels(taken(rig)) == {"in.0.0": 1, "out.9.0": 2}
    assert [(channel.edge, buffer) for _, channel, buffer in rig.outbox.buffers] == [(9, [OVERTAKING])]
    for channel in (*rig.outputs, *rig.outputs_to_aligned):
        rig.executor.on_credit(channel, 9)
    rig.run()
    sent = rig.outbox.elements(rig.outputs_to_aligned[0])
    assert [e.values[0] if isinstance(e, Batch) else e for e in sent] == [0, 1, IN_BAND, 2]


def test_a_task_ahead_that_gives_up_aligning() -> None:
    """G5: at the time-out it takes its part, and sends the barrier ahead on the one edge and in its place on the
    other."""
    rig = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), to_aligned=ForwardPartitioner(), settings=UNALIGNED)
    rig.feed(0, TIMED)
    rig.feed(1, Batch(["ahead"]))
    rig.advance(50)
    assert barriers(rig.outbox.elements(rig.outputs[0])) == [OVERTAKING]
    assert barriers(rig.outbox.elements(rig.outputs_to_aligned[0])) == [IN_BAND]
    assert rig.outbox.elements(rig.outputs_to_aligned[0])[0].values == ["ahead"]


def test_a_barrier_that_was_aligned_on_in_time_keeps_its_time_out() -> None:
    """G5: only one that overtakes elsewhere says so on the edge where it may not."""
    rig = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), to_aligned=ForwardPartitioner(), settings=UNALIGNED)
    rig.feed(0, TIMED)
    rig.feed(1, TIMED)
    assert barriers(rig.outbox.elements()) == [TIMED, TIMED]


def test_a_source_ahead() -> None:
    """G5: a barrier that a source injects keeps its place, too."""
    source = partial(SourceOperator, CollectionSource([]), WatermarkStrategy.no_watermarks())
    rig = Rig([source], 0, partitioner=ForwardPartitioner(), to_aligned=BroadcastPartitioner(), settings=UNALIGNED)
    rig.message(TriggerCheckpoint(rig.execution, 1, 0))
    assert barriers(rig.outbox.elements(rig.outputs[0])) == [OVERTAKING]
    assert barriers(rig.outbox.elements(rig.outputs_to_aligned[0])) == [IN_BAND]


def test_a_checkpoint_that_is_declined_is_cancelled_on_both_edges() -> None:
    """G3, G5: or the task behind would align on it for ever."""
    rig = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), to_aligned=ForwardPartitioner(), settings=UNALIGNED)
    rig.feed(0, CancelCheckpointMarker(1))
    assert {c.edge for _, c, buffer in rig.outbox.buffers if CancelCheckpointMarker(1) in buffer} == {9, 10}
