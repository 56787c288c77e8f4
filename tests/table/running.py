"""Runs one query over tables of rows, in this process: `run("SELECT SUM(a) FROM t", t=Rows({"a": INT}, [...]))`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from tests.table.planned import manager_of, plan_query

from penstock.common import Configuration
from penstock.connectors.collection import ColumnsSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT, Scan
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import plan_options
from penstock.sql.stream.rows.rows import ToRowsOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableReader

NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})

#: a kind, such as `+I`, and the values of a row, as `penstock.sql.data.arrow` holds them
Change = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Rows:
    """A table: its columns, and its rows as changes or as values alone.

    `at_once`: how many a batch has at most. `watermark`: the clause that says it, if the table has event time. `key`:
    the places of the columns of its primary key.
    """

    columns: Mapping[str, DataType]
    rows: Sequence[Change | tuple[Any, ...]] = ()
    at_once: int | None = None
    watermark: str | None = None
    key: tuple[int, ...] = ()

    def changes(self) -> list[Change]:
        """The rows with their kinds."""
        return [one if one and one[0] in SHORT else ("+I", one) for one in self.rows]

    def ddl(self, name: str) -> str:
        """The statement that makes it."""
        parts = [f"`{column}` {kind}" for column, kind in self.columns.items()]
        parts += [] if self.watermark is None else [self.watermark]
        names = list(self.columns)
        parts += [f"PRIMARY KEY ({', '.join(names[place] for place in self.key)}) NOT ENFORCED"] if self.key else []
        return f"CREATE TABLE {name} ({', '.join(parts)})"

    def reader(self) -> TableReader:
        """What reads it. A table with rows that are no inserts may have all changes."""
        rows = self.changes()
        kinds = bytes(SHORT.index(kind) for kind, _ in rows)
        arrays = [
            to_column([values[place] for _, values in rows], kind) for place, kind in enumerate(self.columns.values())
        ]
        batch = pa.RecordBatch.from_arrays(arrays, [f"c{place}" for place in range(len(arrays))])
        if not any(kinds):
            return TableReader(ColumnsSource(batch, None, self.at_once), INSERTS, key=self.key)
        return TableReader(ColumnsSource(batch, kinds, self.at_once), ALL, has_before=True, key=self.key)


@dataclass(frozen=True)
class Answer:
    """What a query gives: its columns, and its changes."""

    names: list[str]
    types: list[DataType]
    changes: list[Change] = field(default_factory=list)

    def shown(self) -> list[tuple[Any, ...]]:
        """The changes in order, each as its kind and its values."""
        return [(kind, *values) for kind, values in self.changes]

    def rows(self) -> list[tuple[Any, ...]]:
        """The table that the changes stand for, in the order in which its rows came."""
        return folded(self.changes)

    def net(self) -> Counter[tuple[Any, ...]]:
        """How often each row is there in the end, whatever the order of the changes."""
        found: Counter[tuple[Any, ...]] = Counter()
        for kind, values in self.changes:
            found[values] += 1 if kind in ("+I", "+U") else -1
        return Counter({values: times for values, times in found.items() if times})


def folded(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    """The rows that are there after changes. Raises `AssertionError` where a row goes that is not there."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for kind, values in changes:
        if kind in ("+I", "+U"):
            found.setdefault(hashable(values), []).append(values)
        else:
            assert found.get(hashable(values)), f"{kind}{values} takes back a row that is not there"
            found[hashable(values)].pop()
    return [values for rows in found.values() for values in rows]


def hashable(value: Any) -> Any:
    """A value as a dictionary key: equal values are one key, and NaN equals NaN."""
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    return value if value == value else "NaN"


def run(
    sql: str,
    *,
    wants_before: bool = True,
    parallelism: int = 1,
    options: Mapping[str, str] = NO_OPTIONS,
    **tables: Rows,
) -> Answer:
    """Plan a query and run it to its end. Raises what planning raises, and what makes the job fail."""
    return run_over(tables, sql, wants_before, parallelism, options)


def run_over(
    tables: Mapping[str, Rows],
    sql: str,
    wants_before: bool = True,
    parallelism: int = 1,
    options: Mapping[str, str] = NO_OPTIONS,
) -> Answer:
    """The same with tables by their names, and options of the job and of the plan."""
    of_job = {key: value for key, value in options.items() if not key.startswith("table.")}
    configuration = Configuration.from_dict({"execution.target": "local", **of_job})
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(parallelism)
    manager = manager_of(*(table.ddl(name) for name, table in tables.items()))

    def reader(node: Scan) -> TableReader:
        return tables[node.path[-1]].reader()

    plan = plan_query(sql, manager)
    planned = plan_options(options)
    planner = StreamPlanner(environment.add, reader, StreamSession(), manager.calls(), options=planned)
    stream = planner.query(plan, wants_before)
    (upstream,) = planner.step("To Rows", partial(ToRowsOperator, stream.schema.types), stream.upstreams)
    changes = [
        (SHORT[kind], values) for kind, values in DataStream(environment, (upstream,), None).execute_and_collect()
    ]
    return Answer(plan.schema.names, plan.schema.types, changes)
