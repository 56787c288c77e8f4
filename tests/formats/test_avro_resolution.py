"""Records of Avro that were written with one schema and are read as another."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import FormatError
from penstock.base.types import Row
from penstock.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema


def schema(*fields: Any, name: str = "r") -> str:
    """The schema of a record with fields (name, type) or (name, type, default)."""
    made = [
        {"name": field[0], "type": field[1], **({"default": field[2]} if len(field) > 2 else {})} for field in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": made})


def read(written: str, wanted: str, value: Any) -> Any:
    message = AvroRowSerializationSchema(avro_schema_string=written).serialize(value)
    reading = AvroRowDeserializationSchema(avro_schema_string=wanted, writer_schema_string=written)
    [row] = pickle.loads(pickle.dumps(reading)).deserialize_batch([message]).values
    return row


ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
INNER = {"type": "record", "name": "in", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}


@pytest.mark.parametrize(
    ("written", "wanted", "value", "expected"),
    [
        ("int", "long", 7, 7),
        ("int", "double", 7, 7.0),
        ("long", "float", 7, 7.0),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", "é".encode(), "é"),
        ("int", ["null", "long"], 7, 7),
        (["null", "int"], "long", 7, 7),
        (["null", "int"], ["null", "double"], None, None),
        (["int", "string"], ["string", "long"], "a", "a"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1, 2], [1.0, 2.0]),
        (
            {"type": "map", "values": ["null", "int"]},
            {"type": "map", "values": ["null", "long"]},
            {"a": None},
            {"a": None},
        ),
        (ENUM, {**ENUM, "symbols": ["B"], "default": "B"}, "A", "B"),
        ({"type": "fixed", "name": "f", "size": 2}, {"type": "fixed", "name": "f", "size": 2}, b"ab", b"ab"),
        (INNER, {**INNER, "fields": INNER["fields"][1:]}, (1, "a"), Row(y="a")),
    ],
)
def test_value_is_read_as_another_type(written: Any, wanted: Any, value: Any, expected: Any) -> None:
    row = read(schema(("before", "string"), ("v", written), ("after", "long")), schema(("v", wanted)), ("b", value, 9))
    assert repr(row) == repr(Row(v=expected))


def test_fields_come_go_and_move() -> None:
    written = schema(("a", "int"), ("gone", {"type": "array", "items": INNER}), ("b", "string"))
    wanted = schema(
        ("new", ["null", "int"], None),
        ("b", "string"),
        ("list", {"type": "array", "items": "int"}, [1]),
        ("a", "int"),
        ("inner", INNER, {"x": 1, "y": "z"}),
        ("raw", "bytes", "ÿ"),
    )
    row = read(written, wanted, (7, [(1, "p"), (2, "q")], "text"))
    assert repr(row) == repr(Row(new=None, b="text", list=[1], a=7, inner=Row(x=1, y="z"), raw=b"\xff"))


def test_default_that_can_change_is_another_one_for_each_record() -> None:
    written, wanted = schema(("a", "int")), schema(("list", {"type": "array", "items": "int"}, []))
    reading = AvroRowDeserializationSchema(avro_schema_string=wanted, writer_schema_string=written)
    first, second = reading.deserialize_batch([b"\x02", b"\x04"]).values
    assert first[0] is not second[0]


def test_field_that_has_another_name_now_is_found_by_its_alias() -> None:
    wanted = json.dumps({"type": "record", "name": "r", "fields": [{"name": "new", "type": "int", "aliases": ["old"]}]})
    assert repr(read(schema(("old", "int")), wanted, (7,))) == repr(Row(new=7))


def test_record_that_holds_itself() -> None:
    node = schema(("n", "int"), ("next", ["null", "r"], None))
    wider = schema(("next", ["null", "r"], None), ("n", "long"))
    assert repr(read(node, wider, (1, (2, None)))) == repr(Row(next=Row(next=None, n=2), n=1))


@pytest.mark.parametrize(
    ("written", "wanted", "reason"),
    [
        (schema(("v", "long")), schema(("v", "int")), "field 'v': long cannot be read as int"),
        (
            schema(("a", "int")),
            schema(("v", "int")),
            "field 'v': the data has no such field, and the schema no default",
        ),
        (
            schema(("v", INNER)),
            schema(("v", {**INNER, "fields": [{"name": "x", "type": "string"}]})),
            "field 'v.x': int",
        ),
    ],
)
def test_schemas_that_do_not_fit_are_refused_at_once(written: str, wanted: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        AvroRowDeserializationSchema(avro_schema_string=wanted, writer_schema_string=written)


def test_branch_that_does_not_fit_is_refused_where_it_is_met() -> None:
    written, wanted = schema(("v", ["null", "int", "string"])), schema(("v", "int"))
    writing = AvroRowSerializationSchema(avro_schema_string=written)
    reading = AvroRowDeserializationSchema(avro_schema_string=wanted, writer_schema_string=written)
    found = reading.deserialize_batch(writing.serialize_batch([(1,), ("a",), (None,), (4,)]))
    assert [row["v"] for row in found.values] == [1, 4]
    assert [(bad.place, bad.reason) for bad in found.bad] == [
        (1, "field 'v': string cannot be read as int"),
        (2, "field 'v': null cannot be read as int"),
    ]


def test_field_of_bad_bytes_is_named() -> None:
    inner = schema(("a", "string"), ("v", INNER))
    reading = AvroRowDeserializationSchema(avro_schema_string=inner)
    good = AvroRowSerializationSchema(avro_schema_string=inner).serialize(("text", (7, "more")))
    found = reading.deserialize_batch([good[:3], good[:7], good + b"x", b"\x01" + good])
    assert [bad.reason for bad in found.bad] == [
        "field 'a': it ends too early",
        "field 'v.y': it ends too early",
        "bytes are left after the record",
        "field 'a': it ends too early",
    ]


PLAIN_TYPES = ("int", "long", "string", "float", "double", "boolean", "bytes", "null")
PLAIN_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.integers(-70, 70),
    st.floats(),
    st.text(max_size=70),
    st.binary(max_size=3),
)


@given(
    kinds=st.lists(
        st.sampled_from(PLAIN_TYPES) | st.sampled_from(PLAIN_TYPES).map(lambda one: ["null", one]), max_size=3
    ),
    data=st.data(),
)
def test_quick_writing_agrees_with_thorough(kinds: list[Any], data: st.DataObject) -> None:
    """Bytes of a record, or a refusal that names the field."""
    values = [data.draw(PLAIN_VALUES) for _ in kinds]
    writing = AvroRowSerializationSchema(
        avro_schema_string=schema(*((f"f{at}", kind) for at, kind in enumerate(kinds)))
    )
    out = bytearray()
    try:
        writing._writer._write(out, values)
    except (ArithmeticError, ValueError):
        with pytest.raises(FormatError, match="field 'f"):
            writing.serialize(values)
    else:
        assert writing.serialize(values) == out


@given(data=st.binary(max_size=12))
def test_any_bytes_are_a_record_or_bad(data: bytes) -> None:
    fields = ("a", "string"), ("l", {"type": "array", "items": ["null", "r"]}), ("m", {"type": "map", "values": "int"})
    reading = AvroRowDeserializationSchema(avro_schema_string=schema(*fields))
    found = reading.deserialize_batch([data])
    assert len(found.values) + len(found.bad) == 1
