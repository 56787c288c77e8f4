"""A3: tables of streams: which columns a stream has, and what a schema or expressions make of them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.table.seams.streams import environments, list_columns, read_changes, texts, timed

from penstock.base.errors import JobExecutionError
from penstock.common import Instant, Row, RowKind, TypeInformation, Types
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes, Schema
from penstock.table.expressions import col

PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    ("type_info", "columns"),
    [
        (PERSON, ["`name` STRING", "`age` INT"]),
        (Types.ROW([Types.STRING()]), ["`f0` STRING"]),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), ["`f0` STRING", "`f1` BIGINT NOT NULL"]),
        (Types.DOUBLE(), ["`f0` DOUBLE NOT NULL"]),
        (Types.BIG_DEC(), ["`f0` DECIMAL(38, 18)"]),
        (Types.INSTANT(), ["`f0` TIMESTAMP_LTZ(9)"]),
        (Types.SQL_TIMESTAMP(), ["`f0` TIMESTAMP(9)"]),
        (Types.SQL_DATE(), ["`f0` DATE"]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), ["`f0` BYTES NOT NULL"]),
        (Types.BASIC_ARRAY(Types.INT()), ["`f0` ARRAY<INT> NOT NULL"]),
        (Types.LIST(Types.INT()), ["`f0` ARRAY<INT NOT NULL> NOT NULL"]),
        (Types.MAP(Types.STRING(), Types.INT()), ["`f0` MAP<STRING, INT> NOT NULL"]),
        (Types.PICKLED_BYTE_ARRAY(), ["`f0` RAW('object', '')"]),
    ],
)
def test_the_type_of_a_stream_says_which_columns_there_are(type_info: TypeInformation, columns: list[str]) -> None:
    """Fields of rows may be NULL; numbers alone and in tuples are not."""
    streams, tables = environments()
    assert list_columns(tables.from_data_stream(streams.from_collection([], type_info))) == columns


@pytest.mark.parametrize(
    ("type_info", "record", "row"),
    [
        (PERSON, Row(name="Anna", age=4), "+I[Anna, 4]"),
        (PERSON, ("Anna", None), "+I[Anna, null]"),
        (PERSON, {"age": 4}, "+I[null, 4]"),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), ("Anna", 4), "+I[Anna, 4]"),
        (Types.LONG(), 4, "+I[4]"),
        (Types.BIG_DEC(), Decimal("1.5"), "+I[1.500000000000000000]"),
        (Types.INSTANT(), Instant(1, 5_000), "+I[1970-01-01 00:00:01.000005+00:00]"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2026, 1, 2, 3, 4, 5), "+I[2026-01-02 03:04:05]"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1}, "+I[{a=1}]"),
        (Types.ROW_NAMED(["inner"], [PERSON]), Row(inner=Row(name="Anna", age=4)), "+I[+I[Anna, 4]]"),
        (Types.PICKLED_BYTE_ARRAY(), {"any": {1}}, "+I[{any={1}}]"),
    ],
)
def test_records_become_rows(type_info: TypeInformation, record: Any, row: str) -> None:
    """In each form that a record may have."""
    streams, tables = environments()
    assert read_changes(tables.from_data_stream(streams.from_collection([record], type_info))) == [row]


def test_columns_stay_columns() -> None:
    """What an operator hands over as Arrow is not turned into objects, and is cast where the types differ."""
    streams, tables = environments()
    stream = streams.from_collection([("a", 1), ("b", 2)]).map_batches(
        lambda batch: pa.RecordBatch.from_arrays([batch.column(1), batch.column(0)], ["age", "name"]),
        output_type=PERSON,
    )
    assert read_changes(tables.from_data_stream(stream)) == ["+I[a, 1]", "+I[b, 2]"]


def test_a_schema_gives_types_and_an_order_and_adds_columns() -> None:
    """Its physical columns are fields by their names; those that it leaves out are left out."""
    streams, tables = environments()
    stream = streams.from_collection([("Anna", 4)], PERSON)
    schema = (
        Schema.new_builder()
        .column("age", "DECIMAL(4, 1)")
        .column_by_expression("next", "age + 1")
        .column("name", DataTypes.STRING())
        .primary_key("name")
        .build()
    )
    table = tables.from_data_stream(stream, schema)
    assert list_columns(table) == [
        "`age` DECIMAL(4, 1)",
        "`next` DECIMAL(12, 1) AS (`age` + 1)",
        "`name` STRING NOT NULL",
    ]
    assert read_changes(table) == ["+I[4.0, 5.0, Anna]"]


def test_a_column_is_computed_of_a_field_that_the_schema_leaves_out() -> None:
    """As in PyFlink's examples of windows."""
    streams, tables = environments()
    schema = Schema.new_builder().column("age", "INT").column_by_expression("up", "UPPER(name)").build()
    assert read_changes(tables.from_data_stream(streams.from_collection([("Anna", 4)], PERSON), schema)) == [
        "+I[4, ANNA]"
    ]


