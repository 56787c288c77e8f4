"""Queries in two dialects at once: where Flink's SQL and DuckDB's differ, a text holds both forms."""

from __future__ import annotations

from typing import Final

_OPEN, _MIDDLE, _CLOSE = "⟦", "¦", "⟧"
_FLINK: Final = 0
_DUCKDB: Final = 1


def both(flink: str, duckdb: str) -> str:
    """A part of a text that each dialect writes in its way. Either form may hold such parts itself."""
    return f"{_OPEN}{flink}{_MIDDLE}{duckdb}{_CLOSE}"


def in_flink(text: str) -> str:
    """The text in Flink's SQL."""
    return _side(text, _FLINK)


def in_duckdb(text: str) -> str:
    """The text in DuckDB's SQL."""
    return _side(text, _DUCKDB)


def _side(text: str, wanted: int) -> str:
    parts: list[str] = []
    sides: list[int] = []
    hidden = 0
    for piece in _pieces(text):
        if piece == _OPEN:
            sides.append(_FLINK)
            hidden += wanted != _FLINK
        elif piece == _MIDDLE:
            hidden += (wanted != _DUCKDB) - (wanted != _FLINK)
            sides[-1] = _DUCKDB
        elif piece == _CLOSE:
            sides.pop()
            hidden -= wanted != _DUCKDB
        elif not hidden:
            parts.append(piece)
    return "".join(parts)


def _pieces(text: str) -> list[str]:
    """The text cut at the marks, which are pieces of their own."""
    pieces, start = [], 0
    for place, character in enumerate(text):
        if character in (_OPEN, _MIDDLE, _CLOSE):
            pieces += [text[start:place], character]
            start = place + 1
    return [*pieces, text[start:]]
