"""Queries in two languages at once: where Flink's SQL and DuckDB's differ, a text holds what each of them says."""

from __future__ import annotations

import re
from typing import Final

_BOTH: Final = re.compile("⟦([^⟦⟧¦]*)¦([^⟦⟧¦]*)⟧")


def both(flink: str, duckdb: str) -> str:
    """A part of a text that each says in its way. It holds no other such part."""
    return f"⟦{flink}¦{duckdb}⟧"


def in_flink(text: str) -> str:
    """The text as Flink takes it."""
    return _BOTH.sub(r"\1", text)


def in_duckdb(text: str) -> str:
    """The text as DuckDB takes it."""
    return _BOTH.sub(r"\2", text)
