"""Runs queries FOR SYSTEM_TIME AS OF over tables that DDL describes, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from tests.table.later_lookup import LaterLookup
from tests.table.planned import create, manager_of, plan_query
from tests.table.running import Change

from penstock.base.errors import UnsupportedError
from penstock.common import Configuration
from penstock.connectors.collection import ColumnsSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.plan.transformation import Transformation
from penstock.sql.data.arrow import to_column
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT, Scan
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import Lookups
from penstock.sql.stream.rows.rows import ToRowsOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.connector import ColumnsLookup, TableLookup
from penstock.sql.tables.tables import TableReader

#: seconds since 1970 as TIMESTAMP(3) holds them
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Table:
    """`columns`: as in CREATE TABLE. Rows are changes or values alone. `answers`: how it can be asked for keys.

    `together`: how many rows are read at a time.
    """

    columns: str
    rows: Sequence[Change | tuple[Any, ...]] = ()
    is_upsert: bool = False
    answers: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    together: int = 1

    def ddl(self, name: str) -> str:
        """The statement that makes it."""
        options = ", ".join(f"'{key}' = '{value}'" for key, value in self.options.items())
        return f"CREATE TABLE {name} ({self.columns})" + (f" WITH ({options})" if options else "")

    def batch(self, scan: Scan) -> tuple[pa.RecordBatch, bytes]:
        """Its rows, and their kinds."""
        rows = [one if one[0] in SHORT else ("+I", one) for one in self.rows]
        arrays = [to_column([row[place] for _, row in rows], kind) for place, kind in enumerate(scan.schema.types)]
        columns = pa.RecordBatch.from_arrays(arrays, [f"c{place}" for place in range(len(arrays))])
        return columns, bytes(SHORT.index(kind) for kind, _ in rows)

    def reader(self, scan: Scan) -> TableReader:
        """What reads it."""
        columns, kinds = self.batch(scan)
        if not any(kinds) and not self.is_upsert:
            return TableReader(ColumnsSource(columns, None, self.together), INSERTS, key=scan.key)
        return TableReader(
            ColumnsSource(columns, kinds, self.together), ALL, not self.is_upsert, scan.key, self.is_upsert
        )

    def lookup(self, scan: Scan, key: Sequence[int]) -> TableLookup:
        """What is asked."""
        if not self.answers:
            raise UnsupportedError("Processing-time temporal join is not supported yet.")
        rows = pa.Table.from_batches([self.batch(scan)[0]])
        return TableLookup(
            tuple(key),
            partial(ColumnsLookup, rows, key) if "now" in self.answers else None,
            partial(LaterLookup, rows, tuple(key)) if "later" in self.answers else None,
        )


class Job:
    """A query that is planned over tables and views; `changes()` runs it."""

    def __init__(
        self,
        sql: str,
        tables: Mapping[str, Table],
        views: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        parallelism: int = 1,
    ) -> None:
        configuration = Configuration()
        configuration.set_string("execution.target", "local")
        self._environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        self._environment.set_parallelism(parallelism)
        manager = manager_of(*(table.ddl(name) for name, table in tables.items()))
        for view in views:
            create(manager, view)
        self.steps: list[Transformation] = []
        self.planner = StreamPlanner(
            self._add,
            lambda scan: tables[scan.path[-1]].reader(scan),
            StreamSession(),
            manager.calls(),
            lookups=Lookups(lambda scan, key: tables[scan.path[-1]].lookup(scan, key), options or {}),
        )
        self.plan = plan_query(sql, manager)
        stream = self.planner.query(self.plan, True)
        (self._upstream,) = self.planner.step("To Rows", partial(ToRowsOperator, stream.schema.types), stream.upstreams)

    def _add(self, step: Transformation) -> None:
        self.steps.append(step)
        self._environment.add(step)

    def kinds(self) -> list[str]:
        """The steps by what they are."""
        return [step.kind for step in self.steps]

    def changes(self) -> list[tuple[Any, ...]]:
        """The kind and the values of each row that comes out, in order."""
        rows = DataStream(self._environment, (self._upstream,), None).execute_and_collect()
        return [(SHORT[kind], *values) for kind, values in rows]

    def rows(self) -> list[tuple[Any, ...]]:
        """The values of rows that only come, in no order."""
        changes = self.changes()
        assert {kind for kind, *_ in changes} <= {"+I"}
        return sorted((tuple(values) for _, *values in changes), key=repr)
