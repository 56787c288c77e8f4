"""Short words for the patterns of this suite: `begin("a")` is a stage named a that takes events of the kind a."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.cep import AfterMatchSkipStrategy, Pattern


def kind(*kinds: str) -> Callable[[Any], bool]:
    """A condition: an event of one of these kinds."""
    return lambda event: event.kind in kinds


def begin(name: str, skip: AfterMatchSkipStrategy | None = None) -> Pattern:
    return (Pattern.begin(name) if skip is None else Pattern.begin(name, skip)).where(kind(name))


def then(pattern: Pattern, link: str, name: str) -> Pattern:
    """The next stage, by `next`, `followed_by`, …."""
    found: Pattern = getattr(pattern, link)(name).where(kind(name))
    return found
