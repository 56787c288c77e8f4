"""The program of docs/postgresql.md runs as it stands, against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.connectors.postgres.conftest import Database
from tests.examples.pages import PAGES, run_page


def test_the_program_of_the_page_runs(database: Database, tmp_path: Path) -> None:
    """G9: what the page says of exactly once holds, and of changes."""
    page = "docs/postgresql.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"POSTGRES_URL": database.url}))
