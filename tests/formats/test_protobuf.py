"""Messages of Protocol Buffers as rows, and as rows of tables."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from tests.formats import shop_pb2
from tests.table.connectors.tables import build_reader, held_rows

from penstock.base.errors import ConfigurationError, FormatError, UnsupportedError
from penstock.base.types import Row
from penstock.codecs.serialization import Deserialized
from penstock.datastream.formats.protobuf import (
    ProtobufRowDeserializationSchema,
    ProtobufRowSerializationSchema,
    ProtobufType,
)
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data.arrow import to_column
from penstock.sql.data.errors import ValidationError
from penstock.sql.formats import built_in_formats
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions

Order: Any = shop_pb2.Order  # type: ignore[attr-defined]
Line: Any = shop_pb2.Line  # type: ignore[attr-defined]
FULL = {
    "id": 7,
    "open": True,
    "weight": 0.5,
    "price": 1.25,
    "raw": b"\xff",
    "state": "SENT",
    "customer": Row(name="ann", age=None),
    "lines": [Row(article="pen", count=2), Row(article="", count=0)],
    "tags": ["a", ""],
    "counts": {"x": 1},
    "people": {3: Row(name="bob", age=0)},
    "card": None,
    "cents": 0,
    "note": "",
    "history": ["NEW", "PAID"],
    "large": 2**63 + 1,
}
EMPTY = {
    "id": 0,
    "open": False,
    "weight": 0.0,
    "price": 0.0,
    "raw": b"",
    "state": "NEW",
    "customer": None,
    "lines": None,
    "tags": None,
    "counts": None,
    "people": None,
    "card": None,
    "cents": None,
    "note": None,
    "history": None,
    "large": 0,
}


def test_every_kind_of_field_comes_back() -> None:
    writing = pickle.loads(pickle.dumps(ProtobufRowSerializationSchema(Order)))
    reading = pickle.loads(pickle.dumps(ProtobufRowDeserializationSchema(Order)))
    messages = writing.serialize_batch([FULL, {}, Row(*FULL.values())])
    assert Order.FromString(messages[0]).people[3].name == "bob"
    assert Order.FromString(messages[0]).WhichOneof("payment") == "cents"
    rows = reading.deserialize_batch(messages).values
    assert [row.as_dict() for row in rows] == [FULL, EMPTY, FULL]
    assert repr(reading.deserialize(messages[0])) == repr(rows[0])


def test_what_is_not_there_may_be_its_default() -> None:
    reading = ProtobufRowDeserializationSchema(Order, read_default_values=True)
    row = reading.deserialize(b"")
    assert row is not None
    assert row.as_dict() == {
        **EMPTY,
        "customer": Row(name="", age=0),
        "lines": [],
        "tags": [],
        "counts": {},
        "people": {},
        "card": "",
        "cents": 0,
        "note": "",
        "history": [],
    }


def test_type_may_come_from_a_file_of_descriptors(tmp_path: Path) -> None:
    """As `protoc` writes it; no class is needed, nor the file any more where the job runs."""
    path = tmp_path / "shop.bin"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[shop_pb2.FILE]).SerializeToString())
    found = pickle.dumps(ProtobufRowDeserializationSchema(ProtobufType.of_file("shop.Customer", str(path))))
    path.unlink()
    row = pickle.loads(found).deserialize(shop_pb2.Customer(name="ann").SerializeToString())  # type: ignore[attr-defined]
    assert row.as_dict() == {"name": "ann", "age": None}


def test_bad_messages_are_told() -> None:
    reading = ProtobufRowDeserializationSchema(Order)
    good = Order(id=1).SerializeToString()
    unnamed = b"\x30\x07"  # the state is 7
    found = reading.deserialize_batch([good, b"\xff", good, unnamed])
    assert [row["id"] for row in found.values] == [1, 1]
    assert found.of_records("abcd") == ["a", "c"]
    assert [bad.place for bad in found.bad] == [1, 3]
    assert "shop.Order" in found.bad[0].reason
    assert found.bad[1].reason == "field 'state': the enum has no name for 7"
    with pytest.raises(FormatError, match=r"cannot read shop\.Order"):
        reading.deserialize(b"\xff")
    assert reading.skip_malformed().deserialize(b"\xff") is None


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": "x"}, "field 'id'"),
        ({"id": 2**63}, "field 'id': Value out of range"),
        ({"state": "GONE"}, "field 'state': the enum has no 'GONE': it has NEW, PAID, SENT"),
        ({"customer": {"age": "x"}}, "field 'customer': field 'age'"),
        ((1, 2), "2 fields, expected 16"),
    ],
)
def test_record_that_does_not_fit_is_refused(record: Any, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        ProtobufRowSerializationSchema(Order).serialize(record)


def test_types_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"message shop\.Node holds one of its own type"):
        ProtobufRowDeserializationSchema(shop_pb2.Node)  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="no message class 'nowhere:Order'"):
        ProtobufType("nowhere:Order")
    with pytest.raises(ConfigurationError, match="is no class of messages"):
        ProtobufType("decimal:Decimal")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ProtobufType.of_file("shop.Order", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"no message 'shop\.None'"):
        ProtobufType("shop.None", descriptor_pb2.FileDescriptorSet(file=[shop_pb2.FILE]).SerializeToString())
    needs = descriptor_pb2.FileDescriptorProto(name="x.proto", dependency=["y.proto"])
    with pytest.raises(ConfigurationError, match=r"lacks y\.proto: make it with protoc --include_imports"):
        ProtobufType("x.X", descriptor_pb2.FileDescriptorSet(file=[needs]).SerializeToString())


# --- tables ----------------------------------------------------------------------------------------------------------

COLUMNS = {
    "people": "MAP<INT, ROW<age INT, name STRING>>",
    "id": "BIGINT",
    "open": "BOOLEAN",
    "weight": "FLOAT",
    "price": "DOUBLE",
    "raw": "BYTES",
    "state": "STRING",
    "customer": "ROW<name STRING>",
    "lines": "ARRAY<ROW<`count` BIGINT>>",
    "tags": "ARRAY<STRING>",
    "counts": "MAP<STRING, INT>",
    "card": "STRING",
    "cents": "BIGINT",
    "note": "STRING",
    "history": "ARRAY<SMALLINT>",
    "large": "BIGINT",
}
ROWS: list[tuple[Any, ...]] = [
    (
        *([(3, (None, "bob"))], 7, True, 0.5, 1.25, b"\xff", "SENT", ("ann",), [(2,), (0,)], ["a", ""], [("x", 1)]),
        *("1234", None, None, [0, 5], 9),
    ),
    (None, 0, False, 0.0, 0.0, b"", "NEW", None, None, None, None, None, 5, "", None, 0),
]


def make_schema(columns: dict[str, str]) -> RowSchema:
    return RowSchema(tuple(PlanColumn(name, parse_data_type(kind)) for name, kind in columns.items()))


def found_format(**options: str) -> tuple[Any, TableOptions]:
    values = {"message-class-name": "tests.formats.shop_pb2:Order", **options}
    texts = {"format": "protobuf", **{f"protobuf.{key.replace('_', '-')}": value for key, value in values.items()}}
    return built_in_formats().find(TableOptions("t", texts))


def decoded(columns: dict[str, str], messages: list[bytes], **options: str) -> Deserialized:
    found, below = found_format(**options)
    schema = make_schema(columns)
    decoding = found.decoding(schema, range(len(schema)), below)
    assert decoding.files is None
    result: Deserialized = pickle.loads(pickle.dumps(decoding.messages)).decode(messages)
    return result


def encoded(columns: dict[str, str], rows: list[tuple[Any, ...]], **options: str) -> list[bytes]:
    found, below = found_format(**options)
    schema = make_schema(columns)
    arrays = [to_column(values, kind) for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    encoder = pickle.loads(pickle.dumps(found.encoding(schema, below).messages))
    messages: list[bytes] = encoder.encode(pa.RecordBatch.from_arrays(arrays, schema.names))
    return messages


def test_rows_of_tables_come_back() -> None:
    messages = encoded(COLUMNS, ROWS)
    found = decoded(COLUMNS, messages)
    assert not found.bad
    assert held_rows(found.columns, make_schema(COLUMNS).types) == ROWS


def test_defaults_are_read_where_the_table_says_so() -> None:
    columns = {"note": "STRING", "tags": "ARRAY<STRING>", "customer": "ROW<age INT>"}
    [absent] = held_rows(decoded(columns, [b""]).columns, make_schema(columns).types)
    assert absent == (None, None, None)
    found = decoded(columns, [b""], read_default_values="true")
    assert held_rows(found.columns, make_schema(columns).types) == [("", [], (0,))]


def test_null_in_arrays_and_maps_is_written_as_something() -> None:
    """Messages have no NULL there."""
    columns = {"tags": "ARRAY<STRING>", "counts": "MAP<STRING, INT>", "history": "ARRAY<STRING>"}
    [message] = encoded(columns, [(["a", None], [("x", None)], [None, "PAID"])], write_null_string_literal="?")
    assert (list(Order.FromString(message).tags), dict(Order.FromString(message).counts)) == (["a", "?"], {"x": 0})
    assert list(Order.FromString(message).history) == [0, 1]


def test_value_that_no_column_holds_is_of_a_bad_message() -> None:
    found = decoded(
        {"large": "BIGINT"}, [Order(large=1).SerializeToString(), Order(large=2**64 - 1).SerializeToString()]
    )
    assert found.columns.to_pylist() == [{"large": 1}]
    assert [bad.place for bad in found.bad] == [1]
    assert "column 'large' cannot be read as BIGINT" in found.bad[0].reason


def test_unsigned_numbers_of_32_bits_may_be_columns_of_int() -> None:
    """K4: as in tables of Flink; a number that INT does not hold is not made negative."""
    columns = {"lines": "ARRAY<ROW<`count` INT>>"}
    messages = [Order(lines=[Line(count=count)]).SerializeToString() for count in (2**31 - 1, 2**31)]
    found = decoded(columns, messages)
    assert held_rows(found.columns, make_schema(columns).types) == [([(2**31 - 1,)],)]
    assert [bad.place for bad in found.bad] == [1]
    assert encoded(columns, [([(7,)],)]) == [Order(lines=[Line(count=7)]).SerializeToString()]
    with pytest.raises(FormatError, match=r"field 'count': Value out of range: -1"):
        encoded(columns, [([(-1,)],)])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"nothing": "INT"}, r"message shop\.Order has no field 'nothing': it has id, open"),
        ({"customer": "ROW<x INT>"}, r"message shop\.Customer has no field 'x'"),
        ({"id": "INT"}, r"field shop\.Order\.id cannot be a column of type INT: it is BigInt"),
        ({"tags": "STRING"}, r"field shop\.Order\.tags cannot be a column of type STRING: it is an array"),
        ({"counts": "ARRAY<INT>"}, "it is a map"),
        ({"customer": "STRING"}, "it is a row"),
        ({"state": "DOUBLE"}, "it is a text or a whole number"),
    ],
)
def test_table_that_does_not_fit_is_refused(columns: dict[str, str], said: str) -> None:
    found, below = found_format()
    for use in (found.encoding, lambda schema, options: found.decoding(schema, [0], options)):
        with pytest.raises(ValidationError, match=said):
            use(make_schema(columns), below)


def test_message_has_to_be_named() -> None:
    ddl = "CREATE TABLE t (id BIGINT) WITH ('connector' = 'socket', 'hostname' = 'x', 'port' = '1', 'format' = "
    with pytest.raises(ValidationError, match=r"Missing required options are: protobuf\.message-class-name"):
        build_reader(ddl + "'protobuf')")
    with pytest.raises(ValidationError, match=r"'protobuf\.message-class-name' of table .*no message class 'a:B'"):
        build_reader(ddl + "'protobuf', 'protobuf.message-class-name' = 'a:B')")
