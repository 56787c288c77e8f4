"""The process of a session: `python -m penstock.cli.session.process NAME`, with its options in the environment.

It starts in this order, and releases its resources if a step fails: its name on this host; with
`high-availability.type` the leadership of its cluster id, for which it may wait; Spark, unless the target is local; the
REST server; the programs of the previous session. `DELETE /cluster` ends it, and its programs are not resumed. SIGTERM,
Ctrl-C, the death of its Spark or the election of another session end it as well; it then leaves its programs to the
next session of the cluster id, if there is high availability. In both cases the processes of its programs end.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError
from penstock.base.options import (
    CHECKPOINTING_DIR,
    EVENTS_FILE,
    EXECUTION_TARGET,
    HIGH_AVAILABILITY_TYPE,
    JOB_STORE_CAPACITY,
    JOB_STORE_EXPIRATION_MS,
    LOGS_DIR,
    REST_BIND_PORT,
    REST_PORT,
    REST_TOKEN,
    SAVEPOINT_DIR,
    UPLOAD_DIRECTORY,
)
from penstock.base.secrets import hide
from penstock.cli.client.rest_client import KnownSession, Registration
from penstock.cli.program.launch import REST_PORTS
from penstock.cli.program.reports import REPORT_VARIABLE
from penstock.cli.session.programs import SessionPrograms
from penstock.cli.session.uploads import Definitions, Uploads, cluster_directory
from penstock.drivers.directories import HeldDirectory
from penstock.drivers.global_configuration import default_settings
from penstock.drivers.leader_election import LOCK_FILE, Election, FileElection, ZooKeeperElection, ZooKeeperSettings
from penstock.drivers.logs import OUTPUT_VARIABLE, log_to_stderr_by_default
from penstock.drivers.spark.session import SharedSpark
from penstock.server.dispatcher import Dispatcher
from penstock.server.reporters.reporting import keep_looking, start_reporters
from penstock.server.rest.server import RestServer, serve
from penstock.storage.files import absolute_url

_log = logging.getLogger("penstock.session")

#: How often (s) the session checks whether its Spark is alive.
LOOK_SECONDS: Final = 1.0
#: The name under which sessions elect their leader.
ELECTION: Final = "session"


class Session:
    """A session, whose `run` is called once.

    Args:
        name: the session's name on this host.
        configuration: the session's configuration.
    """

    def __init__(self, name: str, configuration: Configuration) -> None:
        self._name = name
        self._configuration = configuration
        self._wakes = threading.Event()
        #: why it ends, unless it was asked to end for good
        self._leaves: str | None = None
        self._stops = False

    def run(self) -> int:
        """Serve until the session ends. Returns the exit code.

        Raises:
            PenstockError: if it cannot start.
        """
        with ExitStack() as stack:
            registration = Registration(self._name)
            stack.callback(registration.end)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
            temporary = HeldDirectory("penstock-session-")
            stack.callback(temporary.remove)
            directory = temporary.path
            cluster = cluster_directory(self._configuration)
            if cluster is not None:
                election = self._led(cluster)
                stack.callback(election.end, None)
            spark = self._spark(directory)
            if spark is not None:
                stack.callback(spark.stop)
            programs, dispatcher = self._programs(directory, cluster, spark)
            stack.callback(programs.leave)
            server = self._serve(dispatcher, programs)
            stack.callback(server.stop)
            programs.recover()
            self._tell(registration, server)
            self._wait(spark)
            if self._stops:
                programs.end_all()
            else:
                _log.warning("the session ends by %s, and leaves its programs", self._leaves)
        return 0 if self._stops or "signal" in str(self._leaves) else 1

    def _led(self, cluster: str) -> Election:
        """Win the election, and return it."""
        election: Election
        if self._configuration.read(HIGH_AVAILABILITY_TYPE) == "ZOOKEEPER":
            election = ZooKeeperElection(ZooKeeperSettings.of(self._configuration), ELECTION)
        else:
            election = FileElection(Path(cluster.removeprefix("file://")) / LOCK_FILE)
        election.wait(lambda line: _log.info("the session %s", line))
        election.when_lost(lambda reason: self._leave(f"the loss of its leadership: {reason}"))
        return election

    def _spark(self, directory: Path) -> SharedSpark | None:
        if self._configuration.read(EXECUTION_TARGET) == "local":
            return None
        shared = directory / "spark"
        shared.mkdir()
        return SharedSpark(self._configuration, shared)

    def _programs(
        self, directory: Path, cluster: str | None, spark: SharedSpark | None
    ) -> tuple[SessionPrograms, Dispatcher]:
        read = self._configuration.read
        capacity = read(JOB_STORE_CAPACITY)
        dispatcher = Dispatcher(capacity, read(JOB_STORE_EXPIRATION_MS) / 1000)
        uploads = read(UPLOAD_DIRECTORY)
        programs = SessionPrograms(
            self._configuration.to_dict(),
            directory,
            Uploads(directory / "uploads" if uploads is None else Path(uploads)),
            dispatcher,
            None if cluster is None else Definitions(cluster),
            spark=spark,
            remembered=max(1, capacity),
        )
        return programs, dispatcher

    def _serve(self, dispatcher: Dispatcher, programs: SessionPrograms) -> RestServer:
        start_reporters(dispatcher, self._configuration)
        server = serve(dispatcher, self._configuration, programs)
        server.context.shut_down = self._stop
        keep_looking(dispatcher)
        return server

    def _tell(self, registration: Registration, server: RestServer) -> None:
        """Publish the session's address."""
        token, log = self._configuration.read(REST_TOKEN), os.environ.get(OUTPUT_VARIABLE)
        assert token is not None, "main sets one"
        began_ms = int(time.time() * 1000)
        registration.tell(KnownSession(self._name, server.url, token, os.getpid(), began_ms, log))
        event: dict[str, Any] = {"event": "session", "name": self._name, "address": server.url}
        number = os.environ.pop(REPORT_VARIABLE, None)
        if number is None:
            print(f"Session {self._name!r} at {server.url}", flush=True)
            return
        with os.fdopen(int(number), "w") as file:
            file.write(json.dumps(event) + "\n")

    def _wait(self, spark: SharedSpark | None) -> None:
        while self._leaves is None and not self._wakes.wait(LOOK_SECONDS):
            if spark is not None and not spark.lives():
                self._leave("the end of its Spark")

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        # It interrupts the main thread anywhere, so it takes no lock, as that of an event.
        self._leaves = self._leaves or f"signal {number}"

    def _leave(self, why: str) -> None:
        self._leaves = self._leaves or why
        self._wakes.set()

    def _stop(self) -> None:
        self._stops = True
        self._wakes.set()


def session_configuration() -> Configuration:
    """Return the configuration outside of programs, with a port and a token if they are not set."""
    options = {key: setting.value for key, setting in default_settings().items()}
    configuration = Configuration.from_dict(options)
    for option in (CHECKPOINTING_DIR, SAVEPOINT_DIR, LOGS_DIR, EVENTS_FILE):
        path = configuration.read(option)
        if path is not None:  # the session's programs run in directories of their own
            configuration.set_string(option.key(), absolute_url(path))
    if configuration.read(REST_PORT) is None and configuration.read(REST_BIND_PORT) is None:
        configuration.set_string(REST_BIND_PORT.key(), REST_PORTS)
    if configuration.read(REST_TOKEN) is None:
        configuration.set_string(REST_TOKEN.key(), secrets.token_urlsafe(32))
    return configuration


def main(arguments: list[str]) -> int:
    """Run a session. Returns the exit code."""
    log_to_stderr_by_default()
    try:
        return Session(arguments[0], session_configuration()).run()
    except PenstockError as error:
        print(hide(f"error: {error}"), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
