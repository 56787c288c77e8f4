"""Real servers of RabbitMQ, Mosquitto and NATS on ports of loopback, which tests kill, suspend and start again.

Programs are those on the path, or below `SERVER_CACHE` (by default `~/.cache/test-servers`): `rabbitmq/root` and
`mosquitto-*/run` unpacked from Debian's packages, `nats/nats-server` built by `go install`. Tests of servers that are
not there are skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.servers.ports import free_port

_WAIT_S = 60.0
CACHE = Path(os.environ.get("SERVER_CACHE", Path.home() / ".cache/test-servers"))


class QueueServer:
    """A server in a process group of its own."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start(self) -> None:
        """Return when it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=self.environment(), start_new_session=True
            )
        deadline = time.monotonic() + _WAIT_S
        while not self.answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()[-4000:]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """As by kill -9."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """As by an operator, who lets it write what it has."""
        if self._process is not None:
            self._signal(signal.SIGTERM)
            self._process.wait()
            self._process = None

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)


class RabbitServer(QueueServer):
    """RabbitMQ. It has a port mapper for Erlang's nodes of its own, which outlives its kills."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.uri = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self._root = CACHE / "rabbitmq/root"
        self._mapper_port, self._node_port = free_port(), free_port()
        self._mapper: subprocess.Popen[bytes] | None = None
        (directory / "enabled_plugins").write_text("[].\n")
        (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")

    @staticmethod
    def is_there() -> bool:
        return (CACHE / "rabbitmq/done").exists()

    def command(self) -> list[str]:
        (scripts,) = (self._root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin")
        return [str(scripts / "rabbitmq-server")]

    def environment(self) -> dict[str, str]:
        directory, home = self.directory, next((self._root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        return {
            **os.environ,
            "PATH": f"{self._root}/usr/lib/erlang/bin:{os.environ['PATH']}",
            "HOME": str(directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log-files"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
            ),
            "RABBITMQ_HOME": str(home),
        }

    def start(self) -> None:
        if self._mapper is None:
            self._mapper = subprocess.Popen(
                [str(self._root / "usr/lib/erlang/bin/epmd")], env=self.environment(), start_new_session=True
            )
        super().start()

    def answers(self) -> bool:
        import pika

        with suppress(Exception):
            pika.BlockingConnection(pika.URLParameters(self.uri)).close()
            return True
        return False

    @contextmanager
    def channel(self) -> Iterator[Any]:
        import pika

        connection = pika.BlockingConnection(pika.URLParameters(self.uri))
        try:
            yield connection.channel()
        finally:
            with suppress(Exception):
                connection.close()

    def close(self) -> None:
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()


class MosquittoServer(QueueServer):
    """Mosquitto, which keeps sessions and queued messages when it is stopped, not when it is killed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        lines = [f"listener {self.port} 127.0.0.1", "allow_anonymous true", "persistence true",
                 f"persistence_location {directory}/", "max_queued_messages 0", "max_inflight_messages 0",
                 "user root"]  # fmt: skip
        (directory / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    @staticmethod
    def find() -> list[str] | None:
        if (program := shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")) is not None:
            return [program]
        for run in sorted(CACHE.glob("mosquitto-*/run")):
            return [str(run), "usr/sbin/mosquitto"]
        return None

    @staticmethod
    def is_there() -> bool:
        return MosquittoServer.find() is not None

    def command(self) -> list[str]:
        return [*(self.find() or []), "-c", str(self.directory / "mosquitto.conf")]

    close = QueueServer.kill


class NatsServer(QueueServer):
    """NATS with JetStream."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.url = f"nats://127.0.0.1:{self.port}"

    @staticmethod
    def find() -> str | None:
        return shutil.which("nats-server") or shutil.which(str(CACHE / "nats/nats-server"))

    @staticmethod
    def is_there() -> bool:
        return NatsServer.find() is not None

    def command(self) -> list[str]:
        return [str(self.find()), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.directory)]

    close = QueueServer.kill


@contextmanager
def _server(kind: Callable[[Path], Any], library: str, extra: str, advice: str) -> Iterator[Any]:
    pytest.importorskip(library, reason=f"{library} is not installed: pip install 'penstock-streams[{extra}]'")
    if not kind.is_there():  # type: ignore[attr-defined]
        pytest.skip(advice)
    with tempfile.TemporaryDirectory(prefix=f"penstock-{extra}-", ignore_cleanup_errors=True) as name:
        server = kind(Path(name))
        try:
            server.start()
            yield server
        finally:
            server.close()


def rabbit_server() -> Any:
    """A server of RabbitMQ that answers. Skips the test where there is none."""
    advice = f"there is no RabbitMQ: unpack the packages rabbitmq-server and erlang into {CACHE}/rabbitmq/root"
    return _server(RabbitServer, "pika", "rabbitmq", advice)


def mosquitto_server() -> Any:
    """A server of MQTT that answers. Skips the test where there is none."""
    advice = f"there is no Mosquitto: install it, or unpack its packages into {CACHE}/mosquitto-*"
    return _server(MosquittoServer, "paho.mqtt.client", "mqtt", advice)


def nats_server() -> Any:
    """A server of NATS that answers. Skips the test where there is none."""
    advice = f"there is no NATS: GOBIN={CACHE}/nats go install github.com/nats-io/nats-server/v2@latest, which needs Go"
    return _server(NatsServer, "nats", "nats", advice)
