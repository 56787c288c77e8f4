"""Questions to workers and their answers, frame by frame: what comes too late, twice or unasked counts for nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from penstock.base.errors import OperationError, ProtocolError
from penstock.drivers.inspection import ANSWER_BYTES_MAX, Answer, AskLog, AskThreads, FileText, Question, Refused
from penstock.drivers.spark.heartbeats import HeartbeatAnswers
from penstock.drivers.spark.job_master import WAITING_MAX, WorkerQuestions, parse_question_number
from penstock.runtime.protocol import Heartbeat
from penstock.testing import VirtualClock
from penstock.wire.buffers import MessageCodec

FRAME_BYTES = 4096


class Rig:
    """The master's side, and a worker that answers when it is told to."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.sent: list[bytes] = []
        self.begun: list[tuple[Question, Callable[[Answer], None]]] = []
        self.wakes = 0
        self.master = WorkerQuestions(lambda _, frame: self.sent.append(frame), FRAME_BYTES, self.clock)
        self.worker = HeartbeatAnswers(lambda *what: self.begun.append(what), self._wake, FRAME_BYTES)

    def _wake(self) -> None:
        self.wakes += 1

    def ask(self, question: Question | None = None) -> Future[Answer]:
        future: Future[Answer] = Future()
        self.master.ask("w", question or AskThreads(), future, 1_000)
        return future

    def answer(self, answer: Answer) -> list[bytes]:
        """Let the worker answer the last question; its frames."""
        self.worker.on_frame(self.sent[-1])
        self.begun[-1][1](answer)
        frames = list(self.worker.frames)
        self.worker.frames.clear()
        return frames

    def deliver(self, frames: list[bytes]) -> None:
        for frame in frames:
            self.master.on_frame("w", frame)


def test_an_answer_goes_to_its_question() -> None:
    rig = Rig()
    future = rig.ask(AskLog("w.log"))
    frames = rig.answer(FileText(b"line"))
    assert rig.begun[0][0] == AskLog("w.log")
    assert rig.wakes == 1
    rig.deliver(frames)
    assert future.result(0) == FileText(b"line")


def test_a_long_answer_comes_in_several_frames() -> None:
    rig = Rig()
    future = rig.ask()
    answer = FileText(b"x" * 3 * FRAME_BYTES)
    frames = rig.answer(answer)
    assert len(frames) == 4
    assert all(len(frame) <= FRAME_BYTES for frame in frames)
    rig.deliver(frames)
    assert future.result(0) == answer


def test_an_answer_over_the_limit_is_not_sent() -> None:
    rig = Rig()
    future = rig.ask()
    rig.deliver(rig.answer(FileText(b"x" * (ANSWER_BYTES_MAX + 1))))
    answer = future.result(0)
    assert isinstance(answer, Refused)
    assert "FileText message has" in answer.reason


def test_one_question_is_out_at_a_time() -> None:
    rig = Rig()
    first, second = rig.ask(), rig.ask(AskLog())
    assert len(rig.sent) == 1
    rig.deliver(rig.answer(Refused("one")))
    assert (first.result(0), second.done(), len(rig.sent)) == (Refused("one"), False, 2)
    rig.deliver(rig.answer(Refused("two")))
    assert second.result(0) == Refused("two")
    assert rig.master.next_deadline() is None


def test_no_more_than_a_few_wait_for_a_worker() -> None:
    rig = Rig()
    for _ in range(WAITING_MAX):
        rig.ask()
    with pytest.raises(OperationError, match="worker w has too many questions to answer"):
        rig.ask().result(0)


def test_a_worker_that_does_not_answer_is_not_waited_for_and_its_late_answer_is_refused() -> None:
    rig = Rig()
    future = rig.ask()
    late = rig.answer(Refused("late"))
    assert rig.master.next_deadline() == 1_000
    rig.clock.advance(1_000)
    rig.master.on_time()
    with pytest.raises(OperationError, match="worker w gave no answer: it has not answered within 1000 ms"):
        future.result(0)
    again = rig.ask()
    with pytest.raises(ProtocolError, match="no longer waited for"):
        rig.deliver(late)
    assert not again.done()
    rig.deliver(rig.answer(Refused("in time")))
    assert again.result(0) == Refused("in time")


@pytest.mark.parametrize("spoil", [lambda frame: frame[:-1], lambda frame: frame[:-1] + b"\xc1"])
def test_an_answer_that_does_not_decode_is_none(spoil: Callable[[bytes], bytes]) -> None:
    rig = Rig()
    future = rig.ask()
    with pytest.raises(ProtocolError):
        rig.deliver([spoil(frame) for frame in rig.answer(Refused("x"))])
    with pytest.raises(OperationError, match="worker w gave no answer"):
        future.result(0)


def test_the_end_of_the_job_ends_all_waiting() -> None:
    rig = Rig()
    futures = rig.ask(), rig.ask()
    rig.master.close()
    for future in futures:
        with pytest.raises(OperationError, match="the job is over"):
            future.result(0)


def test_heartbeats_are_no_answers() -> None:
    codec: MessageCodec[Heartbeat] = MessageCodec(Heartbeat, FRAME_BYTES)
    assert parse_question_number(codec.encode(Heartbeat("w"), 0)) == 0
    rig = Rig()
    rig.ask()
    assert parse_question_number(rig.answer(Refused("x"))[0]) == 1


def test_a_worker_passes_over_what_is_no_question(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.worker.on_frame(MessageCodec[Heartbeat](Heartbeat, FRAME_BYTES).encode(Heartbeat("w"), 1 << 32))
    assert rig.begun == []
    assert "is not answered" in caplog.text
