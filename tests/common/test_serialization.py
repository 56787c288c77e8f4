"""Schemas and encoders."""

import datetime
import decimal
import io
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import FormatError
from penstock.codecs.serialization import DeserializationSchema, RowFieldExtractorSchema
from penstock.common import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    ByteArraySchema,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    Encoder,
    Instant,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    Row,
    RowKind,
    SimpleStringSchema,
    Types,
)
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema

ROW_TYPE = Types.ROW_NAMED(
    ["id", "name", "ok", "score", "price", "day", "time", "moment", "tags"],
    [
        Types.LONG(),
        Types.STRING(),
        Types.BOOLEAN(),
        Types.DOUBLE(),
        Types.BIG_DEC(),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.LIST(Types.INT()),
    ],
)
ROWS = st.builds(
    lambda *values: Row(**dict(zip(ROW_TYPE.get_field_names(), values, strict=True))),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    st.none() | st.booleans(),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.none() | st.dates(),
    st.none() | st.times(),
    st.none() | st.datetimes(),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1),
)


@given(st.text())
def test_text_survives_the_string_schema(text):
    schema = SimpleStringSchema()
    clean = text.encode(errors="replace").decode()
    assert schema.deserialize(schema.serialize(clean)) == clean


def test_the_string_schema_knows_other_character_sets():
    assert SimpleStringSchema("iso-8859-1").serialize("é") == b"\xe9"
    with pytest.raises(LookupError):
        SimpleStringSchema("klingon")
    with pytest.raises(FormatError, match="writes str, not int"):
        SimpleStringSchema().serialize(1)  # type: ignore[arg-type]


def test_bytes_pass_as_they_are():
    assert ByteArraySchema().deserialize(ByteArraySchema().serialize(b"\x00")) == b"\x00"
    assert RowFieldExtractorSchema(1).serialize(Row("a", b"k")) == b"k"
    with pytest.raises(FormatError, match="must hold bytes"):
        RowFieldExtractorSchema(0).serialize(Row("a"))


def test_the_string_encoder_writes_lines():
    out = io.BytesIO()
    encoder = pickle.loads(pickle.dumps(Encoder.simple_string_encoder()))
    encoder.encode(Row(1, "é"), out)
    encoder.encode(2, out)
    assert out.getvalue().decode() == "+I[1, é]\n2\n"


@pytest.mark.parametrize(
    ("type_info", "value", "text"),
    [
        (Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG(), Types.LONG()]), ("hi", 1, 30, 7), "(hi,1,30,7)"),
        (Types.ROW([Types.STRING(), Types.INT()]), Row("hi", 1), "+I[hi, 1]"),
        (Types.ROW([Types.STRING(), Types.INT()]), Row.of_kind(RowKind.DELETE, "hi", None), "-D[hi, null]"),
        (Types.ROW_NAMED(["a", "b"], [Types.BOOLEAN(), Types.DOUBLE()]), Row(a=True, b=2), "+I[true, 2.0]"),
        (Types.STRING(), "hi", "hi"),
        (Types.BOOLEAN(), False, "false"),
        (Types.LONG(), 7, "7"),
        (Types.DOUBLE(), 1e7, "1.0E7"),
        (Types.DOUBLE(), 9999999.5, "9999999.5"),
        (Types.DOUBLE(), -0.0012, "-0.0012"),
        (Types.DOUBLE(), 0.00099, "9.9E-4"),
        (Types.DOUBLE(), -123456789.125, "-1.23456789125E8"),
        (Types.DOUBLE(), 1e300, "1.0E300"),
        (Types.DOUBLE(), -0.0, "-0.0"),
        (Types.DOUBLE(), float("nan"), "NaN"),
        (Types.DOUBLE(), float("-inf"), "-Infinity"),
        (Types.FLOAT(), 0.1, "0.1"),
        (Types.FLOAT(), 16777216.0, "1.6777216E7"),
        (Types.BIG_DEC(), decimal.Decimal("1.50"), "1.50"),
        (Types.LIST(Types.DOUBLE()), [1.0, 1e8], "[1.0, 1.0E8]"),
        (Types.MAP(Types.STRING(), Types.TUPLE([Types.INT(), Types.INT()])), {"a": (1, 2)}, "{a=(1,2)}"),
        (Types.SQL_DATE(), datetime.date(2026, 1, 31), "2026-01-31"),
        (Types.SQL_TIME(), datetime.time(12, 30, 1, 5), "12:30:01"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2026, 1, 31, 12), "2026-01-31 12:00:00.0"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2026, 1, 31, 12, 0, 0, 120_000), "2026-01-31 12:00:00.12"),
        (None, ("hi", 1), "('hi', 1)"),
    ],
)
def test_the_string_encoder_writes_what_java_would(type_info, value, text):
    """PyFlink's records are Java's when its sink writes them; without a type they are only Python's."""
    out = io.BytesIO()
    encoder = pickle.loads(pickle.dumps(Encoder.simple_string_encoder().for_type(type_info)))
    encoder.encode(value, out)
    assert out.getvalue().decode() == f"{text}\n"


