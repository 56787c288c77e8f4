"""Quoted text in SQL: it means the same, whatever a role, a database or a URL sets."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.postgres.client import Address, connect
from penstock.connectors.postgres.text_columns import literal

OFF = "options=-c%20standard_conforming_strings%3Doff"


@pytest.mark.parametrize("text", ["back\\slash", "\\", "it's \\' or 1=1 --", "\\\\", "a'b", "\\101"])
def test_a_backslash_in_a_text_is_a_backslash(text: str, database: Any) -> None:
    """K4: with `standard_conforming_strings = off` it would begin an escape, and could end the text."""
    url = f"{database.url}{'&' if '?' in database.url else '?'}{OFF}"
    connection = connect(Address(url))
    try:
        assert connection.execute("SHOW standard_conforming_strings").fetchone() == ("on",)
        assert connection.execute(f"SELECT {literal(text)}::text").fetchone() == (text,)
    finally:
        connection.close()
