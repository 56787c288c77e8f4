"""Warnings at the end of a program about unfinished work: pipelines never executed, jobs still running.

Only scripts warn. Notebooks and interactive interpreters do not, because their users inspect objects there. Test runs
do not, because tests build programs only to inspect them. Forked processes do not, and neither do programs that fail,
because the traceback says more. An environment may have been collected by then, so this module holds only weak
references to its sinks, and their names.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref
from typing import Final

from penstock.drivers.listener import log_to_stderr_by_default
from penstock.drivers.running_job import RunningJob
from penstock.plan.transformation import Transformation

_log = logging.getLogger("penstock.job")

_QUIET_WITH: Final = ("IPython", "pytest", "_pytest")


class Unexecuted:
    """The sinks of one environment that no job has executed yet."""

    def __init__(self) -> None:
        self._sinks: list[tuple[weakref.ref[Transformation], str]] = []
        #: whether the environment is not the program's own, but was created to plan a statement
        self.is_internal = False

    def add(self, sink: Transformation) -> None:
        """Add a sink of the program, whose name may still change."""
        if self.is_internal:
            return
        if not self._sinks:
            _left.unexecuted.append(self)
            _left.listen()
        self._sinks.append((weakref.ref(sink), sink.display_name))

    def names(self) -> str:
        """Return the names of the sinks; for collected sinks, the names at the time of `add`."""
        sinks = [(ref(), name) for ref, name in self._sinks]
        names = dict.fromkeys(name if sink is None else sink.display_name for sink, name in sinks)
        return ", ".join(map(repr, names))

    def clear(self) -> None:
        """Remove all sinks: they were executed, inspected, or dropped."""
        if self._sinks:
            self._sinks = []
            _left.unexecuted.remove(self)


class _Left:
    """The unfinished work of this process."""

    def __init__(self) -> None:
        self.unexecuted: list[Unexecuted] = []
        self.jobs: dict[RunningJob, str] = {}
        self._pid = 0

    def listen(self) -> None:
        """Register `tell` as the first exit handler, so that it runs before the handlers that end jobs and sessions."""
        self._pid = os.getpid()
        atexit.unregister(self.tell)
        atexit.register(self.tell)

    def tell(self) -> None:
        """Log warnings about unfinished work at the end of the program."""
        if os.getpid() != self._pid or _is_quiet():
            return
        unexecuted = list(self.unexecuted)
        # A job that has just ended may not have been removed yet.
        jobs = [name for job, name in list(self.jobs.items()) if not job.get_job_execution_result().done()]
        if unexecuted or jobs:
            log_to_stderr_by_default()
        for left in unexecuted:
            _log.warning(
                "the program ends, but the pipeline to %s was never executed: call env.execute()", left.names()
            )
        for name in jobs:
            _log.warning(
                "the program ends, and with it job %r, which is still running: wait for it with job.wait(), or end it "
                "with job.cancel() or job.stop_with_savepoint(...)",
                name,
            )


_left = _Left()


def watch(job: RunningJob, name: str) -> None:
    """Track a running job until its result is available."""
    _left.jobs[job] = name
    _left.listen()
    job.get_job_execution_result().add_done_callback(lambda _: _left.jobs.pop(job, None))


def _is_quiet() -> bool:
    is_interactive = hasattr(sys, "ps1") or sys.flags.interactive
    has_failed = getattr(sys, "last_value", None) is not None
    return bool(is_interactive or has_failed or any(name in sys.modules for name in _QUIET_WITH))