@given(ROWS)
def test_a_row_survives_json(row):
    write = JsonRowSerializationSchema.builder().with_type_info(ROW_TYPE).build()
    read = JsonRowDeserializationSchema.builder().type_info(ROW_TYPE).build()
    assert pickle.loads(pickle.dumps(read)).deserialize(pickle.loads(pickle.dumps(write)).serialize(row)) == row


def json_reader(**types):
    return JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(list(types), list(types.values())))


def test_json_fields_are_found_by_name_and_may_be_missing():
    builder = json_reader(a=Types.INT(), b=Types.STRING())
    assert builder.build().deserialize(b'{"b": 1.5, "c": 2}') == Row(a=None, b="1.5")
    with pytest.raises(FormatError, match="missing a"):
        builder.fail_on_missing_field().build().deserialize(b'{"b": "x"}')
    with pytest.raises(ValueError, match="cannot both"):
        builder.ignore_parse_errors().build()


@pytest.mark.parametrize("message", [b"", b"[1]", b'{"a": "x"}', b'{"a": 1.5}', b'{"a": 2147483648}', b"\xff"])
def test_bad_json_is_an_error_or_dropped(message):
    with pytest.raises(FormatError, match="cannot read JSON"):
        json_reader(a=Types.INT()).build().deserialize(message)
    assert json_reader(a=Types.INT()).ignore_parse_errors().build().deserialize(message) is None


def test_json_holds_nested_values():
    row_type = Types.ROW_NAMED(
        ["r", "m", "b", "i", "t"],
        [
            Types.ROW_NAMED(["x"], [Types.INT()]),
            Types.MAP(Types.STRING(), Types.LONG()),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.INSTANT(),
            Types.TUPLE([Types.INT(), Types.DOUBLE()]),
        ],
    )
    row = Row(r=Row(x=1), m={"k": 2}, b=b"\x01\xff", i=Instant(5, 6_000), t=(1, float("inf")))
    message = JsonRowSerializationSchema.builder().with_type_info(row_type).build().serialize(row)
    assert json.loads(message)["b"] == "Af8="
    assert JsonRowDeserializationSchema.builder().type_info(row_type).build().deserialize(message) == row


def test_a_json_schema_gives_the_row_type():
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "on": {"type": ["string", "null"], "format": "date"},
            "at": {"$ref": "#/definitions/place"},
            "raw": {"type": "string", "contentEncoding": "base64"},
            "all": {"type": "array", "items": {"type": "boolean"}},
        },
        "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    reader = JsonRowDeserializationSchema.builder().json_schema(json.dumps(schema)).build()
    assert reader.get_produced_type() == Types.ROW_NAMED(
        ["id", "on", "at", "raw", "all"],
        [
            Types.BIG_DEC(),
            Types.SQL_DATE(),
            Types.ROW_NAMED(["city"], [Types.STRING()]),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.OBJECT_ARRAY(Types.BOOLEAN()),
        ],
    )
    loop = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    with pytest.raises(FormatError, match="refers to itself"):
        JsonRowDeserializationSchema.builder().json_schema(json.dumps(loop))


