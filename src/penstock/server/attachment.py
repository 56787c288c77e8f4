"""Connects the jobs of this process to observers, if there are any.

A program without observers pays one dictionary entry per job. The first job whose configuration requests REST starts
the server, and a job that names reporters starts them. They serve all jobs of the process, including running ones,
until the process ends. A job that names a directory of archives is written there at its end (`archive`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.base import lineage as lineage_options
from penstock.base import options, server_options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.drivers import running_job as job_pages
from penstock.drivers.client import submit as announcement
from penstock.drivers.running_job import RunningJob
from penstock.runtime.graph import JobGraph
from penstock.server.dispatcher import DispatchedJob, Dispatcher
from penstock.server.events import EventListener, listener_classes, subscribe_configured

if TYPE_CHECKING:
    from penstock.server.rest.calls.context import RestSettings
    from penstock.server.rest.server import RestServer

_log = logging.getLogger("penstock.rest")

_REPORTERS: Final = ("metrics.reporter", "traces.reporter")


class Attachment:
    """Keeps the running jobs of a process until an observer appears, then adds them to a dispatcher."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._running: dict[RunningJob, DispatchedJob] = {}
        self._dispatcher: Dispatcher | None = None
        self._server: RestServer | None = None
        self._is_served_elsewhere = False

    def dispatcher(self) -> Dispatcher:
        """Return the dispatcher of this process. From the first call on it knows each job that runs or begins."""
        with self._lock:
            if self._dispatcher is None:
                self._dispatcher = Dispatcher()
                for job in self._running.values():
                    if not job.has_ended:  # the thread of an ended job may not have removed it yet
                        self._dispatcher.add(job)
                self._running.clear()
            return self._dispatcher

    def is_served_elsewhere(self) -> None:
        """Disable servers in this process: the server of a session serves its jobs."""
        with self._lock:
            self._is_served_elsewhere = True

    def prepare(self, configuration: Configuration) -> None:
        """Start the server and reporters that a configuration requests, unless they run, before the job begins.

        Raises:
            ConfigurationError: if options of the REST API, of a reporter or of archives are wrong or unsafe, or an
                event listener is invalid.
            OperationError: if no port is free.
            UnsupportedError: if it requests something that Penstock lacks.
        """
        listener_classes(configuration)
        if configuration.read(lineage_options.TRANSPORT) is not None:
            from penstock.server import lineage

            lineage.check(configuration)
        if configuration.read(server_options.ARCHIVE_DIR) is not None:
            from penstock.server.history import archive

            archive.check_directory(configuration)
        with self._lock:
            if any(key.startswith(_REPORTERS) for key in configuration.key_set()):
                from penstock.server.reporters.reporting import start_reporters

                start_reporters(self.dispatcher(), configuration)
            asks = (
                configuration.read(options.REST_PORT) is not None
                or configuration.read(options.REST_BIND_PORT) is not None
            )
            if asks and self._server is not None:
                _check_tokens(configuration, self._server.settings)
            if not asks or self._server is not None:
                return
            if self._is_served_elsewhere:
                _log.warning(
                    "%s and %s are options of the session, which serves this job; the program starts no server",
                    options.REST_PORT.key(),
                    options.REST_BIND_PORT.key(),
                )
                return
            from penstock.server.rest.server import serve

            self._server = serve(self.dispatcher(), configuration)
            if not configuration.read(options.SHUTDOWN_ON_APPLICATION_FINISH):
                self._server.stay()
            from penstock.server.reporters.reporting import keep_looking

            keep_looking(self.dispatcher())

    def attach(self, job: RunningJob, graph: JobGraph, configuration: Configuration) -> None:
        """Register a job that has begun."""
        dispatched = DispatchedJob(job, graph, configuration)
        more: list[Callable[[], EventListener]] = []
        if configuration.read(lineage_options.TRANSPORT) is not None:
            from penstock.server.lineage import OpenLineageListener, build_transport

            more = [lambda: OpenLineageListener(graph, configuration, build_transport(configuration))]
        subscribe_configured(dispatched.events, job, configuration, more)
        if (directory := configuration.read(server_options.ARCHIVE_DIR)) is not None:
            from penstock.server.history import archive

            archive.archive_at_end(dispatched, directory)
        with self._lock:
            if self._server is not None:
                self._server.stop_at_exit()
            if self._dispatcher is not None:
                self._dispatcher.add(dispatched)
                return
            self._running[job] = dispatched
        job.get_job_execution_result().add_done_callback(lambda _: self._forget(job))

    def find_job_page(self, job_id: str) -> str | None:
        """Return the address of a job's page; None without a server."""
        server = self._server
        return None if server is None else f"{server.url}/#/jobs/{job_id}"

    def _forget(self, job: RunningJob) -> None:
        with self._lock:
            self._running.pop(job, None)


def _check_tokens(configuration: Configuration, settings: RestSettings) -> None:
    """Reject a token that the server does not use: it would protect nothing."""
    for option, known in ((options.REST_TOKEN, settings.token), (options.REST_READER_TOKEN, settings.reader_token)):
        if configuration.read(option) not in (None, known):
            raise ConfigurationError(
                f"{option.key()} differs from that of the REST API of this process, which began with an earlier job "
                "and serves all of its jobs: set it for the first job, too"
            )


_attachment = Attachment()
dispatcher = _attachment.dispatcher
prepare = _attachment.prepare
is_served_elsewhere = _attachment.is_served_elsewhere
announcement.observers.append(_attachment.attach)
job_pages.pages.append(_attachment.find_job_page)
