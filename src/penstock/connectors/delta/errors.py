"""What is wrong with a table, so that another attempt of the job would meet the same: it fails at once."""

from __future__ import annotations

from penstock.base.errors import FormatError, OperationError, PenstockError


class CommitError(PenstockError, RuntimeError):
    """A file that a checkpoint names is gone, so its rows cannot be shown."""

    suppresses_restart = True


class MissingTableError(PenstockError, FileNotFoundError):
    """There is no table, or a file of it is gone."""

    suppresses_restart = True


class TableMismatchError(FormatError):
    """A table does not have the columns that are read."""

    suppresses_restart = True


class VersionError(OperationError):
    """A version cannot be followed: it is gone, or does what the source is not told to read."""

    suppresses_restart = True


class UnsupportedTableError(OperationError, NotImplementedError):
    """A table has what is not read, or rules that the sink does not keep to."""

    suppresses_restart = True
