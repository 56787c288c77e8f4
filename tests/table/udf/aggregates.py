"""Aggregate functions under test, a table with event time to call them over, and the operator of a query in subtasks.

The table `t` has the columns k, v and ts, which carries the event time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from tests.table.planned import create

from penstock.base.types import Row
from penstock.common import Configuration
from penstock.connectors.collection import ColumnsSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.runtime.columns import ColumnBatch
from penstock.sql.catalogs.catalog import Catalog
from penstock.sql.catalogs.manager import CatalogManager
from penstock.sql.data.arrow import to_column
from penstock.sql.data.conversion import to_external
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import INSERTS, SHORT, Node, UserAggregateCall
from penstock.sql.stream.groups.operators import GroupAggregateOperator, TableAggregateOperator
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.rows.rows import ToRowsOperator
from penstock.sql.stream.rows.state_ttl import StreamSession, lasting
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Field
from penstock.sql.user_functions.declare import define
from penstock.sql.user_functions.definition import FunctionKind
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.table.types import DataTypes
from penstock.table.udf import AggregateFunction, TableAggregateFunction
from penstock.testing.operator_harness import OneInputOperatorHarness

TABLE = "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"
STRING, BIGINT, TIMESTAMP = DataTypes.STRING(), DataTypes.BIGINT(), DataTypes.TIMESTAMP(3)
_NS = 1_000_000


class Total(AggregateFunction[int | None, Any]):
    """The sum of numbers, and None for none."""

    def create_accumulator(self) -> Any:
        return Row(0, 0)

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        self._change(accumulator, args[0], 1)

    def retract(self, accumulator: Any, *args: Any) -> None:
        self._change(accumulator, args[0], -1)

    def _change(self, accumulator: Any, value: int | None, by: int) -> None:
        if value is not None:
            accumulator[0] += by * value
            accumulator[1] += by

    def get_value(self, accumulator: Any) -> int | None:
        return accumulator[0] if accumulator[1] else None


class Texts(AggregateFunction[str, list[str]]):
    """All values with a comma in between; it cannot take any back."""

    def create_accumulator(self) -> list[str]:
        return []

    def accumulate(self, accumulator: list[str], *args: Any) -> None:
        accumulator.append(repr(args[0]) if len(args) == 1 else repr(args))

    def get_value(self, accumulator: list[str]) -> str:
        return ",".join(accumulator)


class Greatest(TableAggregateFunction[Any, list[int]]):
    """The two greatest numbers, each with its place."""

    def create_accumulator(self) -> list[int]:
        return []

    def accumulate(self, accumulator: list[int], *args: Any) -> None:
        accumulator.append(args[0])

    def retract(self, accumulator: list[int], *args: Any) -> None:
        accumulator.remove(args[0])

    def emit_value(self, accumulator: list[int]) -> Iterator[tuple[int, int]]:
        for place, value in enumerate(sorted(accumulator, reverse=True)[:2]):
            yield value, place + 1


def manager(**functions: Any) -> CatalogManager:
    """A manager that knows `t`, and these functions by their names."""
    defined = {name: define(one, name) for name, one in functions.items()}
    made = CatalogManager(Catalog(), Session, lambda path, hidden: defined.get(path[-1].lower()))
    create(made, TABLE)
    return made


def timed_rows(plan: Node, known: CatalogManager, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """What a plan gives over rows (k, v, time in ms), each in a batch of its own, as a program sees it."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(1)
    reader = TableReader(ColumnsSource(_columns(rows, ["c0", "c1", "c2"]), None, 1), INSERTS)
    planner = StreamPlanner(environment.add, lambda scan: reader, StreamSession(), known.calls())
    stream = planner.query(plan, True)
    (upstream,) = planner.step("To Rows", partial(ToRowsOperator, stream.schema.types), stream.upstreams)
    seen = [to_external(kind, StreamSession().zone) for kind in stream.schema.types]
    return [
        tuple(convert(value) for convert, value in zip(seen, values, strict=True))
        for _, values in DataStream(environment, (upstream,), None).execute_and_collect()
    ]