@given(ROWS)
def test_a_row_survives_csv(row):
    write = CsvRowSerializationSchema.Builder(ROW_TYPE).build()
    read = CsvRowDeserializationSchema.Builder(ROW_TYPE).build()
    assert pickle.loads(pickle.dumps(read)).deserialize(pickle.loads(pickle.dumps(write)).serialize(row)) == row


def test_csv_is_written_as_asked():
    row_type = Types.ROW([Types.INT(), Types.STRING(), Types.STRING()])
    builder = CsvRowSerializationSchema.Builder(row_type).set_field_delimiter("|").set_null_literal("n/a")
    assert builder.set_line_delimiter("").build().serialize(Row(1, "a|b", None)) == b'1|"a|b"|n/a'
    assert builder.disable_quote_character().set_escape_character("\\").build().serialize(Row(1, "a|b", "")) == (
        b"1|a\\|b|"
    )
    with pytest.raises(FormatError, match="is not of type Integer"):
        builder.build().serialize(Row("x", "", ""))
    with pytest.raises(ValueError, match="one character"):
        builder.set_field_delimiter("||")


def test_csv_messages_have_the_signs_that_the_builders_were_told():
    row_type = Types.ROW_NAMED(["l", "s"], [Types.LIST(Types.INT()), Types.STRING()])
    write = CsvRowSerializationSchema.Builder(type_info=row_type)
    read = CsvRowDeserializationSchema.Builder(type_info=row_type)
    for builder in (write, read):
        builder.set_field_delimiter("|").set_array_element_delimiter("/").set_quote_character("'")
        builder.set_null_literal("n/a")
    for row, message in ((Row(l=[1, 2], s="a|b"), b"1/2|'a|b'\n"), (Row(l=[], s=None), b"|n/a\n")):
        assert write.build().serialize(row) == message
        assert read.build().deserialize(message) == row
    escaped = b"1/2|a\\'b\n"
    assert write.set_escape_character("\\").build().serialize(Row(l=[1, 2], s="a'b")) == escaped
    assert read.set_escape_character("\\").build().deserialize(escaped) == Row(l=[1, 2], s="a'b")
    for builder in (write, read):
        with pytest.raises(ValueError, match="one character"):
            builder.set_quote_character("''")
        with pytest.raises(ValueError, match="must not be empty"):
            builder.set_array_element_delimiter("")


def test_csv_is_read_as_asked():
    row_type = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    builder = CsvRowDeserializationSchema.Builder(row_type)
    assert builder.build().deserialize(b",\n") == Row(a=None, b="")
    with pytest.raises(FormatError, match="cannot read CSV"):
        builder.build().deserialize(b"1,2,3")
    builder.set_null_literal(null_literal="-").set_allow_comments(allow_comments=True)
    lenient = builder.set_ignore_parse_errors(ignore_parse_errors=True).build()
    assert lenient.deserialize(b"-,-") == Row(a=None, b=None)
    assert lenient.deserialize(b"# 1,2") is None
    assert lenient.deserialize(b"x,y") is None


