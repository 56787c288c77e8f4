"""Messages that Google's library writes, read by Penstock, and the other way round, for every type of field."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.types import Row
from penstock.datastream.formats.protobuf import (
    ProtobufRowDeserializationSchema,
    ProtobufRowSerializationSchema,
    ProtobufType,
)

Field = descriptor_pb2.FieldDescriptorProto
FLOATS = st.floats(width=32)
#: the scalar types, and their values
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(-(2**31), 2**31 - 1) for name in ("INT32", "SINT32", "SFIXED32")},
    **{name: st.integers(-(2**63), 2**63 - 1) for name in ("INT64", "SINT64", "SFIXED64")},
    **{name: st.integers(0, 2**32 - 1) for name in ("UINT32", "FIXED32")},
    **{name: st.integers(0, 2**64 - 1) for name in ("UINT64", "FIXED64")},
    "FLOAT": FLOATS,
    "DOUBLE": st.floats(),
    "BOOL": st.booleans(),
    "STRING": st.text(max_size=3),
    "BYTES": st.binary(max_size=3),
    "ENUM": st.sampled_from(("ZERO", "ONE", "MINUS")),
}
KEYS = [name for name in SCALARS if name not in ("FLOAT", "DOUBLE", "BYTES", "ENUM")]


def build_file(syntax: str) -> descriptor_pb2.FileDescriptorProto:
    """A message `All` with each scalar type as a field, an optional field, an array, a map's value and a map's key."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{syntax}.proto", package=syntax, syntax=syntax)
    kind = file.enum_type.add(name="Kind")
    for name, number in (("ZERO", 0), ("ONE", 1), ("MINUS", -1)):
        kind.value.add(name=name, number=number)
    message = file.message_type.add(name="All")
    numbers = iter(range(1, 1000))

    def add(target: Any, name: str, number: int, scalar: str, label: int, **more: Any) -> Any:
        field = target.field.add(name=name, number=number, label=label, type=Field.Type.Value(f"TYPE_{scalar}"), **more)
        if scalar == "ENUM":
            field.type_name = f".{syntax}.Kind"
        return field

    for scalar in SCALARS:
        low = scalar.lower()
        add(message, f"one_{low}", next(numbers), scalar, Field.LABEL_OPTIONAL)
        add(message, f"many_{low}", next(numbers), scalar, Field.LABEL_REPEATED)
        if syntax == "proto3":
            message.oneof_decl.add(name=f"_maybe_{low}")
    for place, scalar in enumerate(SCALARS):
        low = scalar.lower()
        more = {"proto3_optional": True, "oneof_index": place} if syntax == "proto3" else {}
        add(message, f"maybe_{low}", next(numbers), scalar, Field.LABEL_OPTIONAL, **more)
        entry = message.nested_type.add(name=f"Map{low.title()}Entry")
        entry.options.map_entry = True
        add(entry, "key", 1, KEYS[place % len(KEYS)], Field.LABEL_OPTIONAL)
        add(entry, "value", 2, scalar, Field.LABEL_OPTIONAL)
        message.field.add(
            name=f"map_{low}",
            number=next(numbers),
            label=Field.LABEL_REPEATED,
            type=Field.TYPE_MESSAGE,
            type_name=f".{syntax}.All.{entry.name}",
        )
    return file


FILES = {syntax: build_file(syntax) for syntax in ("proto2", "proto3")}


def google_class(syntax: str) -> Any:
    pool = DescriptorPool()
    pool.Add(FILES[syntax])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{syntax}.All"))


def penstock_type(syntax: str) -> ProtobufType:
    return ProtobufType(f"{syntax}.All", descriptor_pb2.FileDescriptorSet(file=[FILES[syntax]]).SerializeToString())


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """The fields that a message has, by their names."""
    found: dict[str, Any] = {}
    for place, (scalar, values) in enumerate(SCALARS.items()):
        low = scalar.lower()
        for form in draw(st.sets(st.sampled_from(("one", "maybe", "many", "map")), max_size=2)):
            if form in ("one", "maybe"):
                found[f"{form}_{low}"] = draw(values)
            elif form == "many":
                found[f"many_{low}"] = draw(st.lists(values, min_size=1, max_size=3))
            else:
                keys = SCALARS[KEYS[place % len(KEYS)]]
                found[f"map_{low}"] = draw(st.dictionaries(keys, values, min_size=1, max_size=3))
    return found


def same(one: Any, other: Any) -> bool:
    """Equality in which NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or one == other
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.parametrize("syntax", FILES)
@given(record=records())
def test_messages_of_google_are_read_and_written_as_google_does(syntax: str, record: dict[str, Any]) -> None:
    """K4: each field has Google's value, or None where it is not set; the bytes written are Google's bytes."""
    message = google_class(syntax)()
    enums = {name for name in record if name.endswith("_enum")}
    number_of = {"ZERO": 0, "ONE": 1, "MINUS": -1}.__getitem__
    for name, value in record.items():
        if name.startswith("many"):
            getattr(message, name).extend(list(map(number_of, value)) if name in enums else value)
        elif name.startswith("map"):
            items = {key: number_of(item) if name in enums else item for key, item in value.items()}
            for key, item in items.items():
                getattr(message, name)[key] = item
        else:
            setattr(message, name, number_of(value) if name in enums else value)
    data = message.SerializeToString(deterministic=True)
    row = ProtobufRowDeserializationSchema(penstock_type(syntax)).deserialize(data)
    assert row is not None
    found = row.as_dict()
    unset = {
        name: value
        for name, value in found.items()
        if name not in record and not (syntax == "proto3" and name[:3] == "one")
    }
    assert set(unset.values()) <= {None}
    assert same({name: found[name] for name in record}, record)
    (written,) = ProtobufRowSerializationSchema(penstock_type(syntax)).serialize_batch([Row(**found)])
    again = google_class(syntax).FromString(written)
    assert again.SerializeToString(deterministic=True) == data
