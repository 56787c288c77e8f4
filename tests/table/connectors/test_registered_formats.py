"""`json-confluent` and `protobuf-confluent`: what messages and schemas are, with a real registry."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers.registry import registry_server
from tests.table.connectors.tables import held_rows
from tests.table.connectors.test_avro_confluent import decoded, encoded, make_schema

from penstock.base.errors import OperationError, UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.formats.registered import encode_path, json_schema, proto_schema

descriptor_pb2: Any = pytest.importorskip("google.protobuf.descriptor_pb2", reason="protobuf is not installed")

COLUMNS = {
    "id": "INT NOT NULL",
    "price": "DECIMAL(10, 2)",
    "name": "STRING",
    "data": "BYTES",
    "day": "DATE",
    "tags": "ARRAY<STRING>",
    "counts": "MAP<STRING, BIGINT>",
    "part": "ROW<x BOOLEAN, y DOUBLE NOT NULL>",
}
ROWS: list[tuple[Any, ...]] = [
    (1, None, "ü", b"\x00\xff", 3, ["a", None], [("k", 1)], (True, 0.5)),
    (2, *[None] * 7),
]


@pytest.fixture(scope="module", name="url")
def fixture_url() -> Iterator[str]:
    with registry_server() as found:
        yield found


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as response:
        return json.loads(response.read())


def test_json_with_its_schema_in_a_registry(url: str) -> None:
    messages = encoded("json-confluent", COLUMNS, ROWS, url=url, subject="rows-value")
    registered = ask(f"{url}/subjects/rows-value/versions/1")
    assert registered["schemaType"] == "JSON"
    assert json.loads(registered["schema"])["required"] == ["id"]
    assert {message[:5] for message in messages} == {b"\0" + registered["id"].to_bytes(4, "big")}
    assert json.loads(messages[0][5:])["name"] == "ü"
    found = decoded("json-confluent", COLUMNS, messages, url=url)
    assert not found.bad
    assert held_rows(found.columns, make_schema(COLUMNS).types) == ROWS


def test_messages_fit_the_derived_schema(url: str) -> None:
    jsonschema: Any = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    schema = json_schema(make_schema(COLUMNS))
    jsonschema.Draft7Validator.check_schema(schema)
    for message in encoded("json-confluent", COLUMNS, ROWS, url=url, subject="rows-value"):
        jsonschema.validate(json.loads(message[5:]), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": None}, schema)


def test_messages_of_another_kind_and_without_a_header_are_malformed(url: str) -> None:
    (good,) = encoded("json-confluent", {"id": "INT"}, [(7,)], url=url, subject="ids-value")
    (avro,) = encoded("avro-confluent", {"id": "INT"}, [(7,)], url=url, subject="avro-value")
    found = decoded("json-confluent", {"id": "INT"}, [avro, good, b'{"id": 7}', good[:5] + b"{no", good], url=url)
    assert found.columns.to_pylist() == [{"id": 7}, {"id": 7}]
    assert found.of_records("abcde") == ["b", "e"]
    assert [bad.place for bad in found.bad] == [0, 2, 3]
    assert "is none of JSON Schema but of AVRO" in found.bad[0].reason
    assert "does not begin with a zero" in found.bad[1].reason


def test_a_schema_that_the_registry_refuses_and_a_missing_subject_are_told(url: str) -> None:
    with pytest.raises(ValidationError, match="'subject' of the format is required"):
        encoded("json-confluent", {"id": "INT"}, [(7,)], url=url)
    with pytest.raises(OperationError, match="does not answer"):
        encoded("json-confluent", {"id": "INT"}, [(7,)], url="http://127.0.0.1:1", subject="s")


# --- Protocol Buffers -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="descriptors")
def fixture_descriptors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of descriptors: Other { } and Order, whose Part is nested, with a map, an enum, a oneof."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    part = order.nested_type.add(name="Part")
    part.field.add(name="x", number=1, type=field.TYPE_BOOL, label=1)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=field.TYPE_INT64, label=1)
    order.field.add(name="id", number=1, type=field.TYPE_INT32, label=1)
    order.field.add(name="name", number=2, type=field.TYPE_STRING, label=1, proto3_optional=True, oneof_index=1)
    order.field.add(name="tags", number=3, type=field.TYPE_STRING, label=3)
    order.field.add(name="counts", number=4, type=11, label=3, type_name=".shop.Order.CountsEntry")
    order.field.add(name="part", number=5, type=11, label=1, type_name=".shop.Order.Part")
    order.field.add(name="state", number=6, type=14, label=1, type_name=".shop.State")
    order.field.add(name="card", number=7, type=field.TYPE_STRING, label=1, oneof_index=0)
    order.field.add(name="cash", number=8, type=field.TYPE_BOOL, label=1, oneof_index=0)
    order.oneof_decl.add(name="payment")
    order.oneof_decl.add(name="_name")
    path: Path = tmp_path_factory.mktemp("protobuf") / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return str(path)


ORDERS = {
    "id": "INT",
    "name": "STRING",
    "tags": "ARRAY<STRING>",
    "counts": "MAP<STRING, BIGINT>",
    "part": "ROW<x BOOLEAN>",
    "state": "STRING",
    "card": "STRING",
}


def test_protocol_buffers_with_their_schema_in_a_registry(url: str, descriptors: str) -> None:
    options = {"url": url, "message-class-name": "shop.Order", "descriptor-file": descriptors}
    rows = [(7, "ü", ["a", "b"], [("k", 3)], (True,), "PAID", "4711"), (8, None, [], [], None, "NEW", None)]
    messages = encoded("protobuf-confluent", ORDERS, rows, None, **options, subject="orders-value")
    registered = ask(f"{url}/subjects/orders-value/versions/1")
    assert registered["schemaType"] == "PROTOBUF"
    # Order is the second type of the file: a path of one number, 1.
    assert {message[:7] for message in messages} == {b"\0" + registered["id"].to_bytes(4, "big") + b"\x02\x02"}
    found = decoded("protobuf-confluent", ORDERS, messages, None, **options)
    assert not found.bad
    read = held_rows(found.columns, make_schema(ORDERS).types)
    assert read[0] == rows[0]
    assert read[1][:2] == (8, None)


def test_the_source_of_a_schema_is_made_of_its_descriptor(descriptors: str) -> None:
    from penstock.formats.protobuf import ProtobufType

    order = ProtobufType.of_file("shop.Order", descriptors).descriptor
    assert proto_schema(order.file) == (
        'syntax = "proto3";\npackage shop;\nenum State {\n  NEW = 0;\n  PAID = 1;\n}\nmessage Other {\n}\n'
        "message Order {\n  message Part {\n    bool x = 1;\n  }\n  int32 id = 1;\n  optional string name = 2;\n"
        "  repeated string tags = 3;\n  map<string, int64> counts = 4;\n  .shop.Order.Part part = 5;\n"
        "  .shop.State state = 6;\n  oneof payment {\n    string card = 7;\n    bool cash = 8;\n  }\n}\n"
    )
    paths = {
        "shop.Other": b"\0",
        "shop.Order": b"\x02\x02",
        "shop.Order.Part": b"\x04\x02\x00",
    }
    for name, path in paths.items():
        assert encode_path(ProtobufType.of_file(name, descriptors).descriptor) == path


def test_a_file_that_needs_others_has_no_derived_source() -> None:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3"))
    pool.Add(descriptor_pb2.FileDescriptorProto(name="b.proto", syntax="proto3", dependency=["a.proto"]))
    with pytest.raises(UnsupportedError, match=r"it needs a\.proto: give the source in the option 'schema'"):
        proto_schema(pool.FindFileByName("b.proto"))


def test_a_path_that_ends_too_early_is_malformed(url: str, descriptors: str) -> None:
    options = {"url": url, "message-class-name": "shop.Order", "descriptor-file": descriptors}
    (message,) = encoded("protobuf-confluent", {"id": "INT"}, [(7,)], None, **options, subject="orders-value")
    found = decoded("protobuf-confluent", {"id": "INT"}, [message[:6], message], None, **options)
    assert [(bad.place, bad.reason) for bad in found.bad] == [(0, "the path of the message's type ends too early")]
    assert found.columns.to_pylist() == [{"id": 7}]
