"""How a bug is planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

Mutant = Callable[[], Any]


def around(owner: Any, name: str, mutate: Callable[..., Any]) -> Any:
    """Patch a method by a function that is handed the original one first."""
    original = getattr(owner, name)

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mutate(original, self, *args, **kwargs)

    return mock.patch.object(owner, name, patched)
