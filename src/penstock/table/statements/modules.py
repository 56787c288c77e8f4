"""LOAD, UNLOAD and USE MODULES. The only module is `core`, with all of Flink's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.table.data.errors import ValidationError
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements

CORE: Final = "core"


def _load(session: TableSession, statement: statements.LoadModule) -> TableResult:
    name = statement.name.lower()
    if statement.unloads:
        if name != CORE:
            raise ValidationError(f"No module with name '{statement.name}' exists")
        raise UnsupportedError("the module 'core' has all functions and cannot be unloaded")
    if name == CORE:
        raise ValidationError("A module with name 'core' already exists")
    raise UnsupportedError(f"there is no module '{statement.name}': Penstock has the functions of 'core' alone")


def use_modules(names: list[str]) -> None:
    """Check the module names of USE MODULES."""
    for name in names:
        if name.lower() != CORE:
            raise ValidationError(f"No module with name '{name}' exists")
        if names.count(name) > 1:
            raise ValidationError(f"Module '{name}' appears more than once")


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.LoadModule: _load
}
