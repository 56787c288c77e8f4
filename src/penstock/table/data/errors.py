"""What can be wrong with a query."""

from __future__ import annotations

from penstock.base.errors import ConfigurationError, OperationError


class ValidationError(ConfigurationError):
    """A query, a table or a call of a function cannot be planned: the message says which part and why."""


class TableRuntimeError(OperationError):
    """A query met a value that one of its functions cannot take. The job fails at once: it would meet it again."""

    suppresses_restart = True
