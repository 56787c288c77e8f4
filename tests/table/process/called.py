"""Process table functions under test: the operator of a call in SQL, in one or several subtasks."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from tests.table.planned import create
from tests.table.program_tables import Source

from penstock.base.configuration import Configuration
from penstock.plan.transformation import Transformation, get_factory
from penstock.runtime.columns import ColumnBatch
from penstock.sql.catalogs.catalog import Catalog
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import LocalZonedTimestampType, TimestampType
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import ProcessTableFunction
from penstock.sql.parser import parse_statement, statements
from penstock.sql.session.session import TableConfig, TableSession
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import plan_options
from penstock.sql.stream.planning.rule import name_columns
from penstock.sql.stream.rows.rows import RowKeys
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.testing.operator_harness import OneInputOperatorHarness, VirtualClock

TABLES = (
    "CREATE TABLE t (k STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)",
    "CREATE TABLE u (k STRING, word STRING)",
    "CREATE TABLE w (k STRING, orders STRING, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts)",
    "CREATE TABLE c (k STRING, product STRING)",
    "CREATE TABLE up (k STRING, n INT, PRIMARY KEY (k) NOT ENFORCED)",
    "CREATE TABLE pair (a STRING, b INT, n INT)",
)
_NS = 1_000_000
#: the kinds of changes of tables that do not only get inserts
_MODES = {"up": "I,UA,D"}


class Called:
    """The operator of a query's process table function.

    Args:
        query: the query in SQL.
        functions: the functions by name.
        options: options of the session.
    """

    def __init__(self, query: str, options: dict[str, str] | None = None, **functions: Any) -> None:
        self.transformation, self.node = plan_call(query, options, **functions)
        self._checkpoint_id = 0
        self._clock = VirtualClock()
        self.harnesses = self._open(1)

    def _open(self, parallelism: int, *snapshots: bytes) -> list[OneInputOperatorHarness]:
        factory = get_factory(self.transformation.node)
        harnesses = [
            OneInputOperatorHarness(factory, parallelism, subtask, clock=self._clock) for subtask in range(parallelism)
        ]
        for harness in harnesses:
            harness.restore(*snapshots)
            harness.open()
        return harnesses

    def rows(self, *rows: tuple[Any, ...], table: int = 0, kinds: Sequence[int] | None = None) -> None:
        """A batch of rows of a table; times are in ms."""
        batch = self._batch(rows, table, kinds)
        keys = RowKeys(self.node.tables[table].partition if self.node.tables else ()).of(batch.columns)
        for subtask, harness in enumerate(self.harnesses):
            mine = [index for index, key in enumerate(keys) if self._find_subtask(key) == subtask]
            if mine:
                harness.operator.process_batch(batch.take(pa.array(mine).to_numpy()), table)
                harness.context.keyed.settle()

    def _find_subtask(self, key: Any) -> int:
        return subtask_of_key_group(assign_key_group(key, 128), 128, len(self.harnesses))

    def _batch(self, rows: Sequence[tuple[Any, ...]], table: int, kinds: Sequence[int] | None) -> ColumnBatch:
        schema = self.node.parts[table].schema
        arrays = []
        for index, kind in enumerate(schema.types):
            values = [row[index] for row in rows]
            if isinstance(kind, TimestampType | LocalZonedTimestampType):
                values = [None if value is None else value * _NS for value in values]
            arrays.append(to_column(values, kind))
        columns = pa.RecordBatch.from_arrays(arrays, name_columns(schema))
        return ColumnBatch(columns, None, None if kinds is None else bytes(kinds))

    def watermark(self, time_ms: int) -> None:
        """Event time has come to a time."""
        for harness in self.harnesses:
            harness.watermark(time_ms)

    def wait(self, by_ms: int) -> None:
        """Processing time goes on."""
        target = self._clock.now_ms() + by_ms
        for harness in self.harnesses:
            harness.advance_processing_time(target - self._clock.now_ms())

    def recover(self, parallelism: int = 1) -> None:
        """Go on from a checkpoint, in so many subtasks."""
        self._checkpoint_id += 1
        snapshots = [harness.snapshot(self._checkpoint_id) for harness in self.harnesses]
        for harness in self.harnesses:
            harness.notify_complete(self._checkpoint_id)
            harness.close()
        self.harnesses = self._open(parallelism, *snapshots)

    def take(self) -> list[str]:
        """The rows since the last call: their kinds and values, times in ms."""
        return [_shown(record.value) for harness in self.harnesses for record in harness.take_output()]

    def close(self) -> None:
        """Close the operator."""
        for harness in self.harnesses:
            harness.close()


def _shown(row: Any) -> str:
    values = [
        round(value.replace(tzinfo=datetime.UTC).timestamp() * 1000) if isinstance(value, datetime.datetime) else value
        for value in row
    ]
    return f"{row.get_row_kind().short_string} {', '.join(map(str, values))}"


def session_of(options: dict[str, str] | None = None, **functions: Any) -> TableSession:
    """A session with the tables and these functions."""
    config = {"table.local-time-zone": "UTC", **(options or {})}
    session = TableSession(TableConfig(Configuration.from_dict(config)), Catalog())
    for ddl in TABLES:
        create(session.manager, ddl)
    for name, function in functions.items():
        session.functions.add_system(name, function)
    return session


def planner_of(session: TableSession, added: list[Transformation]) -> StreamPlanner:
    """A planner whose tables are empty."""

    def reader(scan: logical.Scan) -> Any:
        table = {"rows_before": [], "rows_after": [], "options": {}, "mode": _MODES.get(scan.path[2], "I")}
        return Source(table, False, False).reader(scan)

    return StreamPlanner(
        added.append, reader, StreamSession(), session.manager.calls(), options=plan_options(session.config.to_map())
    )


def plan_call(
    query: str, options: dict[str, str] | None = None, **functions: Any
) -> tuple[Transformation, ProcessTableFunction]:
    """The step of a query's process table function, and its node."""
    session = session_of(options, **functions)
    statement = parse_statement(query)
    assert isinstance(statement, statements.QueryStatement)
    added: list[Transformation] = []
    planner = planner_of(session, added)
    planner.query(session.manager.analyser().result(statement.query), True)
    for transformation, planned in planner.steps:
        if isinstance(planned.node, ProcessTableFunction) and transformation.kind == "Process Table Function":
            return transformation, planned.node
    raise AssertionError("the query calls no process table function")
