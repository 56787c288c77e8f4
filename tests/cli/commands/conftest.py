"""What the tests of commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli.fake_server import FakeServer, serving

from penstock.cli.main import main


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as fake:
        yield fake


@pytest.fixture
def penstock(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command against the server, in a directory without configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "120")

    def run(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [args[0], *args[1:], "-m", server.address])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run
