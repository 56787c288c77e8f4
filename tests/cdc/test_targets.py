"""Targets: steps are applied once, wherever a commit breaks off, and the schema follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cdc.programs import read_iceberg
from tests.servers.postgres import PostgresServer

from penstock.base.types import RowKind
from penstock.cdc import lake_targets, sql_targets
from penstock.cdc.expressions import make_column, parse_type
from penstock.cdc.operators import TableKnown
from penstock.cdc.sinks import SinkChangeError, StagedSink, Step, TableTarget, TargetFactory
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import DataChangeEvent, TableId, TableSchema
from penstock.connectors.iceberg.tables import CatalogLoader

CUPS = TableId("shop", "cups")
SCHEMA = TableSchema(
    tuple(make_column(n, parse_type(k)) for n, k in {"id": "INT NOT NULL", "name": "STRING", "n": "INT"}.items()),
    ("id",),
)


class Context:
    """What writers and committers know of their task."""

    subtask_index, parallelism, attempt, job_id, operator_id, run = 0, 1, 0, "job", "sink", "run"
    restored_checkpoint_id, forerunners, owes_nothing = None, (), False

    def now_ms(self) -> int:
        return 1_800_000_000_000

    def count(self, name: str, increment: int = 1) -> None:
        """Not of interest."""

    def emit_to_client(self, payload: bytes) -> None:
        raise AssertionError


def insert(*row: Any) -> DataChangeEvent:
    return DataChangeEvent(CUPS, RowKind.INSERT, None, row)


def delete(*row: Any) -> DataChangeEvent:
    return DataChangeEvent(CUPS, RowKind.DELETE, row, None)


def update(before: Any, after: Any) -> DataChangeEvent:
    return DataChangeEvent(CUPS, RowKind.UPDATE_AFTER, before, after)


#: Two checkpoints. Delta Lake cannot drop or rename columns.
FIRST = [
    events.CreateTableEvent(CUPS, SCHEMA),
    insert(1, "mug", 1),
    insert(2, "jar", 2),
    insert(3, "pot", None),
    update((1, "mug", 1), (1, "cup", 1)),
    events.AddColumnEvent(CUPS, make_column("x", parse_type("DECIMAL(6, 2)"))),
    delete(2, "jar", 2, None),
    update((3, "pot", None, None), (4, "pot", 5, None)),
]
SECOND = [
    events.AlterColumnTypeEvent(CUPS, make_column("n", parse_type("BIGINT"))),
    insert(5, "tea", 1 << 40, None),
    events.DropColumnEvent(CUPS, "x"),
    events.RenameColumnEvent(CUPS, "name", "title"),
    insert(6, "can", 6),
]
ROWS = [(1, "cup", 1), (4, "pot", 5), (5, "tea", 1 << 40), (6, "can", 6)]
LAST = [events.TruncateTableEvent(CUPS), insert(7, "x", 7, None), events.DropTableEvent(CUPS)]


def stage(*checkpoints: Sequence[Any]) -> list[list[Step]]:
    """The steps of the table in each checkpoint, from one writer."""
    writer: Any = StagedSink(None).create_writer(Context())  # type: ignore[arg-type]
    staged = []
    for values in checkpoints:
        writer.write_batch(list(values), None)
        staged.append([step for table in writer.prepare_commit() for step in table.steps])
    return staged


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    from tests.servers.postgres import postgres_server

    with postgres_server() as server:
        yield server


@pytest.fixture(params=["iceberg", "delta", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, TargetFactory, Any]:
    """A kind of target, how to open it, and a function that returns its names and rows; None without the table."""
    if request.param == "iceberg":
        loader = CatalogLoader.of("test", {"type": "hadoop", "warehouse": f"{tmp_path}/lake"})

        def read_lake() -> Any:
            columns, rows = read_iceberg(tmp_path, "shop.cups")
            return columns, sorted(tuple(row[name] for name in columns) for row in rows)

        return "iceberg", lake_targets.IcebergTargets(loader), read_lake
    if request.param == "delta":

        def read_delta() -> Any:
            from deltalake import DeltaTable

            table = DeltaTable(f"{tmp_path}/delta/shop/cups").to_pyarrow_table()
            return table.schema.names, sorted(tuple(row.values()) for row in table.to_pylist())

        return "delta", lake_targets.DeltaTargets(f"{tmp_path}/delta"), read_delta
    server: PostgresServer = request.getfixturevalue("postgres")
    database = server.new_database()

    def read_postgres() -> Any:
        names = server.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'shop' AND table_name = 'cups' "
            "ORDER BY ordinal_position",
            database,
        )
        return [name for (name,) in names], sorted(server.execute("SELECT * FROM shop.cups", database))

    url = f"postgresql://127.0.0.1:{server.port}/{database}"
    return "postgres", sql_targets.SqlTargets(sql_targets.Postgres(url, "postgres")), read_postgres


def opened(factory: TargetFactory) -> TableTarget:
    return factory.open(Context())


def test_a_commit_that_breaks_off_anywhere_is_completed_by_the_next(place: tuple[str, Any, Any]) -> None:
    kind, factory, read = place
    checkpoints = [FIRST] if kind == "delta" else [FIRST, SECOND]
    staged = stage(*checkpoints)
    steps = [step for checkpoint in staged for step in checkpoint]
    done: list[Step] = []
    for step in steps:
        # Each step is committed, and then everything before it once more, as after a failure that hid the answer.
        done.append(step)
        target = opened(factory)
        target.apply(CUPS, [step], False)
        target.close()
        target = opened(factory)
        target.apply(CUPS, done, True)
        target.close()
    names, rows = read()
    if kind == "delta":
        assert (names, rows) == (["id", "name", "n", "x"], [(1, "cup", 1, None), (4, "pot", 5, None)])
    else:
        assert (names, rows) == (["id", "title", "n"], ROWS)


def test_a_dropped_table_stays_dropped_and_a_new_one_stays(place: tuple[str, Any, Any]) -> None:
    _, factory, read = place
    again = [events.CreateTableEvent(CUPS, SCHEMA), insert(9, "new", 9)]
    first, second, third = stage(FIRST, LAST, again)
    target = opened(factory)
    for steps in (first, second, third):
        target.apply(CUPS, steps, False)
        target.apply(CUPS, steps, True)
    target.apply(CUPS, [*first, *second, *third], True)
    target.close()
    assert read() == (["id", "name", "n"], [(9, "new", 9)])


def test_a_table_that_exists_gets_the_columns_that_it_lacks(place: tuple[str, Any, Any]) -> None:
    _, factory, read = place
    (narrow,) = stage([events.CreateTableEvent(CUPS, TableSchema(SCHEMA.columns[:2], ("id",))), insert(1, "mug")])
    target = opened(factory)
    target.apply(CUPS, narrow, False)
    context = Context()
    context.run = "another"
    writer: Any = StagedSink(factory).create_writer(context)
    writer.write_batch([events.CreateTableEvent(CUPS, SCHEMA), insert(2, "jar", 2)], None)
    (steps,) = writer.prepare_commit()
    target.apply(CUPS, steps.steps, False)
    target.close()
    assert read() == (["id", "name", "n"], [(1, "mug", None), (2, "jar", 2)])


def test_truncation_keeps_its_place_among_the_rows(place: tuple[str, Any, Any]) -> None:
    _, factory, read = place
    (steps,) = stage([*FIRST[:4], events.TruncateTableEvent(CUPS), insert(7, "x", 7)])
    target = opened(factory)
    target.apply(CUPS, steps, False)
    target.apply(CUPS, steps, True)
    target.close()
    assert read() == (["id", "name", "n"], [(7, "x", 7)])


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (
            [events.CreateTableEvent(CUPS, TableSchema(SCHEMA.columns))],
            "has no primary key.*primary-keys of a transform",
        ),
        ([TableKnown(CUPS, SCHEMA), insert(None, "mug", 1)], "has NULL in its key"),
        (
            [
                TableKnown(
                    CUPS, TableSchema((SCHEMA.columns[0], make_column("n", parse_type("INT NOT NULL"))), ("id",))
                ),
                insert(1, None),
            ],
            "no value for column 'n', which is NOT NULL",
        ),
    ],
)
def test_rows_that_a_target_could_not_take_fail_before_anything_is_committed(values: list[Any], error: str) -> None:
    with pytest.raises(SinkChangeError, match=error):
        stage(values)
