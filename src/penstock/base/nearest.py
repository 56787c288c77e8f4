"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

#: the least similarity, from 0 to 1, for one name to be suggested for another
LIKENESS_MIN: Final = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, ignoring case, or None if no name is similar."""
    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=LIKENESS_MIN)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message, suggesting the nearest name; empty if no name is similar."""
    match = nearest(name, known)
    return "" if match is None else f"; did you mean '{match}'?"
