"""Printing, collecting and discarding."""

from __future__ import annotations

import pickle

import pytest

from penstock.base.errors import ProtocolError
from penstock.base.types import Row
from penstock.connectors.collect import CollectedRecords, CollectSink, DiscardingSink, PrintSink
from penstock.testing.connectors import SinkHost


def test_print_shows_the_subtask_when_there_are_several() -> None:
    for host, sink, expected in [
        (SinkHost(), PrintSink(), "a\n+I[1, ü]\n"),
        (SinkHost(2, 4), PrintSink(), "3> a\n3> +I[1, ü]\n"),
        (SinkHost(2, 4), PrintSink("words"), "words:3> a\nwords:3> +I[1, ü]\n"),
        (SinkHost(), PrintSink("words"), "words> a\nwords> +I[1, ü]\n"),
    ]:
        writer = sink.create_writer(host)
        writer.write_batch(["a", Row(1, "ü")], None)
        writer.write_batch([], None)
        assert b"".join(host.emitted).decode() == expected
        assert writer.prepare_commit() == []
        assert sink.create_committer(host) is None


def test_discarding() -> None:
    writer = DiscardingSink().create_writer(SinkHost())
    writer.write_batch([1], None)
    assert writer.prepare_commit() == []


def test_collected_records_come_once_though_commits_repeat() -> None:
    """G9: committing again after a recovery gives the client nothing twice and loses nothing."""
    sink = pickle.loads(pickle.dumps(CollectSink()))
    client = CollectedRecords()
    seen: list[int] = []
    host = SinkHost(1, 2)
    writer, committer = sink.create_writer(host), sink.create_committer(host)
    writer.write_batch([1, 2], None)
    first = writer.prepare_commit()
    state = writer.snapshot_state(1)
    writer.write_batch([3], None)  # lost with the attempt
    assert host.emitted == []
    committer.commit(first)
    second_host = SinkHost(1, 2, attempt=1)
    committer = sink.create_committer(second_host)
    committer.commit(first)
    writer = sink.restore_writer(second_host, state)
    writer.write_batch([3, 4], None)
    committer.commit(writer.prepare_commit())
    assert writer.prepare_commit() == []
    for frame in host.emitted + second_host.emitted:
        seen += client.take(frame)
    assert seen == [1, 2, 3, 4]


def test_numbers_of_attempts_never_meet() -> None:
    """G9: even when a writer is restored with the state of another subtask."""
    sink = CollectSink()
    writer = sink.create_writer(SinkHost())
    sequences = []
    for value in range(5):
        writer.write_batch([value], None)
        sequences += [committable.sequence for committable in writer.prepare_commit()]
    for state in ([], [0], [3, 1]):
        restored = sink.restore_writer(SinkHost(attempt=1), state)
        restored.write_batch([9], None)
        assert restored.prepare_commit()[0].sequence > max(sequences)


def test_immediate_collecting() -> None:
    host = SinkHost()
    writer = CollectSink(immediate=True).create_writer(host)
    writer.write_batch([1, 2], None)
    writer.write_batch([3], None)
    client = CollectedRecords()
    assert [client.take(frame) for frame in host.emitted] == [[1, 2], [3]]
    assert writer.prepare_commit() == []


def test_a_broken_frame_is_refused() -> None:
    for frame in (b"", b"\xc1", b"\x93\x01\x02\x03", b"\x92\x01\x02"):
        with pytest.raises(ProtocolError):
            CollectedRecords().take(frame)
