"""The pipeline of docs/cdc-pipelines.md runs as it stands, with its events and its Python function."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cdc.programs import read_iceberg

from penstock.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cdc-pipelines.md"


def write_files(folder: Path) -> None:
    """The blocks of the page, each in the file of its kind."""
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    for kind, name in (("json", "events.jsonl"), ("yaml", "pipeline.yaml"), ("python", "taxes.py")):
        (folder / name).write_text(blocks[kind])


def test_the_pipeline_of_the_page_runs(tmp_path: Path) -> None:
    write_files(tmp_path)
    command = [sys.executable, "-m", "penstock.cli.main", "cdc", "--no-rest", "-t", "local", "pipeline.yaml"]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    columns, rows = read_iceberg(tmp_path, "ods.shop_cups")
    assert columns == ["id", "name", "price", "size", "title", "gross"]
    mug = {"id": 1, "name": "mug", "price": Decimal("3.00"), "size": 7, "title": "MUG", "gross": Decimal("3.57")}
    assert rows == [mug]
    assert read_iceberg(tmp_path, "ods.shop_jars")[1] == [{"id": 1, "name": "jam jar"}]


def test_the_dry_run_of_the_page_shows_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["cdc", "--dry-run", "pipeline.yaml"])
    assert "shop.cups → ods.shop_cups" in result.output
    assert "    gross DECIMAL(10, 2)" in result.output