AVRO = {
    "type": "record",
    "name": "Event",
    "namespace": "n",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "int"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "next", "type": ["null", "Event"]},
    ],
}


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.integers(-(2**31), 2**31 - 1)),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.floats(allow_nan=False)),
    st.integers(-(10**18), 10**18),
    st.dates(),
    st.datetimes(),
)
def test_a_row_survives_avro(number, name, tags, more, cents, day, at):
    def event(following):
        price = decimal.Decimal(cents).scaleb(-2)
        return Row(id=number, name=name, kind="B", tags=tags, more=more, price=price, day=day, at=at, next=following)

    write = AvroRowSerializationSchema(avro_schema_string=json.dumps(AVRO))
    read = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=json.dumps(AVRO))))
    row = event(event(None))
    assert read.deserialize(write.serialize(row)) == row


def test_avro_bytes_are_those_of_the_specification():
    schema = json.dumps(
        {"type": "record", "name": "test", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    )
    assert AvroRowSerializationSchema(avro_schema_string=schema).serialize((27, "foo")) == bytes.fromhex("3606666f6f")
    reader = AvroRowDeserializationSchema(avro_schema_string=schema)
    for bad in (b"", b"\x36\x06fo", b"\x36\x06foo.", b"\xff" * 20):
        with pytest.raises(FormatError):
            reader.deserialize(bad)
    with pytest.raises(NotImplementedError, match="Java"):
        AvroRowSerializationSchema(record_class="com.example.Event")
    with pytest.raises(FormatError, match="not an Avro schema"):
        AvroRowSerializationSchema(avro_schema_string='"string"')


def test_an_avro_array_cannot_claim_more_items_than_its_message_may_hold():
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    with pytest.raises(FormatError, match="items in a message"):
        AvroRowDeserializationSchema(avro_schema_string=json.dumps(schema)).deserialize(b"\xfe\xff\xff\xff\x0f\x00")


def test_avro_dates_are_no_timestamps():
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "d", "type": {"type": "int", "logicalType": "date"}}],
    }
    write = AvroRowSerializationSchema(avro_schema_string=json.dumps(schema))
    assert write.serialize((datetime.date(1970, 1, 2),)) == b"\x02"
    with pytest.raises(FormatError, match="logical type"):
        write.serialize((datetime.datetime(1970, 1, 2),))


class ReusingSchema(DeserializationSchema[Any]):
    """Returns the same object for each message, in a shape."""

    def __init__(self, shape: Callable[[Any], Any]) -> None:
        self._buffer: dict[str, Any] = {"n": -1}
        self._shape = shape

    def deserialize(self, message: bytes) -> Any:
        self._buffer["n"] = int(message)
        return self._shape(self._buffer)


class ReusingRecordSchema(KafkaRecordDeserializationSchema[Any]):
    """The same for records of Kafka."""

    def __init__(self, shape: Callable[[Any], Any]) -> None:
        self._of_values = ReusingSchema(shape)

    def deserialize(self, record: Any) -> Any:
        return self._of_values.deserialize(record)


SHAPES: dict[str, Callable[[Any], Any]] = {
    "object": lambda buffer: buffer,
    "in a tuple": lambda buffer: (1, buffer),
    "in a list": lambda buffer: [[buffer]],
    "as an attribute": lambda buffer: Box(buffer),
}


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("schema", [ReusingSchema, ReusingRecordSchema])
@pytest.mark.parametrize("kind", SHAPES)
def test_a_schema_may_return_the_same_object_again(kind: str, schema: Any) -> None:
    """K1: each record is what it was when the schema returned it, however many messages come together."""
    shape = SHAPES[kind]
    messages: Any = [b"1", b"2", b"x", b"3"]
    decoded = schema(shape).deserialize_batch(messages)
    assert decoded.values == [shape({"n": n}) for n in (1, 2, 3)]
    assert [bad.place for bad in decoded.bad] == [2]


def test_a_new_object_is_not_copied() -> None:
    made = []

    class Fresh(DeserializationSchema[Any]):
        def deserialize(self, message: bytes) -> Any:
            value = {"n": [int(message)]}
            made.append(id(value))
            return value

    decoded = Fresh().deserialize_batch([b"1", b"2"])
    assert list(map(id, decoded.values)) == made
