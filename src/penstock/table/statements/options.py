"""SET and RESET."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.base.secrets import shown
from penstock.table.session.session import TableSession
from penstock.table.session.table_config import LOCAL_TIME_ZONE
from penstock.table.session.table_result import TableResult
from penstock.table.session.time_zones import parse_zone
from penstock.table.sql import statements
from penstock.table.statements import results


def _set(session: TableSession, statement: statements.SetOption) -> TableResult:
    if statement.resets:
        return _reset(session, statement.key)
    if statement.key is None:
        entries = sorted(shown(session.config.to_map()).items())
        return results.table([("key", results.STRING), ("value", results.STRING)], entries)
    value = statement.value or ""
    if statement.key == LOCAL_TIME_ZONE.key() and value != "default":
        parse_zone(value)
    session.config.set(statement.key, value)
    return results.done()


def _reset(session: TableSession, key: str | None) -> TableResult:
    """Reset options to the values that the environment was created with."""
    keys = list(session.config.get_configuration().to_dict()) if key is None else [key]
    for option_key in keys:
        session.config.reset(option_key)
    for option_key, value in session.first_options.items():
        if key is None or key == option_key:
            session.config.set(option_key, value)
    return results.done()


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.SetOption: _set
}
