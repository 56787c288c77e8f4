"""Shows a failure: the seed, the command that replays it, the world, the query, and the settings that differ."""

from __future__ import annotations

from tests.table.differential.shrink import Case
from tests.table.differential.tables import Table
from tests.table.differential.tester import Outcome
from tests.table.differential.worlds import World

_ROWS_MAX = 60


def failure_text(seed: int, number: int, outcome: Outcome, smallest: Case | None, more: str = "") -> str:
    """The report of a case that failed."""
    command = f"python -m tests.table.differential --seed {seed} --only {number}{more}"
    lines = [f"=== query {number} of seed {seed} fails; to replay it: {command}"]
    lines += [f"{failure.setting}:\n    {_indented(failure.text)}" for failure in outcome.failures]
    if smallest is None:
        return "\n".join([*lines, world_text(outcome.world)])
    lines += ["--- a smaller case", f"{smallest.failure.setting}:\n    {_indented(smallest.failure.text)}"]
    return "\n".join([*lines, world_text(smallest.world)])


def world_text(world: World) -> str:
    """The tables of a world with their rows, and its query in both dialects."""
    lines = [_table_text(table) for table in world.tables.values()]
    lines += [f"CREATE VIEW {name} AS {query}" for name, query in world.views().items()]
    return "\n".join([*lines, f"query: {world.query}", f"in DuckDB: {world.duckdb_query}"])


def _table_text(table: Table) -> str:
    columns = ", ".join(f"{column.name} {column.kind.type}" for column in table.columns)
    parts = [f"watermark {table.delay_ms} ms behind"] if table.delay_ms is not None else []
    parts += ["primary key k"] if table.key else []
    parts += ["upserts"] if table.is_upsert else ["all changes"] if table.declares_changes else ["append-only"]
    lines = [f"table {table.name} ({columns}), {', '.join(parts)}, {table.splits} splits"]
    for change in table.changes[:_ROWS_MAX]:
        values = ", ".join(map(repr, change.values))
        lines.append(f"    {change.kind} ({values}){f' in split {change.split}' if table.splits > 1 else ''}")
    more = len(table.changes) - _ROWS_MAX
    return "\n".join([*lines, *([f"    and {more} more"] if more > 0 else [])])


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n    ")
