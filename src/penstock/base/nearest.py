"""Which known name a misspelt one is nearest to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

#: how alike two names are, from 0 to 1, for one to be proposed instead of the other
LIKENESS_MIN: Final = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most alike, whatever the case of letters; None if none is alike."""
    by_folded: dict[str, str] = {}
    for one in known:
        by_folded.setdefault(one.casefold(), one)
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=LIKENESS_MIN)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that proposes the nearest name; empty if no name is near."""
    found = nearest(name, known)
    return "" if found is None else f"; did you mean '{found}'?"
