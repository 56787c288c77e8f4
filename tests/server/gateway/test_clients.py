"""Flink's own clients at the gateway show what they show at a Flink 2.3 gateway (`flink_shows`)."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.gateway.flink_clients import (
    HERE,
    SCRIPTS,
    find_flink,
    run_jdbc,
    run_sql_client,
    without_causes,
)
from tests.server.gateway.replay import CONVERSATIONS, replay
from tests.server.gateway.rig import LOCAL, Client

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError
from penstock.cli.gateway.engine import Gateway
from penstock.server.attachment import dispatcher

TOKEN = "operators-token"
FLINK = find_flink()
needs_flink = pytest.mark.skipif(
    FLINK is None, reason="the SQL client needs Flink 2.3 in FLINK_HOME: pip install apache-flink-libraries==2.3.0"
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A gateway that wants a token. The clients send the one of FLINK_REST_CLIENT_HEADERS."""
    options = Configuration.from_dict({**LOCAL, "penstock.rest.token": TOKEN})
    with Gateway(options, dispatcher()) as gateway:
        yield gateway.server.context.port


def shown_by_flink(name: str) -> list[str]:
    return without_causes((HERE / "flink_shows" / f"{name}.txt").read_text().splitlines())


def jdbc(port: int, token: str, steps: Path | None = None) -> list[str]:
    headers = f"Authorization:Bearer {token}"
    try:
        return run_jdbc(port, headers) if steps is None else run_jdbc(port, headers, steps)
    except OperationError as error:
        pytest.skip(f"the JDBC driver cannot be fetched: {error}")


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_recorded_calls_get_what_they_get_at_flink(name: str, port: int) -> None:
    """The calls of the JDBC driver, the SQL client and dbt, and probes of all paths and types."""
    client = Client(f"http://127.0.0.1:{port}", {"authorization": f"Bearer {TOKEN}"})
    text = (HERE / "flink_shows" / "calls.txt").read_text()
    (expected,) = [part.splitlines() for part in f"\n{text}".split("\n# ")[1:] if part.startswith(f"{name}\n")]
    assert replay(client, name) == [f"# {name}", *expected[1:]]


@pytest.mark.slow
def test_a_program_of_jdbc_sees_what_it_sees_at_flink(port: int) -> None:
    """All types, NULLs, DDL, streams that are closed in the middle, errors, metadata, two results at a time."""
    assert without_causes(jdbc(port, TOKEN)) == shown_by_flink("jdbc")


@pytest.mark.slow
def test_without_the_token_jdbc_gets_nothing(port: int, tmp_path: Path) -> None:
    steps = tmp_path / "steps.txt"
    steps.write_text("execute SHOW CATALOGS\n")
    assert jdbc(port, "another-token", steps) == []
    assert jdbc(port, TOKEN, steps)[-1] == "closed true"


@needs_flink
@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_sql_client_shows_what_it_shows_at_flink(script: Path, port: int, tmp_path: Path) -> None:
    assert FLINK is not None
    lines = run_sql_client(FLINK, port, script, tmp_path, f"Authorization:Bearer {TOKEN}")
    assert without_causes(lines) == shown_by_flink(script.stem)


def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "gateway", "-t", "local", "--port", "0"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"SQL gateway at (http://127\.0\.0\.1:\d+)\n", line)
        assert found is not None, line
        client = Client(found[1])
        session = client.open()
        assert client.rows(session, "SELECT 1 + 1") == [[2]]
        client.rows(
            session,
            "CREATE TABLE endless (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1')",
        )
        client.rows(session, "CREATE TABLE sink (id BIGINT) WITH ('connector' = 'blackhole')")
        ((job_id,),) = client.rows(session, "INSERT INTO sink SELECT id FROM endless")
        # The kernel may give a signal to any thread; only the main one interrupts its wait for it.
        others = [int(thread) for thread in os.listdir(f"/proc/{process.pid}/task") if int(thread) != process.pid]
        assert ctypes.CDLL(None).tgkill(process.pid, others[0], signal.SIGTERM) == 0
        _, log = process.communicate(timeout=40)
        assert process.returncode == 0, log
        assert f"job {job_id} (insert-into_default_catalog.default_database.sink) is cancelled with the gateway" in log
    finally:
        process.kill()
        process.communicate()
