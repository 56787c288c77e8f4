"""Tables that go into a file or a pipe are whole: no terminal says how wide a line may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.table import Table

from penstock.cli.console import result_console
from penstock.cli.main import main

LONG = "a name with more characters than a line of a small terminal has, such as that of an operator of SQL"


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    table = Table("operator", "records")
    table.add_row(LONG, "12,345")
    result_console().print(table)
    return capsys.readouterr().out


def test_a_piped_table_is_not_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    (row,) = [line for line in printed(capsys).splitlines() if "12,345" in line]
    assert LONG in row
    assert len(row) < len(LONG) + 40


def test_columns_of_the_environment_count(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert LONG not in printed(capsys)


def test_directories_of_savepoints_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    directory = tmp_path / ("nested-" * 20)
    directory.mkdir()
    result = CliRunner().invoke(main, ["state", "ls", str(directory)])
    assert str(directory) in result.output
