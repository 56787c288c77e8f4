"""Handles SIGTERM in a program that waits for its job, if `penstock.on-sigterm` says so.

Only the main thread receives the signal, and only while it waits. Another thread carries out the action, because a
handler may interrupt the main thread anywhere. A second signal has the effect that the first would have had without
this module.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import ON_SIGTERM, SAVEPOINT_DIR
from penstock.drivers.running_job import RunningJob

#: How long a program waits at its end for the log line about the outcome of its job.
LAST_WORDS_SECONDS: Final = 5.0
_log = logging.getLogger("penstock.job")


def check_on_sigterm(configuration: Configuration) -> None:
    """Raise `ConfigurationError` if SIGTERM takes a savepoint but no savepoint directory is set."""
    if configuration.read(ON_SIGTERM) == "stop-with-savepoint" and configuration.read(SAVEPOINT_DIR) is None:
        raise ConfigurationError(f"{ON_SIGTERM.key()} is stop-with-savepoint: set {SAVEPOINT_DIR.key()} too")


@contextmanager
def ends_on_sigterm(job: RunningJob, configuration: Configuration) -> Iterator[None]:
    """Stop or cancel the job on SIGTERM within the `with` block, as configured."""
    action = configuration.read(ON_SIGTERM)
    if action == "none" or threading.current_thread() is not threading.main_thread():
        yield
        return

    begun: list[threading.Thread] = []

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before)
        begun.append(threading.Thread(target=_end, args=(job, action), name="penstock-sigterm", daemon=True))
        begun[-1].start()

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is on_sigterm:
            signal.signal(signal.SIGTERM, before)
        for thread in begun:
            thread.join(LAST_WORDS_SECONDS)  # the job is over; only its last log line is missing


def _end(job: RunningJob, action: str) -> None:
    if action == "cancel":
        _log.info("SIGTERM: the job is cancelled")
        job.cancel()
        return
    _log.info("SIGTERM: the job is stopped with a savepoint")
    try:
        path = job.stop_with_savepoint(False).result()
    except Exception as error:  # noqa: BLE001 - whatever kept it from being taken
        # Kill the program, do not cancel the job: a killed job resumes from its checkpoints; a cancelled job may delete
        # them.
        _log.warning("SIGTERM: %s; the program ends as it is", error)
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        _log.info("SIGTERM: the job was stopped with savepoint %s", path)