def test_a_schema_without_physical_columns_comes_after_all_fields() -> None:
    """They are derived from the type."""
    streams, tables = environments()
    stream = streams.from_collection([("Anna", 4)], PERSON)
    table = tables.from_data_stream(stream, Schema.new_builder().column_by_expression("up", "UPPER(name)").build())
    assert read_changes(table) == ["+I[Anna, 4, ANNA]"]


@pytest.mark.parametrize(
    ("records", "columns", "rows"),
    [
        ([("Anna", 4)], [("name", "STRING"), ("age", "INT")], ["+I[Anna, 4]"]),
        ([{"age": 4, "name": "Anna"}], [("name", "STRING"), ("age", "INT")], ["+I[Anna, 4]"]),
        ([4, 5], [("f0", "BIGINT")], ["+I[4]", "+I[5]"]),
        ([[1, 2]], [("f0", "ARRAY<INT>")], ["+I[[1, 2]]"]),
    ],
)
def test_a_schema_says_what_untyped_records_are(
    records: list[Any], columns: list[tuple[str, str]], rows: list[str]
) -> None:
    """Rows of its columns; with the one column `f0`, values."""
    streams, tables = environments()
    builder = Schema.new_builder()
    for name, kind in columns:
        builder.column(name, kind)
    assert read_changes(tables.from_data_stream(streams.from_collection(records), builder.build())) == rows


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ((col("age"), col("name")), ["`age` INT", "`name` STRING"]),
        ((col("age").alias("years"),), ["`years` INT"]),
        ((col("a"), col("b")), ["`a` STRING", "`b` INT"]),
        (
            (col("a"), col("b"), col("p").proctime),
            ["`a` STRING", "`b` INT", "`p` TIMESTAMP_LTZ(3) NOT NULL *PROCTIME*"],
        ),
        ((col("a"), col("t").rowtime), ["`a` STRING", "`t` TIMESTAMP(3) *ROWTIME*"]),
        ((col("t").rowtime, col("name")), ["`t` TIMESTAMP(3) *ROWTIME*", "`name` STRING"]),
    ],
)
def test_expressions_name_fields(fields: tuple[object, ...], columns: list[str]) -> None:
    """By their names, in any order; or by their places where none of the names is there. Times may be added."""
    streams, tables = environments()
    assert list_columns(tables.from_data_stream(streams.from_collection([], PERSON), *fields)) == columns


def test_expressions_take_records_apart() -> None:
    """Names by places, and names by names, give the fields that they stand for."""
    streams, tables = environments()
    stream = streams.from_collection([("Anna", 4)], PERSON)
    assert read_changes(tables.from_data_stream(stream, col("age").alias("n"))) == ["+I[4]"]
    assert read_changes(tables.from_data_stream(stream, col("a"), col("b"))) == ["+I[Anna, 4]"]
    assert read_changes(tables.from_data_stream(stream, [col("age"), col("name")])) == ["+I[4, Anna]"]


def test_a_view_is_a_name_for_a_stream() -> None:
    """For SQL."""
    streams, tables = environments()
    tables.create_temporary_view(
        "people", streams.from_collection([("Anna", 4), ("Ben", 5)], PERSON), col("n"), col("a")
    )
    assert read_changes(tables.sql_query("SELECT n FROM people WHERE a > 4")) == ["+I[Ben]"]


def test_a_stream_joins_itself() -> None:
    """Two readings of a stream are two tables, and two streams of the same type are not one."""
    streams, tables = environments(2)
    one = tables.from_data_stream(streams.from_collection([("Anna", 4)], PERSON))
    other = tables.from_data_stream(streams.from_collection([("Ben", 4)], PERSON), col("n"), col("a"))
    joined = one.join(other, col("age") == col("a")).select(col("name"), col("n"))
    assert read_changes(joined) == ["+I[Anna, Ben]"]
    assert read_changes(one.union_all(one)) == ["+I[Anna, 4]", "+I[Anna, 4]"]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_column_that_the_stream_has_not() -> None:
    """The error names those that it has."""
    streams, tables = environments()
    schema = Schema.new_builder().column("weight", "INT").build()
    with pytest.raises(ValidationError, match=r"Unable to find a field named 'weight'.*\[name, age\]"):
        tables.from_data_stream(streams.from_collection([], PERSON), schema)
    with pytest.raises(ValidationError, match="named 'weight'"):
        tables.from_data_stream(streams.from_collection([], PERSON), col("name"), col("weight"))
    with pytest.raises(ValidationError, match=r"2 fields.*none is left for 'c'"):
        tables.from_data_stream(streams.from_collection([], PERSON), col("a"), col("b"), col("c"))
    with pytest.raises(ValidationError, match="proctime attribute can only be appended"):
        tables.from_data_stream(streams.from_collection([], PERSON), col("p").proctime, col("b"))
    with pytest.raises(ValidationError, match="columns with or without alias"):
        tables.from_data_stream(streams.from_collection([], PERSON), col("age") + 1)


