"""The program of docs/mysql.md runs as it stands, against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.connectors.mysql.conftest import Database
from tests.examples.pages import PAGES, run_page


def test_the_program_of_the_page_runs(database: Database, tmp_path: Path) -> None:
    page = "docs/mysql.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"MYSQL_URL": database.url}))
