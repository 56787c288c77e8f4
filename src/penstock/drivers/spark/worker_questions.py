"""Questions to workers, which they answer alongside their work, on their heartbeat connections.

A frame of an answer carries the number of its question in the upper half of its own number, so it cannot be mistaken
for a heartbeat, whose number is 0, or for a late answer to an earlier question. Each worker has one open question at a
time; others wait their turn. Everything here happens in the job's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import OperationError, ProtocolError
from penstock.core.ports import Clock
from penstock.drivers.questions import ANSWER_BYTES_MAX, Answer, Question
from penstock.wire.messages import MessageCodec, MessageReceiver

_log = logging.getLogger("penstock.spark")

#: Maximum number of questions that wait for one worker.
WAITING_MAX: Final = 16
#: Bit position of the question's number in a frame's number.
NUMBER_SHIFT: Final = 32


def parse_question_number(frame: bytes) -> int:
    """Return the number of the question that a frame on a heartbeat connection answers; 0 for a heartbeat."""
    return int.from_bytes(frame[1:5], "big")


@dataclass
class _Asked:
    question: Question
    future: Future[Answer]
    timeout_ms: int
    number: int = 0
    due_ms: int = 0
    receiver: MessageReceiver[Answer] | None = None


class WorkerQuestions:
    """See the module docstring.

    Args:
        send: takes a worker's id and a frame for its heartbeat connection.
        max_frame_bytes: the maximum size of a frame.
        clock: time, for timeouts.
    """

    def __init__(self, send: Callable[[str, bytes], None], max_frame_bytes: int, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._questions: MessageCodec[Question] = MessageCodec(Question, max_frame_bytes)
        self._answers: MessageCodec[Answer] = MessageCodec(Answer, max_frame_bytes, ANSWER_BYTES_MAX)
        self._waiting: dict[str, deque[_Asked]] = {}
        self._count = 0

    def ask(self, worker_id: str, question: Question, future: Future[Answer], timeout_ms: int) -> None:
        """Ask soon; the future receives the answer, or an `OperationError`."""
        waiting = self._waiting.setdefault(worker_id, deque())
        if len(waiting) >= WAITING_MAX:
            _fail(future, f"worker {worker_id} has too many questions to answer")
            return
        waiting.append(_Asked(question, future, timeout_ms))
        if len(waiting) == 1:
            self._send_first(worker_id)

    def on_frame(self, worker_id: str, frame: bytes) -> None:
        """Process a frame of an answer.

        Raises:
            ProtocolError: if it answers no open question, or is otherwise invalid.
        """
        waiting = self._waiting.get(worker_id)
        if (
            not waiting
            or (receiver := waiting[0].receiver) is None
            or waiting[0].number != parse_question_number(frame)
        ):
            raise ProtocolError("an answer that is no longer waited for, or to no question at all")
        try:
            answer = receiver.receive(frame)
        except ProtocolError as error:
            self._end_first(worker_id, str(error))
            raise
        if answer is not None:
            self._end_first(worker_id, None, answer)

    def next_deadline(self) -> int | None:
        """Return when (ms) the next open question times out."""
        return min((waiting[0].due_ms for waiting in self._waiting.values() if waiting), default=None)

    def on_time(self) -> None:
        """Fail the questions whose answers are overdue."""
        now_ms = self._clock.steady_ms()
        for worker_id in [name for name, waiting in self._waiting.items() if waiting and waiting[0].due_ms <= now_ms]:
            self._end_first(worker_id, f"it has not answered within {self._waiting[worker_id][0].timeout_ms} ms")

    def close(self) -> None:
        """Fail all questions, because the job is over."""
        for worker_id in list(self._waiting):
            for question in self._waiting.pop(worker_id):
                _fail(question.future, f"worker {worker_id} cannot answer: the job is over")

    def _send_first(self, worker_id: str) -> None:
        self._count += 1
        first = self._waiting[worker_id][0]
        first.number, first.due_ms = self._count, self._clock.steady_ms() + first.timeout_ms
        first.receiver = MessageReceiver(self._answers, first.number << NUMBER_SHIFT)
        self._send(worker_id, self._questions.encode(first.question, first.number << NUMBER_SHIFT))

    def _end_first(self, worker_id: str, error: str | None, answer: Answer | None = None) -> None:
        waiting = self._waiting[worker_id]
        first = waiting.popleft()
        if answer is not None:
            if first.future.set_running_or_notify_cancel():
                first.future.set_result(answer)
        else:
            _fail(first.future, f"worker {worker_id} gave no answer: {error}")
        if waiting:
            self._send_first(worker_id)
        else:
            del self._waiting[worker_id]


def _fail(future: Future[Answer], reason: str) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(OperationError(reason))
