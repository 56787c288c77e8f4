"""Errors of state access."""

from __future__ import annotations

from penstock.common.errors import PenstockError


class StateError(PenstockError):
    """State was used where it cannot be: without a key, under two types, or with a value that cannot be stored."""
