"""The worker's side of the questions that arrive on its heartbeat connection, see `worker_questions`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from penstock.base.errors import ProtocolError
from penstock.drivers.questions import ANSWER_BYTES_MAX, Answer, Question, Refused
from penstock.wire.errors import MessageTooLargeError
from penstock.wire.messages import MessageCodec

_log = logging.getLogger("penstock.spark")


class HeartbeatAnswers:
    """Receives questions and collects the frames of their answers.

    Args:
        begin: answers a question later, by calling its second argument, in any thread.
        wake: called in any thread when frames are ready.
        max_frame_bytes: the maximum size of a frame.
    """

    def __init__(
        self,
        begin: Callable[[Question, Callable[[Answer], None]], None],
        wake: Callable[[], None],
        max_frame_bytes: int,
    ) -> None:
        self._begin = begin
        self._wake = wake
        self._questions: MessageCodec[Question] = MessageCodec(Question, max_frame_bytes)
        self._answers: MessageCodec[Answer] = MessageCodec(Answer, max_frame_bytes, ANSWER_BYTES_MAX)
        self.frames: deque[bytes] = deque()

    def on_frame(self, frame: bytes) -> None:
        """Take a question; log and ignore a frame that cannot be decoded."""
        try:
            number, question = self._questions.decode(frame)
        except ProtocolError as error:
            _log.warning("a question of the job master is not answered: %s", error)
            return

        def done(answer: Answer) -> None:
            try:
                frames = self._answers.frames(answer, number)
            except MessageTooLargeError as error:
                frames = self._answers.frames(Refused(str(error)), number)
            self.frames.extend(frames)
            self._wake()

        self._begin(question, done)
