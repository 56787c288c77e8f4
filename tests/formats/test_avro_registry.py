"""Records of Avro whose schemas are in a registry, with a real one."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from tests.servers.registry import registry_server

from penstock.base.errors import ConfigurationError, FormatError, OperationError
from penstock.base.types import Row
from penstock.datastream.formats.avro import (
    AvroSchema,
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from penstock.formats.avro_confluent import RegistrySettings, SchemaRegistry


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with registry_server() as found:
        yield found


def schema(*fields: Any) -> AvroSchema:
    names = ("name", "type", "default")
    made = [dict(zip(names, field, strict=False)) for field in fields]
    return AvroSchema.parse_string(json.dumps({"type": "record", "name": "user", "fields": made}))


OLD = schema(("id", "int"), ("name", "string"))
NEW = schema(("id", "long"), ("name", "string"), ("city", ["null", "string"], None))


def test_record_of_any_schema_is_read_as_the_one_that_is_wanted(url: str) -> None:
    old = ConfluentRegistryAvroSerializationSchema.for_generic("users-value", OLD, url)
    new = ConfluentRegistryAvroSerializationSchema.for_generic("users-value", NEW, url)
    old, new = pickle.loads(pickle.dumps((old, new)))
    messages = [old.serialize((1, "ann")), new.serialize(Row(2, "bob", "Delft")), *old.serialize_batch([(3, "cy")])]
    assert [message[0] for message in messages] == [0, 0, 0]
    assert messages[0][1:5] == messages[2][1:5] != messages[1][1:5]
    reading = ConfluentRegistryAvroDeserializationSchema.for_generic(NEW, url)
    found = pickle.loads(pickle.dumps(reading)).deserialize_batch(messages)
    assert [row.as_dict() for row in found.values] == [
        {"id": 1, "name": "ann", "city": None},
        {"id": 2, "name": "bob", "city": "Delft"},
        {"id": 3, "name": "cy", "city": None},
    ]
    assert not found.bad


def test_record_is_read_as_it_was_written_where_nothing_else_is_wanted(url: str) -> None:
    [message] = ConfluentRegistryAvroSerializationSchema.for_generic("users-value", OLD, url).serialize_batch(
        [(1, "a")]
    )
    reading = ConfluentRegistryAvroDeserializationSchema.for_generic(None, url)
    assert repr(reading.deserialize(message)) == repr(Row(id=1, name="a"))


def test_what_cannot_be_read_is_bad(url: str) -> None:
    writing = ConfluentRegistryAvroSerializationSchema.for_generic("bad-value", OLD, url)
    other = ConfluentRegistryAvroSerializationSchema.for_generic("bad-value-2", schema(("x", "string")), url)
    good = writing.serialize((1, "ann"))
    reading = ConfluentRegistryAvroDeserializationSchema.for_generic(NEW, url)
    messages = [good, b"", b"\x01" + good[1:], good[:-1], b"\0\x7f\xff\xff\xff", other.serialize(("x",))]
    found = reading.deserialize_batch(messages)
    assert list(map(tuple, found.values)) == [(1, "ann", None)]
    reasons = [bad.reason for bad in found.bad]
    assert [bad.place for bad in found.bad] == [1, 2, 3, 4, 5]
    assert reasons[0] == reasons[1] == "it does not begin with a zero and the number of a schema"
    assert reasons[2] == "field 'name': it ends too early"
    assert "has no schema 2147483647" in reasons[3]
    assert "cannot be read: field 'id': the data has no such field" in reasons[4]
    with pytest.raises(FormatError, match="cannot read Avro"):
        reading.deserialize(messages[3])
    assert reading.skip_malformed().deserialize(messages[3]) is None


def test_schema_is_asked_for_and_registered_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = SchemaRegistry(RegistrySettings((url,)))
    asked: list[tuple[str, str]] = []
    ask = registry._ask

    def counted(method: str, path: str, body: Any = None) -> Any:
        asked.append((method, path))
        return ask(method, path, body)

    monkeypatch.setattr(registry, "_ask", counted)
    number = registry.register("once/value", OLD.text)
    assert registry.register("once/value", OLD.text) == number
    assert registry.schema(number) == registry.schema(number)
    assert json.loads(registry.schema(number)) == json.loads(OLD.text)
    assert asked == [("POST", "/subjects/once%2Fvalue/versions"), ("GET", f"/schemas/ids/{number}")]


def test_next_address_is_asked_where_one_does_not_answer(url: str) -> None:
    nowhere = "http://127.0.0.1:9"
    assert SchemaRegistry(RegistrySettings((nowhere, url))).register("second", OLD.text) > 0
    with pytest.raises(OperationError, match=r"does not answer GET /schemas/ids/1: http://127\.0\.0\.1:9"):
        SchemaRegistry(RegistrySettings((nowhere,))).schema(1)


def test_schema_that_the_registry_refuses_is_an_error_of_the_job(url: str) -> None:
    with pytest.raises(OperationError, match=r"refuses POST .*/subjects/s/versions \(422\)"):
        SchemaRegistry(RegistrySettings((url,))).register("s", "no schema")


def test_record_that_does_not_fit_is_refused(url: str) -> None:
    writing = ConfluentRegistryAvroSerializationSchema.for_generic("users-value", OLD, url)
    with pytest.raises(FormatError, match=r"cannot write \('x', 'a'\) as Avro: field 'id'"):
        writing.serialize_batch([(1, "a"), ("x", "a")])


def test_settings_that_cannot_be_are_refused() -> None:
    for settings, said in (
        ({"urls": ()}, "needs an address"),
        ({"urls": ("localhost:8081",)}, "begins with http"),
        ({"urls": ("http://x",), "user_info": "a:b", "token": "t"}, "not both"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            RegistrySettings(**settings)
    assert "secret" not in repr(RegistrySettings(("http://x",), user_info="me:secret"))