def test_other_metadata_than_the_timestamp() -> None:
    """There is one."""
    streams, tables = environments()
    schema = Schema.new_builder().column_by_metadata("offset", "BIGINT").build()
    with pytest.raises(ValidationError, match=r"Invalid metadata key 'offset'.*rowtime"):
        tables.from_data_stream(streams.from_collection([], PERSON), schema)


def test_what_is_no_stream() -> None:
    """Or is both."""
    streams, tables = environments()
    with pytest.raises(TypeError, match="made of a DataStream"):
        tables.from_data_stream([1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one Schema, or expressions"):
        tables.from_data_stream(streams.from_collection([], PERSON), Schema.new_builder().build(), col("a"))


@pytest.mark.parametrize(
    ("type_info", "record", "message"),
    [
        (Types.LONG(), "many", "'many' is no value of type BIGINT"),
        (Types.TUPLE([Types.INT(), Types.INT()]), (1,), "has 1 fields, and its type 2"),
        (Types.TUPLE([Types.INT()]), 5, "has no fields"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", None), "column 'f1' is NOT NULL"),
        (Types.INT(), 2**40, "cannot hold these values"),
    ],
)
def test_a_record_that_does_not_fit_fails_the_job(type_info: TypeInformation, record: Any, message: str) -> None:
    """With the record and the reason."""
    streams, tables = environments()
    stream = streams.from_collection([0]).map(lambda _: record)
    stream._transformation.output_type = type_info
    with pytest.raises(JobExecutionError, match=message):
        read_changes(tables.from_data_stream(stream))


def test_rows_that_change_are_no_new_rows() -> None:
    """They need a changelog."""
    streams, tables = environments()
    row = Row.of_kind(RowKind.DELETE, "Anna", 4)
    with pytest.raises(JobExecutionError, match=r"may have rows of the kinds \+I and has one of the kind -D"):
        read_changes(tables.from_data_stream(streams.from_collection([row], PERSON)))


def test_timestamps_that_are_asked_for_and_not_there() -> None:
    """As in Flink."""
    streams, tables = environments()
    schema = Schema.new_builder().column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)").build()
    with pytest.raises(JobExecutionError, match="Could not find timestamp in DataStream API record"):
        read_changes(tables.from_data_stream(streams.from_collection([("Anna", 4)], PERSON), schema))


def test_a_stream_of_a_table_keeps_its_types() -> None:
    """There and back again: moments, decimals, arrays, nested rows."""
    _, tables = environments()
    table = tables.sql_query(
        "SELECT CAST(1.5 AS DECIMAL(4, 2)) AS d, ARRAY[1, 2] AS a, MAP['k', 1] AS m, ROW(1, 'x') AS r, "
        "TIMESTAMP '2026-01-02 03:04:05' AS t, TO_TIMESTAMP_LTZ(1000, 3) AS z, DATE '2026-01-02' AS day_, "
        "INTERVAL '1' HOUR AS i, X'00' AS b"
    )
    back = tables.from_data_stream(tables.to_data_stream(table))
    same = [column.data_type.nullable() for column in table.get_resolved_schema().columns]
    assert [column.data_type.nullable() for column in back.get_resolved_schema().columns] == same
    assert read_changes(back) == read_changes(table)


def test_a_declared_watermark_is_for_the_table() -> None:
    """An expression makes watermarks of its own, whatever the stream has."""
    streams, tables = environments()
    stream = timed(streams, [("Anna", 1), ("Ben", 9)], PERSON, 1)
    schema = (
        Schema.new_builder()
        .column_by_expression("at_", "TO_TIMESTAMP_LTZ(age * 1000, 3)")
        .watermark("at_", "at_ - INTERVAL '1' SECOND")
        .build()
    )
    table = tables.from_data_stream(stream, schema)
    assert list_columns(table)[-1] == "`at_` TIMESTAMP_LTZ(3) *ROWTIME* AS TO_TIMESTAMP_LTZ((`age` * 1000), 3)"
    assert texts(tables.to_data_stream(table.select(col("name")))) == ["+I[Anna]", "+I[Ben]"]


@pytest.mark.parametrize("value", [7.9, Decimal("7.9"), float("nan"), "7", 2**31])
def test_value_that_is_not_of_the_type_fails_with_column_and_value(value: object) -> None:
    """K4: 7.9 was cut to 7."""
    streams, tables = environments()
    stream = streams.from_collection(
        [(1, "a"), (value, "b")], Types.ROW_NAMED(["n", "name"], [Types.INT(), Types.STRING()])
    )
    with pytest.raises(JobExecutionError) as found:
        read_changes(tables.from_data_stream(stream))
    text = str(found.value)
    assert "column 'n' of type INT" in text
    assert (str(value) if isinstance(value, Decimal | int) else repr(value)) in text


def test_text_is_not_a_boolean() -> None:
    """K4: any text, also 'false', was TRUE."""
    streams, tables = environments()
    stream = streams.from_collection([("false",)], Types.ROW_NAMED(["yes"], [Types.BOOLEAN()]))
    with pytest.raises(JobExecutionError, match="column 'yes' of type BOOLEAN cannot hold the value: 'false'"):
        read_changes(tables.from_data_stream(stream))
