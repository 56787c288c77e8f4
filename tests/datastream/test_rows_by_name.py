"""Rows that a program makes with names in another order than those of the declared type."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.types import Row, RowKind
from penstock.codecs.rendering import renderer
from penstock.common import Types
from penstock.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from penstock.datastream.formats.csv import CsvRowSerializationSchema
from penstock.datastream.formats.json import JsonRowSerializationSchema
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.formats.bulk_format import fields_of

PERSON = Types.ROW_NAMED(["first", "last"], [Types.STRING(), Types.STRING()])
NESTED = Types.ROW_NAMED(["id", "person"], [Types.INT(), PERSON])
DEBTS = Types.ROW_NAMED(["paid", "owed"], [Types.INT(), Types.INT()])
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "nested",
        "fields": [
            {"name": "id", "type": "int"},
            {
                "name": "person",
                "type": {
                    "type": "record",
                    "name": "person",
                    "fields": [{"name": "first", "type": "string"}, {"name": "last", "type": "string"}],
                },
            },
        ],
    }
)


def swapped() -> Row:
    return Row(person=Row(last="L", first="F"), id=1)


def test_formats_write_fields_by_name() -> None:
    """A2: JSON, CSV, Avro and text have each value under its own name, in nested rows too."""
    as_json = JsonRowSerializationSchema.builder().with_type_info(NESTED).build()
    assert json.loads(as_json.serialize(swapped())) == {"id": 1, "person": {"first": "F", "last": "L"}}
    assert json.loads(as_json.serialize_batch([Row(1, Row("F", "L")), swapped()])[1])["person"]["first"] == "F"
    as_csv = CsvRowSerializationSchema.Builder(NESTED).set_array_element_delimiter(";").build()
    assert as_csv.serialize(swapped()) == b"1,F;L\n"
    writer, reader = AvroRowSerializationSchema(None, SCHEMA), AvroRowDeserializationSchema(None, SCHEMA)
    assert reader.deserialize(writer.serialize(swapped())) == Row(id=1, person=Row(first="F", last="L"))
    assert renderer(NESTED)(swapped()) == "+I[1, +I[F, L]]"
    assert list(fields_of(swapped(), ["id", "person"])) == [1, Row(last="L", first="F")]


def test_rows_with_other_names_go_by_position() -> None:
    """A2: a row without names, and one with names that the type does not have, are written in their own order."""
    schema = JsonRowSerializationSchema.builder().with_type_info(PERSON).build()
    for row in (Row("F", "L"), Row(given="F", family="L"), ("F", "L")):
        assert json.loads(schema.serialize(row)) == {"first": "F", "last": "L"}


@pytest.mark.parametrize("chained", [True, False], ids=["chained", "unchained"])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_declared_types_put_fields_in_order(mode: str, chained: bool) -> None:
    """A2: positions in the program are those of the declared type, as in PyFlink."""
    env = local_environment(execution__runtime_mode=mode)
    if not chained:
        env.disable_operator_chaining()
    rows = env.from_collection([1, 2]).map(lambda number: Row(owed=100, paid=number), DEBTS)
    totals = [row.paid for row in collect(rows.key_by(lambda _: 0).sum(0))]
    assert totals == ([3] if mode == "BATCH" else [1, 3])
    assert [row[0] for row in collect(rows)] == [1, 2]
    assert [key for key, _ in collect(rows.key_by(lambda row: row[0]).map(lambda row: (row[0], 1)))] == [1, 2]


def test_rows_in_rows_get_the_order_of_their_type() -> None:
    """A2: a field that is a row is put in order, too; kinds stay."""
    row = swapped()
    row.set_row_kind(RowKind.DELETE)
    env = local_environment()
    (made,) = collect(env.from_collection([1]).map(lambda _: row, NESTED))
    expected = Row(id=1, person=Row(first="F", last="L"))
    expected.set_row_kind(RowKind.DELETE)
    assert made == expected
    assert row._fields == ("person", "id"), "the row of the function stays"


def test_collections_with_a_type() -> None:
    """A2: so are the rows of a collection."""
    env = local_environment()
    assert collect(env.from_collection([swapped()], NESTED)) == [Row(id=1, person=Row(first="F", last="L"))]


def test_files_have_fields_by_name(tmp_path: Path) -> None:
    """A2: so have the records of Parquet files."""
    path = tmp_path / "rows.parquet"
    with path.open("wb") as file:
        writer = ParquetBulkWriters.for_row_type(PERSON).create(file)
        writer.add_elements([Row(last="L", first="F")])
        writer.finish()
    assert pyarrow.parquet.read_table(path).to_pylist() == [{"first": "F", "last": "L"}]
