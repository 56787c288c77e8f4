"""Text from a socket, read from a server of the test's own."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from penstock.base.errors import ConfigurationError
from penstock.common import Configuration
from penstock.connectors.socket_text import RETRY_INTERVAL_MS, SocketTextSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.runtime.checkpoint.statistics import CheckpointSettings
from penstock.runtime.connector import InputStatus
from penstock.runtime.job.recovery import guarantees
from penstock.testing.connectors import SourceRun

POLLS_MAX = 10_000


class Server:
    """Listens on a free port; `send` serves the reader's present connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.connection: socket.socket | None = None

    def send(self, data: bytes) -> None:
        if self.connection is None:
            self.connection, _ = self.listener.accept()
        self.connection.sendall(data)

    def hang_up(self) -> None:
        assert self.connection is not None
        self.connection.close()
        self.connection = None

    def close(self) -> None:
        self.listener.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as one:
        yield one


class Reading:
    """A reader of the source, polled until it has as many records as the test waits for."""

    def __init__(self, source: SocketTextSource) -> None:
        self.cluster = SourceRun(source)
        self.host = self.cluster.hosts[0]
        self.step()

    def step(self) -> Any:
        found = self.cluster.poll(0, 100)
        self.cluster.deliver()
        mine = getattr(self.cluster.readers[0], "_socket", None)
        if found is InputStatus.NOTHING_AVAILABLE and mine is not None:
            select.select([mine], [], [], 0.01)  # until something arrives, or the connection stands
        return found

    def take(self, count: int) -> list[Any]:
        for _ in range(POLLS_MAX):
            if len(self.cluster.all_values) >= count:
                return self.cluster.all_values
            self.step()
        raise AssertionError(self.cluster.all_values)

    def end(self) -> list[Any]:
        for _ in range(POLLS_MAX):
            if self.step() is InputStatus.END_OF_INPUT:
                self.cluster.close()
                return self.cluster.all_values
        raise AssertionError("the source does not end")


def test_lines_are_cut_wherever_the_bytes_are(server: Server) -> None:
    """A2: a line may come in many parts, and end with the connection."""
    reading = Reading(SocketTextSource("127.0.0.1", server.port))
    reading.step()
    for part in (b"on", b"e\ntw", b"o\r\n\nthr", "\u00e4".encode()[:1], "\u00e4".encode()[1:] + b"\nlast"):
        server.send(part)
        reading.step()
    assert reading.take(4) == ["one", "two", "", "thr\u00e4"]
    server.hang_up()
    assert reading.end() == ["one", "two", "", "thr\u00e4", "last"]


def test_a_delimiter_of_several_bytes_may_be_cut_too(server: Server) -> None:
    """A2: half of it in one part and half in the next."""
    reading = Reading(SocketTextSource("127.0.0.1", server.port, "||"))
    reading.step()
    for part in (b"a|", b"|b|c|", b"|"):
        server.send(part)
        reading.step()
    assert reading.take(2) == ["a", "b|c"]
    reading.cluster.close()


def test_it_connects_again_as_often_as_it_may(server: Server) -> None:
    """A2: once a second of processing time, and each success begins the count anew."""
    reading = Reading(SocketTextSource("127.0.0.1", server.port, max_retry=1))
    for text in (b"one\n", b"two\n"):
        reading.step()
        server.send(text)
        count = 1 + len(reading.cluster.all_values)
        reading.take(count)
        server.hang_up()
        while reading.cluster.readers[0].retry_after_ms() == 10:
            assert reading.step() is not InputStatus.END_OF_INPUT
        assert reading.cluster.readers[0].retry_after_ms() == RETRY_INTERVAL_MS
        reading.host.now += RETRY_INTERVAL_MS
    server.close()
    reading.host.now += 10 * RETRY_INTERVAL_MS
    for _ in range(POLLS_MAX):
        if reading.step() is InputStatus.END_OF_INPUT:
            break
        reading.host.now += RETRY_INTERVAL_MS
    assert reading.cluster.all_values == ["one", "two"]
    assert reading.cluster.ended == {0}
    reading.cluster.close()


def test_nobody_at_the_port_ends_the_stream(server: Server) -> None:
    """A2: without retries at once."""
    server.close()
    assert Reading(SocketTextSource("127.0.0.1", server.port)).end() == []


def test_a_job_says_that_a_socket_cannot_be_replayed(server: Server) -> None:
    """J: in the lines about its guarantees, with the source's name."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).socket_text_stream("127.0.0.1", server.port).print()
    lines = guarantees(env.job_graph(), CheckpointSettings.of(env.get_configuration()))
    assert any("source 'Socket Stream' cannot be replayed" in line for line in lines)


def test_a_job_reads_a_socket(server: Server) -> None:
    """A2: until the server closes the connection."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    results = env.socket_text_stream("127.0.0.1", server.port).map(str.upper).execute_and_collect()
    server.send(b"a\nb\n")
    server.hang_up()
    assert sorted(results) == ["A", "B"]


def test_what_makes_no_sense_is_refused() -> None:
    """A2: when the program is built."""
    with pytest.raises(ConfigurationError, match="port"):
        SocketTextSource("host", 70_000)
    with pytest.raises(ConfigurationError, match="delimiter"):
        SocketTextSource("host", 1, "")
