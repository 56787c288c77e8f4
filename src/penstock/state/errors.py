"""Errors of state access."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class StateError(PenstockError, RuntimeError):
    """State was used incorrectly: without a key, under two types, or with a value that cannot be stored."""


class StateMigrationError(StateError):
    """The state of a snapshot does not fit the program that reads it, and no restart will change that (H4)."""

    suppresses_restart = True
