"""Errors of a table that would recur in another attempt, so they fail the job without a restart."""

from __future__ import annotations

from penstock.base.errors import FormatError, OperationError, PenstockError


class CommitError(PenstockError, RuntimeError):
    """Raised when a file that a checkpoint names is missing, so its rows cannot be committed."""

    suppresses_restart = True


class MissingTableError(PenstockError, FileNotFoundError):
    """Raised when a table, or one of its files, does not exist."""

    suppresses_restart = True


class TableMismatchError(FormatError):
    """Raised when a table lacks columns that the source reads."""

    suppresses_restart = True


class VersionError(OperationError):
    """Raised when a version is no longer in the log, or makes changes that the source is not configured to read."""

    suppresses_restart = True


class UnsupportedTableError(OperationError, NotImplementedError):
    """Raised when a table has features that are not supported, or rules that the sink does not enforce."""

    suppresses_restart = True
