"""How sink tables follow their source tables, by schema.change.behavior."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cdc.definition import CHANGE_TYPES
from penstock.cdc.expressions import make_column, parse_type
from penstock.cdc.schemas import SchemaChangeError, SchemaEvolution, SinkTable, find_changes, widest_type
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import SchemaChangeEvent, TableId, TableSchema

SINK, CUPS, JARS = TableId("lake", "all"), TableId("shop", "cups"), TableId("shop", "jars")


def schema_of(key: str = "id", **columns: str) -> TableSchema:
    return TableSchema(tuple(make_column(name, parse_type(kind)) for name, kind in columns.items()), (key,))


def column(name: str, kind: str) -> events.Column:
    return make_column(name, parse_type(kind))


class Sink:
    """A sink table and its evolution."""

    def __init__(self, behavior: str, included: Any = CHANGE_TYPES, refused: type | None = None) -> None:
        def refuses(schema: TableSchema, change: SchemaChangeEvent) -> str | None:
            return "it cannot" if refused is not None and isinstance(change, refused) else None

        self.evolution = SchemaEvolution(behavior, frozenset(included), refuses)
        self.table = SinkTable()
        self.changes: list[SchemaChangeEvent] = []

    def apply(self, event: SchemaChangeEvent) -> dict[str, str] | None:
        """The columns of the sink table after an event, with their types."""
        self.changes = self.evolution.apply(self.table, SINK, event.table_id, event)
        schema = self.table.schema
        if schema is None:
            return None
        return {c.name: c.sql_type + ("" if c.is_nullable else " NOT NULL") for c in schema.columns}

    def create(self, table_id: TableId = CUPS, **columns: str) -> dict[str, str] | None:
        schema = schema_of(**(columns or {"id": "INT NOT NULL", "name": "STRING NOT NULL", "n": "INT"}))
        return self.apply(events.CreateTableEvent(table_id, schema))


ADD = events.AddColumnEvent(CUPS, column("x", "INT NOT NULL"), events.ColumnPosition(after="id"))
DROP = events.DropColumnEvent(CUPS, "name")
RENAME = events.RenameColumnEvent(CUPS, "name", "title")
WIDEN = events.AlterColumnTypeEvent(CUPS, column("n", "BIGINT"))
NARROW = events.AlterColumnTypeEvent(CUPS, column("n", "SMALLINT"))
KEPT = {"id": "INT NOT NULL", "name": "STRING NOT NULL", "n": "INT"}
LOOSE = KEPT | {"name": "STRING"}


@pytest.mark.parametrize(
    ("behavior", "event", "columns"),
    [
        ("evolve", ADD, {"id": "INT NOT NULL", "x": "INT", "name": "STRING NOT NULL", "n": "INT"}),
        ("evolve", DROP, {"id": "INT NOT NULL", "n": "INT"}),
        ("evolve", RENAME, {"id": "INT NOT NULL", "title": "STRING NOT NULL", "n": "INT"}),
        ("evolve", WIDEN, KEPT | {"n": "BIGINT"}),
        ("evolve", NARROW, KEPT | {"n": "SMALLINT"}),
        ("lenient", ADD, KEPT | {"x": "INT"}),
        ("lenient", DROP, LOOSE),
        ("lenient", RENAME, LOOSE | {"title": "STRING"}),
        ("lenient", WIDEN, KEPT | {"n": "BIGINT"}),
        ("lenient", NARROW, KEPT),
        ("try_evolve", DROP, {"id": "INT NOT NULL", "n": "INT"}),
        ("try_evolve", NARROW, LOOSE),
        ("ignore", ADD, LOOSE),
        ("ignore", DROP, LOOSE),
        ("ignore", WIDEN, LOOSE),
    ],
)
def test_each_behavior_changes_the_sink_as_documented(
    behavior: str, event: SchemaChangeEvent, columns: dict[str, str]
) -> None:
    sink = Sink(behavior)
    sink.create()
    found = sink.apply(event)
    assert found == columns
    assert found is not None
    assert list(found) == list(columns)


@pytest.mark.parametrize("event", [ADD, DROP, RENAME, WIDEN, events.TruncateTableEvent(CUPS)])
def test_exception_allows_no_change(event: SchemaChangeEvent) -> None:
    sink = Sink("exception")
    sink.create()
    with pytest.raises(SchemaChangeError, match=r"table shop\.cups has changed: .* is exception"):
        sink.apply(event)


def test_a_change_that_the_sink_cannot_make_fails_with_evolve_and_is_left_out_with_try_evolve() -> None:
    sink = Sink("evolve", refused=events.RenameColumnEvent)
    sink.create()
    with pytest.raises(SchemaChangeError, match=r"'name' is renamed to 'title'.*because it cannot.*try_evolve"):
        sink.apply(RENAME)
    sink = Sink("try_evolve", refused=events.RenameColumnEvent)
    sink.create()
    assert sink.apply(RENAME) == LOOSE


def test_a_column_whose_drop_is_excluded_becomes_nullable() -> None:
    sink = Sink("evolve", set(CHANGE_TYPES) - {"drop.column"})
    sink.create()
    assert sink.apply(DROP) == LOOSE


def test_a_dropped_column_that_comes_back_is_the_one_that_stayed() -> None:
    sink = Sink("lenient")
    sink.create()
    sink.apply(DROP)
    assert sink.apply(events.AddColumnEvent(CUPS, column("name", "INT"))) == LOOSE


@pytest.mark.parametrize("event", [events.DropColumnEvent(CUPS, "id"), events.RenameColumnEvent(CUPS, "id", "number")])
def test_a_key_column_does_not_go_away_leniently(event: SchemaChangeEvent) -> None:
    sink = Sink("lenient")
    sink.create()
    with pytest.raises(SchemaChangeError, match=r"the key column 'id' of lake\.all was (dropped|renamed)"):
        sink.apply(event)


def test_the_sink_of_several_tables_has_the_union_of_their_columns() -> None:
    sink = Sink("evolve")
    sink.create(CUPS, id="INT NOT NULL", name="STRING NOT NULL", n="INT")
    merged = sink.create(JARS, id="BIGINT NOT NULL", n="DOUBLE", m="DATE NOT NULL")
    assert merged == {"id": "BIGINT NOT NULL", "name": "STRING", "n": "DOUBLE", "m": "DATE"}
    for event in (DROP, RENAME, events.TruncateTableEvent(JARS), events.DropTableEvent(JARS)):
        assert sink.apply(event) is not None
        assert not any(
            isinstance(change, events.DropColumnEvent | events.TruncateTableEvent | events.DropTableEvent)
            for change in sink.changes
        )
        if event is DROP:
            sink.table.sources[CUPS] = schema_of(id="INT NOT NULL", name="STRING NOT NULL", n="INT")
    assert sink.apply(events.DropTableEvent(CUPS)) is None  # it was the last one


def test_tables_with_other_keys_do_not_go_into_one_sink_table() -> None:
    sink = Sink("evolve")
    sink.create()
    with pytest.raises(SchemaChangeError, match="give both the same by primary-keys of a transform"):
        sink.apply(events.CreateTableEvent(JARS, schema_of("code", code="INT NOT NULL")))


def test_a_table_that_is_told_again_has_changed_by_the_difference() -> None:
    sink = Sink("evolve")
    sink.create()
    assert sink.create() == KEPT
    assert sink.changes == []
    assert sink.create(id="INT NOT NULL", n="BIGINT", m="DATE") == {"id": "INT NOT NULL", "n": "BIGINT", "m": "DATE"}


@pytest.mark.parametrize(
    ("one", "other", "widest"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("INT", "DOUBLE", "DOUBLE"),
        ("FLOAT", "DOUBLE", "DOUBLE"),
        ("BIGINT", "DECIMAL(10, 2)", "DECIMAL(21, 2)"),
        ("DECIMAL(38, 0)", "DECIMAL(10, 9)", "STRING"),
        ("DECIMAL(8, 2)", "DOUBLE", "STRING"),
        ("VARCHAR(5)", "CHAR(9)", "VARCHAR(9)"),
        ("DATE", "TIMESTAMP(3)", "TIMESTAMP(3)"),
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "STRING"),
        ("BOOLEAN", "INT", "STRING"),
        ("BYTES", "STRING", "STRING"),
    ],
)
def test_the_widest_type_holds_the_values_of_both(one: str, other: str, widest: str) -> None:
    for pair in ((one, other), (other, one)):
        assert str(widest_type(*map(parse_type, pair))) == widest


def test_the_changes_between_two_schemas_lead_from_one_to_the_other() -> None:
    before = schema_of(id="INT NOT NULL", a="INT", b="STRING", c="DATE")
    after = schema_of(z="INT", id="INT NOT NULL", b="STRING NOT NULL", y="INT", d="DATE", x="INT")
    changes = list(find_changes(CUPS, before, after, ("c", "d")))
    schema = before
    for change in changes:
        schema = schema.apply(change)
    assert schema.names == after.names
    assert schema.columns == after.columns
    assert events.RenameColumnEvent(CUPS, "c", "d") in changes
