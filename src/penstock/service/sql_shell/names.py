"""The names that a session knows, for completion. Names that cannot be looked up are not offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.base.errors import PenstockError
from penstock.base.options import REGISTRY
from penstock.service.sql_shell.display import OPTIONS
from penstock.table import TableEnvironment
from penstock.table.session.table_config import DML_SYNC, LOCAL_TIME_ZONE, MAX_COLUMN_WIDTH, STATE_TTL_MS
from penstock.table.sql.printing import format_path

_TABLE_OPTIONS = [option.key() for option in (DML_SYNC, LOCAL_TIME_ZONE, MAX_COLUMN_WIDTH, STATE_TTL_MS)]


class SessionNames:
    """See the module docstring, and `Names`."""

    def __init__(self, tables: TableEnvironment) -> None:
        self._tables = tables

    def catalogs(self) -> Sequence[str]:
        return self._tables.list_catalogs()

    def databases(self, catalog: str | None = None) -> Sequence[str]:
        if catalog is None:
            return self._tables.list_databases()
        return self._shown(f"SHOW DATABASES FROM {format_path((catalog,))}") if catalog in self.catalogs() else ()

    def tables(self, path: Sequence[str] = ()) -> Sequence[str]:
        return self._shown(f"SHOW TABLES FROM {format_path(tuple(path))}" if path else "SHOW TABLES")

    def columns(self, path: Sequence[str]) -> Sequence[str]:
        def found() -> list[str]:
            return self._tables.from_path(format_path(tuple(path))).get_schema().get_field_names()

        return _or_nothing(found)

    def functions(self) -> Sequence[str]:
        return self._tables.list_functions()

    def options(self) -> Sequence[str]:
        set_now = self._tables.get_config().to_map()
        return sorted({*REGISTRY, *OPTIONS, *_TABLE_OPTIONS, *set_now})

    def _shown(self, sql: str) -> list[str]:
        def found() -> list[str]:
            with self._tables.execute_sql(sql).collect() as rows:
                return [row[0] for row in rows]

        return _or_nothing(found)


def _or_nothing(lookup: Callable[[], list[str]]) -> list[str]:
    try:
        return lookup()
    except PenstockError:
        return []  # the statement reports the error when it runs