def _columns(rows: Sequence[tuple[Any, ...]], names: list[str]) -> pa.RecordBatch:
    times = [row[2] * _NS if len(row) > 2 else None for row in rows]
    return pa.RecordBatch.from_arrays(
        [
            to_column([row[0] for row in rows], STRING),
            to_column([row[1] for row in rows], BIGINT),
            to_column(times, TIMESTAMP),
        ],
        names,
    )


class Groups:
    """`SELECT k, function(v) FROM t GROUP BY k` in one or several subtasks. Rows are (kind, k, v) or (k, v).

    Of a table aggregate function these are its rows. `ttl_ms`: how long state lives; 0 for ever.
    """

    def __init__(self, function: Any, retracts: bool = False, ttl_ms: int = 0, **call: Any) -> None:
        user = define(function, "f")
        types = [STRING, BIGINT, TIMESTAMP]
        made = UserAggregateCall("f", (Field(BIGINT, 1),), user.result_type, user=user, **call)
        if user.kind is FunctionKind.TABLE_AGGREGATE:
            names = ["k", *user.result_type.field_names()]  # type: ignore[attr-defined]
            make: Any = partial(TableAggregateOperator, (0,), made, types, names, retracts, StreamSession())
        else:
            make = partial(GroupAggregateOperator, (0,), (made,), types, ["k", "f"], retracts, True)
        self._make = lasting(make, ttl_ms)
        self._checkpoint_id = 0
        self.harnesses = self._opened(1)

    def _opened(self, parallelism: int, *snapshots: bytes) -> list[OneInputOperatorHarness]:
        found = [OneInputOperatorHarness(self._make, parallelism, subtask) for subtask in range(parallelism)]
        for harness in found:
            harness.restore(*snapshots)
            harness.open()
        return found

    def rows(self, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """What a batch of rows changes: kind, k and what the function gives."""
        changes = [row if row[0] in SHORT else ("+I", *row) for row in rows]
        found = []
        for subtask, harness in enumerate(self.harnesses):
            mine = [row for row in changes if self._find_subtask(row[1]) == subtask]
            if mine:
                kinds = bytes(SHORT.index(kind) for kind, *_ in mine)
                columns = _columns([row[1:] for row in mine], ["c0", "c1", "c2"])
                harness.operator.process_batch(ColumnBatch(columns, None, kinds if any(kinds) else None))
                harness.context.keyed.settle()
                records = [record.value for record in harness.take_output()]
                found += [(SHORT[one.get_row_kind().value], *one) for one in records]
        return found

    def wait(self, by_ms: int) -> None:
        """Processing time goes on."""
        for harness in self.harnesses:
            harness.advance_processing_time(by_ms)

    def last(self, *rows: tuple[Any, ...]) -> Any:
        """What the function gives after a batch of rows of one key."""
        return self.rows(*rows)[-1][-1]

    @property
    def entries(self) -> dict[str, int]:
        """How many entries each state has in the first subtask, of states that have any."""
        keyed = self.harnesses[0].context.keyed
        tables = getattr(keyed, "_tables")  # noqa: B009 - of the backend on the heap
        counts = {name: len(table.entries(None)) for name, table in tables.items()}
        return {name: count for name, count in counts.items() if count}

    def _find_subtask(self, key: Any) -> int:
        return subtask_of_key_group(assign_key_group(key, 128), 128, len(self.harnesses))

    def checkpoint(self) -> list[bytes]:
        """Take a checkpoint that completes."""
        self._checkpoint_id += 1
        snapshots = [harness.snapshot(self._checkpoint_id) for harness in self.harnesses]
        for harness in self.harnesses:
            harness.notify_complete(self._checkpoint_id)
        return snapshots

    def recover(self, parallelism: int = 1) -> None:
        """Go on from a checkpoint, in so many subtasks."""
        snapshots = self.checkpoint()
        self.close()
        self.harnesses = self._opened(parallelism, *snapshots)

    def close(self) -> None:
        """Release resources."""
        for harness in self.harnesses:
            harness.close()
