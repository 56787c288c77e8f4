"""Tasks that work in step on Spark: how they find each other, and how messages get from one to another."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import zmq

from penstock.drivers.spark.handle import LOOPBACK
from penstock.drivers.spark.lockstep import Gathering, Here, LockstepPeers, MeetingPoint, PeerLostError
from penstock.drivers.spark.sockets import JobKeys, connect_client


def here(subtask: int, number: int, of: int = 3) -> tuple[bytes, Here]:
    return str(number).encode(), Here(0, of, subtask, number, f"tcp://there:{number}")


def come(gathering: Gathering, *tasks: tuple[int, int]) -> list[int]:
    """The numbers of those that are told of each other when the last one has come."""
    found: list[tuple[bytes, Here]] = []
    for task in tasks:
        assert not found
        found = gathering.add(*here(*task))
    return [one.number for _, one in found]


def test_all_are_told_when_the_last_one_has_come() -> None:
    gathering = Gathering()
    assert come(gathering, (1, 8), (0, 9), (2, 7)) == [9, 8, 7]
    assert come(gathering, (0, 12), (1, 10), (2, 11)) == [12, 10, 11]


def test_nobody_is_told_of_a_task_of_an_attempt_that_has_failed() -> None:
    """The first attempt has 7 to 9, of which 9 never came; the second one 10 to 12."""
    gathering = Gathering()
    assert come(gathering, (0, 7), (1, 8), (1, 10), (2, 11), (0, 12)) == [12, 10, 11]


def test_a_word_that_comes_late_replaces_nothing() -> None:
    gathering = Gathering()
    assert come(gathering, (0, 10), (1, 11), (0, 7), (2, 12)) == [10, 11, 12]


@pytest.fixture
def keys() -> JobKeys:
    return JobKeys.generate()


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def point(keys: JobKeys, lines: list[str]) -> Iterator[MeetingPoint]:
    point = MeetingPoint(keys, LOOPBACK, LOOPBACK, lines.append)
    yield point
    point.close()


def met(point: MeetingPoint, keys: JobKeys, count: int) -> list[LockstepPeers]:
    """So many tasks that have met."""
    peers = [LockstepPeers(subtask, keys.for_worker(), point.address, LOOPBACK) for subtask in range(count)]
    threads = [
        threading.Thread(target=one.meet, args=(Here(0, count, subtask, 7 + subtask, one.address),))
        for subtask, one in enumerate(peers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return peers


def test_values_get_from_each_to_each(point: MeetingPoint, keys: JobKeys, lines: list[str]) -> None:
    peers = met(point, keys, 3)
    for subtask, one in enumerate(peers):
        for other in {0, 1, 2} - {subtask}:
            one.send(other, 1, {"from": subtask, "to": other})
    for subtask, one in enumerate(peers):
        found = sorted(one.receive((subtask + 1) % 3) for _ in range(2))
        assert found == [(other, 1, {"from": other, "to": subtask}) for other in sorted({0, 1, 2} - {subtask})]
    peers[0].tell("superstep 1")
    for one in peers:
        one.close()
    point.close()
    assert lines == ["superstep 1"]


@pytest.mark.parametrize("size", [0, 1, 1 << 21, (1 << 21) + 1, 5_000_001])
def test_arrays_of_any_size_arrive_whole(point: MeetingPoint, keys: JobKeys, size: int) -> None:
    one, other = met(point, keys, 2)
    sent = np.arange(size, dtype=np.int64)
    one.send(1, 4, (sent, "beside it", [sent[:3]]))
    sender, number, (array, text, (few,)) = other.receive(0)
    assert (sender, number, text) == (0, 4, "beside it")
    np.testing.assert_array_equal(array, sent)
    np.testing.assert_array_equal(few, sent[:3])
    one.close()
    other.close()


def test_what_was_sent_last_arrives_though_its_sender_has_ended(point: MeetingPoint, keys: JobKeys) -> None:
    one, other = met(point, keys, 2)
    one.send(1, 1, np.zeros(4_000_000))
    closing = threading.Thread(target=one.close)
    closing.start()
    assert other.receive(0)[2].shape == (4_000_000,)
    closing.join()
    other.close()


def test_a_task_notices_that_another_one_is_gone(point: MeetingPoint, keys: JobKeys) -> None:
    one, other = met(point, keys, 2)
    other.send(0, 1, "the connections are there")
    one.send(1, 1, "both of them")
    one.receive(1)
    other.receive(0)
    other.close()
    with pytest.raises(PeerLostError, match="subtask 2 of the stage is gone"):
        one.receive(1)
    one.close()


def test_a_task_that_has_ended_well_is_missed_by_nobody(point: MeetingPoint, keys: JobKeys) -> None:
    """One ends with the last round, while another one still waits for a third that is slow."""
    quick, waiting, slow = met(point, keys, 3)
    quick.send(1, 1, "last")
    assert waiting.receive(0) == (0, 1, "last")
    quick.close()
    late = threading.Timer(1.5, slow.send, (1, 1, "at last"))
    late.start()
    assert waiting.receive(2) == (2, 1, "at last")
    late.join()
    waiting.close()
    slow.close()


def test_who_does_not_hold_the_keys_is_not_heard(point: MeetingPoint, keys: JobKeys) -> None:
    stranger = JobKeys.generate().for_worker()
    one, other = met(point, keys, 2)
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    connect_client(socket, stranger, keys.worker_public, other.address, 1 << 20)
    socket.send(b"a pickle")
    one.send(1, 1, "heard")
    assert other.receive(0) == (0, 1, "heard")
    context.destroy(linger=0)
    one.close()
    other.close()
