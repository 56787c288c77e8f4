"""Answers questions about this process in separate threads, while it works. One at a time samples its loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from penstock.base.errors import shorten
from penstock.drivers.questions import (
    SAMPLES_MAX,
    SAMPLING_MS_MAX,
    Answer,
    AskLog,
    AskLogs,
    AskOutput,
    AskSamples,
    AskThreads,
    Question,
    Refused,
)
from penstock.drivers.stacks import Sampler, threads

_log = logging.getLogger("penstock.insight")


class Logs(Protocol):
    """The logs and the printed output that a process keeps."""

    def list(self) -> Answer: ...

    def read(self, name: str) -> Answer: ...

    def output(self) -> Answer: ...


class Answers:
    """Answers questions about this process.

    Args:
        loop: the thread that runs tasks.
        logs: the log files of the process; None if it keeps none.
    """

    def __init__(self, loop: threading.Thread, logs: Logs | None) -> None:
        self._loop = loop
        self._logs = logs
        self._sampling = threading.Lock()

    def begin(self, question: Question, done: Callable[[Answer], None]) -> None:
        """Start answering a question; another thread calls `done` with the answer."""

        def run() -> None:
            try:
                answer = self._answer(question)
            except Exception as error:  # noqa: BLE001 - whoever asks hears of it, and the worker goes on
                _log.debug("no answer to %r", question, exc_info=True)
                answer = Refused(shorten(f"{type(error).__name__}: {error}"))
            done(answer)

        threading.Thread(target=run, name="penstock-answer", daemon=True).start()

    def _answer(self, question: Question) -> Answer:
        match question:
            case AskThreads():
                return threads()
            case AskSamples(_, count, interval_ms):
                if not (0 < count <= SAMPLES_MAX and interval_ms > 0 and count * interval_ms <= SAMPLING_MS_MAX):
                    return Refused(f"{count} samples, one every {interval_ms} ms, are too many, or none")
                if not self._sampling.acquire(blocking=False):
                    return Refused("it is being sampled already")
                try:
                    return Sampler(self._loop).sample(question)
                finally:
                    self._sampling.release()
            case _ if self._logs is None:
                return Refused("it keeps no log files", is_unknown=True)
            case AskLogs():
                return self._logs.list()
            case AskLog(name):
                return self._logs.read(name)
            case AskOutput():
                return self._logs.output()
