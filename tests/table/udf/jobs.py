"""Jobs of tables with functions of the program, in this process."""

from __future__ import annotations

from typing import Any

from penstock.table import EnvironmentSettings, Table, TableEnvironment

WORDS = (
    "CREATE TEMPORARY VIEW words AS SELECT * FROM (VALUES (1, 'a bb', 4.0), (2, 'c', 2.5), "
    "(3, CAST(NULL AS STRING), 1.5)) AS w (id, text, price)"
)


def environment(*options: tuple[str, str], **functions: Any) -> TableEnvironment:
    """An environment that knows `words`, and these functions by their names."""
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    made.get_config().set("execution.target", "local").set("parallelism.default", "1")
    made.get_config().set_local_timezone("Europe/Berlin")
    for key, value in options:
        made.get_config().set(key, value)
    made.execute_sql(WORDS)
    for name, function in functions.items():
        made.create_temporary_function(name, function)
    return made


def read_rows(made: TableEnvironment, query: str | Table) -> list[tuple[Any, ...]]:
    """The rows that a query gives, in the order of their text."""
    found = made.execute_sql(query) if isinstance(query, str) else query.execute()
    with found.collect() as rows:
        return sorted((tuple(row) for row in rows), key=str)


def changes_of(made: TableEnvironment, query: str) -> list[str]:
    """The changes that a query gives, in order."""
    with made.execute_sql(query).collect() as rows:
        return [f"{row.get_row_kind().short_string}{list(row)}" for row in rows]
