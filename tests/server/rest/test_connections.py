"""Clients that keep the server waiting: idle and slow connections, requests that wait, and their lines in the log."""

from __future__ import annotations

import logging
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.server.rest.rig import JOB, Client, Handle, a_view, serving

from penstock.connectors import http_server as connections
from penstock.connectors.http_server import ENDING_MAX, BoundedSocket
from penstock.server.rest import application
from penstock.server.rest import application as audit
from penstock.server.rest.application import PATH_CHARS_MAX, REFUSED_MAX, ROUTES, Audit, printable
from penstock.server.rest.calls.routing import Empty


@contextmanager
def connected(client: Client, count: int, sends: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections that send this and no more."""
    found = []
    try:
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", client.server.context.port), 30)
            found.append(one)
            one.sendall(sends)
        yield found
    finally:
        for one in found:
            one.close()


def is_closed(one: socket.socket) -> bool:
    """Waits until the server ends a connection; a time-out of the socket is an error."""
    try:
        while one.recv(1_000):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "sends",
    [b"", b"GET /over", b"GET /overview HTTP/1.1\r\nhost: x\r\n", b"\r\n"],
    ids=["nothing", "a line", "a head", "a blank line"],
)
def test_a_head_has_a_deadline(sends: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3: each closed by deadline."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.02)
    with serving(Handle(a_view())) as client, connected(client, 3, sends) as idle:
        assert all(map(is_closed, idle))
        assert client.get("/overview").code == 200


def test_a_body_must_not_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3."""
    monkeypatch.setattr(connections, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.02)
    head = f"POST /jobs/{JOB}/savepoints HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{".encode()
    handle = Handle(a_view())
    with serving(handle) as client, connected(client, 3, head) as paused:
        assert all(map(is_closed, paused))
        assert handle.asked == []


def test_an_answer_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines are for what the client has to do."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(connections, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.01)
    looked = threading.Event()
    waits = [replace(route, handler=lambda _: looked.wait(30) and Empty()) for route in ROUTES]
    monkeypatch.setattr(application, "ROUTES", waits)
    with serving(Handle(a_view())) as client:
        threading.Timer(0.3, looked.set).start()
        assert client.get("/overview").code == 200


def test_no_more_connections_than_the_process_can_afford(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3: 300 idle ones; the oldest make room, and a request is answered at once."""
    monkeypatch.setattr("penstock.server.rest.server.connections_max", lambda: 10)
    with serving(Handle(a_view())) as client, connected(client, 60) as idle:
        assert client.get("/overview").code == 200
        assert all(map(is_closed, idle[:40]))


def test_ended_connections_take_few_descriptors_until_they_are_closed() -> None:
    """S3: however many come in one turn of the event loop, which closes none meanwhile."""
    clients, accepted = [], []
    with BoundedSocket(socket.AF_INET, socket.SOCK_STREAM, 10) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        try:
            clients = [socket.create_connection(listener.getsockname(), 30) for _ in range(60)]
            accepted = [listener.accept()[0] for _ in range(10 + ENDING_MAX)]
            with pytest.raises(BlockingIOError):
                listener.accept()
            assert all(map(is_closed, clients[:ENDING_MAX]))
            for one in accepted[:ENDING_MAX]:
                one.close()
            accepted.append(listener.accept()[0])
        finally:
            for one in clients + accepted:
                one.close()


@pytest.mark.parametrize(
    ("limit", "due"), [(256, 64), (1024, 256), (1 << 20, 256), (16, 8), (resource.RLIM_INFINITY, 256)]
)
def test_the_bound_follows_the_limit_of_descriptors(limit: int, due: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert connections.connections_max() == due


PROGRAM = """
import socket, sys
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"execution.target": "local",
    "rest.port": "0", "execution.checkpointing.interval": "50 ms", "execution.checkpointing.dir": sys.argv[1],
    "execution.checkpointing.data-inline-threshold": "0", "execution.checkpointing.tolerable-failed-checkpoints": "0"}))
source = DataGeneratorSource(lambda i: i, None, rate_per_second=1000)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "n")
numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).filter(lambda n: False).print()
job = env.execute_async("watched")
from penstock.server.rest.server import servers
print(servers[0].context.port, flush=True)
sys.stdin.readline()
before = job.get_progress().result().checkpoints_completed
while job.get_progress().result().checkpoints_completed < before + 5:
    assert job.status().name == "RUNNING", job.status()
print("it runs", flush=True)
job.end()
"""


def test_300_idle_connections_leave_a_job_its_descriptors(tmp_path: Path) -> None:
    """S3: under `ulimit -n 256` the job goes on to take checkpoints, and REST answers."""
    command = ["bash", "-c", 'ulimit -n 256; exec "$0" -c "$1" "$2"', sys.executable, PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        port = int(program.stdout.readline())
        idle = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(300)]
        try:
            with socket.create_connection(("127.0.0.1", port), 30) as asks:
                asks.sendall(b"GET /overview HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert asks.recv(15) == b"HTTP/1.1 200 OK"
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "it runs\n"
        finally:
            for one in idle:
                one.close()
            program.stdin.close()
        assert program.wait(60) == 0


@pytest.mark.parametrize("path", ["/jars/x.py/plan", "/taskmanagers/x/thread-dump", "/jobmanager/logs/x"])
def test_requests_that_wait_do_not_keep_others_waiting(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 plans of programs under way: lists are answered."""
    free, come = threading.Event(), threading.Semaphore(0)

    def wait(_: Any) -> Empty:
        come.release()
        free.wait(60)
        return Empty()

    waiting = [replace(route, handler=wait) if route.pool != "quick" else route for route in ROUTES]
    monkeypatch.setattr(application, "ROUTES", waiting)
    with serving(Handle(a_view())) as client:
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        with connected(client, 60, head):
            for _ in range(4):
                assert come.acquire(timeout=30)
            assert client.get("/overview").code == 200
            assert client.get("/jobs/overview").code == 200
            free.set()


def test_refused_requests_leave_a_bounded_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty with paths of 50,000 characters push nothing out."""
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
    with (
        caplog.at_level(logging.INFO, "penstock"),
        serving(Handle(a_view()), configuration={"penstock.rest.token": "operators"}) as client,
    ):
        for _ in range(60):
            assert client.ask("DELETE", f"/jars/{'x' * 50_000}%0Aforged%20line").code == 401
        assert client.ask("PATCH", f"/jobs/{JOB}", headers={"authorization": "Bearer operators"}).code == 202
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.audit"]
    assert len(lines) == REFUSED_MAX + 2
    assert all(len(line) < PATH_CHARS_MAX + 100 and "\n" not in line for line in lines)
    assert lines[-1] == f"PATCH /jobs/{JOB} by operator from 127.0.0.1: 202", "what is done always leaves a line"


def test_a_later_line_counts_what_left_none(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
    now = [0.0]
    noted = Audit(lambda: now[0])
    with caplog.at_level(logging.INFO, "penstock"):
        for _ in range(REFUSED_MAX + 7):
            noted.note("POST", "/x", "nobody", "here", 401)
        now[0] += audit.PERIOD_SECONDS
        noted.note("POST", "/x", "nobody", "here", 401)
    assert caplog.messages[-2:] == ["7 more requests were refused in between", "POST /x by nobody from here: 401"]


def test_paths_are_shown_in_one_line_of_visible_characters() -> None:
    assert printable("/a\nb\x1b[31m\u202ec") == r"/a\nb\x1b[31m\u202ec"
    assert len(printable("\U0001f600" * 10_000)) <= PATH_CHARS_MAX
