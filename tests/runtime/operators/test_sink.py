"""The sink operator: two phases, in order."""

from functools import partial

import pytest

from penstock.runtime.connector import Committer, Sink, SinkWriter
from penstock.runtime.operators.connector import SinkOperator
from penstock.testing import OneInputOperatorHarness

LOG: list = []


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


class Writer(SinkWriter):
    def __init__(self, context, numbers):
        self.values, self.numbers = [], numbers

    def write_batch(self, values, timestamps):
        self.values += values

    def flush(self, end_of_input):
        LOG.append(("flush", end_of_input))

    def prepare_commit(self):
        values, self.values = self.values, []
        LOG.append(("prepare", values))
        return values

    def snapshot_state(self, checkpoint_id):
        return [*self.numbers, checkpoint_id]

    def close(self):
        LOG.append("writer closed")


class Commits(Committer):
    def commit(self, committables):
        LOG.append(("commit", list(committables)))

    def close(self):
        LOG.append("committer closed")


class TwoPhase(Sink):
    def create_writer(self, context):
        return Writer(context, [])

    def restore_writer(self, context, state):
        LOG.append(("restore", sorted(state)))
        return Writer(context, list(state))

    def create_committer(self, context):
        return Commits()


class OnePhase(Sink):
    def create_writer(self, context):
        return Writer(context, [])


FACTORY = partial(SinkOperator, TwoPhase())


def commits():
    return [entry[1] for entry in LOG if entry[0] == "commit"]


def test_two_phases_in_order():
    """G9: at the barrier flush and prepare; commit only when the checkpoint has completed."""
    with OneInputOperatorHarness(FACTORY) as harness:
        harness.process_batch([1, 2])
        harness.snapshot(1)
        assert LOG == [("flush", False), ("prepare", [1, 2])]
        harness.process(3)
        harness.notify_complete(1)
        assert LOG[2:] == [("commit", [1, 2])]
    assert LOG[3:] == ["writer closed", "committer closed"]


def test_completion_commits_earlier_checkpoints_too():
    """G9, G6: what was prepared for an aborted or subsumed checkpoint is committed with the next one that completes."""
    with OneInputOperatorHarness(FACTORY) as harness:
        for checkpoint_id in (1, 2, 3):
            harness.process(checkpoint_id)
            harness.snapshot(checkpoint_id)
        harness.notify_aborted(1)
        assert commits() == []
        harness.notify_complete(2)
        assert commits() == [[1, 2]]
        harness.notify_complete(2)
        harness.notify_complete(3)
        assert commits() == [[1, 2], [3]]


def test_recovery_commits_what_was_prepared():
    """G9: a restored sink first commits all that its checkpoint had prepared, then goes on from the writer's state."""
    with OneInputOperatorHarness(FACTORY) as harness:
        harness.process(1)
        harness.snapshot(7)
        harness.process(2)
        snapshot = harness.snapshot(8)
        harness.process(3)
        harness.snapshot(9)
    LOG.clear()
    restored = OneInputOperatorHarness(FACTORY)
    restored.restore(snapshot)
    restored.open()
    assert LOG == [("commit", [1, 2]), ("restore", [8])]
    restored.process(4)
    restored.snapshot(10)
    restored.notify_complete(10)
    assert commits() == [[1, 2], [4]]


def test_committables_are_dealt_out_when_rescaled():
    """D4, G9: at another parallelism every prepared committable is committed by exactly one subtask."""
    snapshots = []
    for subtask in range(3):
        with OneInputOperatorHarness(FACTORY, 3, subtask) as harness:
            harness.process(subtask)
            snapshots.append(harness.snapshot(1))
    LOG.clear()
    for subtask in range(2):
        restored = OneInputOperatorHarness(FACTORY, 2, subtask)
        restored.restore(*snapshots)
        restored.open()
    assert sorted(c for committed in commits() for c in committed) == [0, 1, 2]


def test_end_with_checkpoints():
    """F6: finish only flushes; the checkpoint after it prepares, and its completion commits."""
    with OneInputOperatorHarness(FACTORY) as harness:
        harness.process(1)
        harness.end()
        assert LOG == [("flush", True)]
        harness.snapshot(1)
        harness.notify_complete(1)
    assert commits() == [[1]]


def test_end_without_checkpoints():
    """F6: when no checkpoint will come, finish commits."""
    with OneInputOperatorHarness(FACTORY, checkpointing=False) as harness:
        harness.process(1)
        harness.end()
        assert LOG == [("flush", True), ("prepare", [1]), ("commit", [1])]


def test_close_without_finish_commits_nothing():
    """F4: a sink that is cancelled or fails throws away what was not prepared."""
    for checkpointing in (True, False):
        with OneInputOperatorHarness(FACTORY, checkpointing=checkpointing) as harness:
            harness.process(1)
    assert commits() == []
    assert LOG == ["writer closed", "committer closed"] * 2


def test_sink_without_committer():
    """G9: a sink that writes straight through works without a committer, and restores its writer."""
    with OneInputOperatorHarness(partial(SinkOperator, OnePhase())) as harness:
        harness.process(1)
        harness.snapshot(1)
        harness.notify_complete(1)
        harness.end()
    assert LOG[-1] == "writer closed"


def test_committer_is_closed_when_the_writer_cannot_be():
    """F4: an error in closing the writer does not leave the committer open."""

    class Broken(TwoPhase):
        def create_writer(self, context):
            writer = Writer(context, [])
            writer.close = lambda: 1 / 0  # type: ignore[method-assign]
            return writer

    harness = OneInputOperatorHarness(lambda: SinkOperator(Broken()))
    harness.open()
    with pytest.raises(ZeroDivisionError):
        harness.close()
    assert LOG == ["committer closed"]


def test_close_before_open():
    """F4: a sink that never began can be closed."""
    SinkOperator(TwoPhase()).close()
    assert LOG == []


def test_recovery_of_a_finished_sink_commits_what_was_prepared():
    """G9, G10: a sink that had finished before the restored checkpoint only commits what that holds; nothing is written
    any more. A further recovery from the same checkpoint may commit it again."""
    with OneInputOperatorHarness(FACTORY) as harness:
        harness.process_batch([1, 2])
        harness.end()
        snapshot = harness.snapshot(1)
    for attempt in (1, 2):
        LOG.clear()
        finished = OneInputOperatorHarness(FACTORY, attempt=attempt)
        finished.restore(snapshot)
        finished.recover_finished()
        finished.close()
        assert LOG == [("commit", [1, 2]), "committer closed"]
        assert finished.output == []
        assert finished.watermarks == []
