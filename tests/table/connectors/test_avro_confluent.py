"""`avro`, `avro-confluent` and `debezium-avro-confluent` as messages, the latter two with a real registry."""

from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.servers.registry import registry_server
from tests.table.connectors.tables import build_reader, held_rows, writer_of

from penstock.codecs.serialization import Deserialized
from penstock.datastream.formats.avro import AvroSchema, ConfluentRegistryAvroSerializationSchema
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data.arrow import to_column
from penstock.sql.data.errors import ValidationError
from penstock.sql.formats import built_in_formats
from penstock.sql.formats.avro import avro_schema
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT, PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions

ALL_TYPES = {
    "i": "INT NOT NULL",
    "t": "TINYINT",
    "b": "BOOLEAN",
    "f": "FLOAT",
    "d": "DOUBLE",
    "n": "DECIMAL(20, 5)",
    "s": "STRING",
    "y": "BYTES",
    "da": "DATE",
    "tm": "TIME(3)",
    "ms": "TIMESTAMP(3)",
    "us": "TIMESTAMP(6)",
    "lt": "TIMESTAMP_LTZ(3)",
    "ar": "ARRAY<DECIMAL(4, 2)>",
    "mp": "MAP<STRING, TIMESTAMP(3)>",
    "ro": "ROW<x INT, z ROW<q STRING>>",
}
ROWS: list[tuple[Any, ...]] = [
    (
        *(1, -128, True, 0.5, 1e300, Decimal("-99999.99999"), "ß", b"\x00\xff", -1, 3_723_004, -1_000_000),
        *(1_577_934_245_678_901_000, 7_000_000, [Decimal("1.50"), None], [("k", 5_000_000)], (None, ("q",))),
    ),
    (2, *[None] * 15),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with registry_server() as found:
        yield found


def make_schema(columns: dict[str, str]) -> RowSchema:
    return RowSchema(tuple(PlanColumn(name, parse_data_type(kind)) for name, kind in columns.items()))


def found_format(name: str, options: dict[str, str]) -> tuple[Any, TableOptions]:
    values = {"format": name, **{f"{name}.{key}": value for key, value in options.items()}}
    return built_in_formats().find(TableOptions("t", values))


def encoded(
    name: str, columns: dict[str, str], rows: list[tuple[Any, ...]], kinds: bytes | None = None, **options: str
) -> list[bytes]:
    found, below = found_format(name, options)
    schema = make_schema(columns)
    encoder = pickle.loads(pickle.dumps(found.encoding(schema, below).messages))
    arrays = [to_column(values, kind) for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema.names)
    messages: list[bytes] = encoder.encode(batch) if kinds is None else encoder.encode_changes(batch, kinds)
    return messages


def decoded(
    name: str, columns: dict[str, str], messages: list[bytes], wanted: list[int] | None = None, **options: str
) -> Deserialized:
    found, below = found_format(name, options)
    schema = make_schema(columns)
    decoding = found.decoding(schema, range(len(schema)) if wanted is None else wanted, below)
    result: Deserialized = pickle.loads(pickle.dumps(decoding.messages)).decode(messages)
    return result


def test_messages_without_a_registry_have_all_types() -> None:
    messages = encoded("avro", ALL_TYPES, ROWS)
    found = decoded("avro", ALL_TYPES, messages)
    assert not found.bad
    assert held_rows(found.columns, make_schema(ALL_TYPES).types) == ROWS


def test_only_what_is_wanted_is_made() -> None:
    found = decoded("avro", ALL_TYPES, encoded("avro", ALL_TYPES, ROWS), wanted=[6, 0])
    assert found.columns.to_pylist() == [{"s": "ß", "i": 1}, {"s": None, "i": 2}]


def test_bad_messages_are_told_with_the_field() -> None:
    columns = {"i": "INT NOT NULL", "s": "STRING"}
    [good] = encoded("avro", columns, [(1, "abc")])
    found = decoded("avro", columns, [good, good[:-1], b"", good])
    assert found.columns.num_rows == 2
    assert found.of_records("abcd") == ["a", "d"]
    assert [(bad.place, bad.reason) for bad in found.bad] == [
        (1, "field 's': it ends too early"),
        (2, "field 'i': it ends too early"),
    ]
    avro, options = found_format("avro", {"ignore-parse-errors": "true"})
    assert avro.decoding(make_schema(columns), [0], options).skips_bad


def test_schema_is_as_flink_makes_it() -> None:
    """Names of records inside, and NULL as the default, so that data without a column can be read."""
    columns = {"a": "INT NOT NULL", "r": "ROW<x ARRAY<ROW<y INT>>>"}
    assert json.loads(avro_schema(make_schema(columns)).text) == {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.flink.avro.generated",
        "fields": [
            {"name": "a", "type": "int"},
            {
                "name": "r",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "record_r",
                        "fields": [
                            {
                                "name": "x",
                                "type": [
                                    "null",
                                    {
                                        "type": "array",
                                        "items": [
                                            "null",
                                            {
                                                "type": "record",
                                                "name": "record_r_x",
                                                "fields": [{"name": "y", "type": ["null", "int"], "default": None}],
                                            },
                                        ],
                                    },
                                ],
                                "default": None,
                            }
                        ],
                    },
                ],
                "default": None,
            },
        ],
    }


def test_all_types_go_through_a_registry(url: str) -> None:
    messages = encoded("avro-confluent", ALL_TYPES, ROWS, url=url, subject="all-value")
    assert {message[:1] for message in messages} == {b"\0"}
    found = decoded("avro-confluent", ALL_TYPES, messages, url=url)
    assert not found.bad
    assert held_rows(found.columns, make_schema(ALL_TYPES).types) == ROWS


def test_columns_are_found_in_whichever_schema_a_record_has(url: str) -> None:
    """As another program wrote them: other types, an enum, a time in microseconds, fields that the table has not."""
    fields = [
        {"name": "kind", "type": {"type": "enum", "name": "kinds", "symbols": ["A", "B"]}},
        {"name": "more", "type": {"type": "map", "values": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "id", "type": "int"},
    ]
    text = json.dumps({"type": "record", "name": "Event", "namespace": "org.shop", "fields": fields})
    writing = ConfluentRegistryAvroSerializationSchema.for_generic("e-value", AvroSchema.parse_string(text), url)
    message = writing.serialize(("B", {"x": "y"}, datetime.datetime(1970, 1, 1, 0, 0, 1, 2_000), 7))
    columns = {"id": "BIGINT", "kind": "STRING", "at": "TIMESTAMP(3)", "absent": "STRING"}
    found = decoded("avro-confluent", columns, [message], url=url)
    assert not found.bad
    assert held_rows(found.columns, make_schema(columns).types) == [(7, "B", 1_002_000_000, None)]


def test_schema_may_be_given(url: str) -> None:
    fields = [{"name": "name", "type": "string", "doc": "who"}, {"name": "id", "type": "long"}]
    text = json.dumps({"type": "record", "name": "User", "fields": fields})
    columns = {"id": "BIGINT", "name": "STRING"}
    options: dict[str, Any] = {"url": url, "subject": "given-value", "schema": text}
    messages = encoded("avro-confluent", columns, [(7, "ann")], **options)
    assert messages[0][5:] == b"\x06ann\x0e"
    assert decoded("avro-confluent", columns, messages, **options).columns.to_pylist() == [{"id": 7, "name": "ann"}]
    with pytest.raises(ValidationError, match=r"avro-confluent\.schema.*must be the table's columns id, other"):
        encoded("avro-confluent", {"id": "BIGINT", "other": "STRING"}, [(7, "ann")], **options)


def test_debezium_tells_changes(url: str) -> None:
    columns = {"id": "INT NOT NULL", "r": "ROW<x INT>"}
    rows = [(1, (7,))] * 4
    options = {"url": url, "subject": "changes-value"}
    messages = encoded("debezium-avro-confluent", columns, rows, bytes([0, 1, 2, 3]), **options)
    found = decoded("debezium-avro-confluent", columns, [*messages[:1], b"", *messages[1:]], url=url)
    shown = [SHORT[kind] for kind in found.kinds or b""]
    assert shown == ["+I", "-D", "+I", "-D"]
    assert held_rows(found.columns, make_schema(columns).types) == rows
    assert found.of_records(range(5)) == [0, 2, 3, 4]


def test_debezium_update_is_two_rows_and_needs_the_row_as_it_was(url: str) -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": "long"}]}
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "map", "values": "string"}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    schema = AvroSchema.parse_string(json.dumps({"type": "record", "name": "Envelope", "fields": fields}))
    write = ConfluentRegistryAvroSerializationSchema.for_generic("shop.users-value", schema, url).serialize
    messages = [
        write((None, (1, 5), {}, "r", None)),
        write(((1, 5), (1, 6), {"db": "x"}, "u", 7)),
        write((None, (1, 6), {}, "u", 8)),
        write((None, None, {}, "d", 8)),
        write((None, (1, 6), {}, "t", 8)),
    ]
    columns = {"v": "BIGINT", "id": "INT"}
    found = decoded("debezium-avro-confluent", columns, messages, url=url)
    assert [SHORT[kind] for kind in found.kinds or b""] == ["+I", "-U", "+U"]
    assert held_rows(found.columns, make_schema(columns).types) == [(5, 1), (5, 1), (6, 1)]
    reasons = [bad.reason for bad in found.bad]
    assert [bad.place for bad in found.bad] == [2, 3, 4]
    assert all("must be set to REPLICA IDENTITY FULL" in reason for reason in reasons[:2])
    assert reasons[2].startswith("unknown \"op\" value 't'")


def test_options_that_are_needed_are_asked_for() -> None:
    columns = make_schema({"id": "INT"})
    for name in ("avro-confluent", "debezium-avro-confluent"):
        found, without = found_format(name, {})
        with pytest.raises(ValidationError, match=rf"Missing required options are: {name}\.url"):
            found.decoding(columns, [0], without)
        found, options = found_format(name, {"url": "http://localhost:1"})
        with pytest.raises(ValidationError, match="Option 'subject' of the format is required for writing"):
            found.encoding(columns, options)
        assert found.decoding(columns, [0], options).changes == (ALL if "debezium" in name else INSERTS)
        found, wrong = found_format(name, {"url": "localhost"})
        with pytest.raises(ValidationError, match=rf"'{name}\.url'.*begins with http"):
            found.decoding(columns, [0], wrong)


def test_files_are_refused() -> None:
    ddl = "CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = '/x', 'format' = 'avro-confluent', "
    ddl += "'avro-confluent.url' = 'http://localhost:1', 'avro-confluent.subject' = 's')"
    for use in (build_reader, writer_of):
        with pytest.raises(ValidationError, match="Format 'avro-confluent' has only messages, and no files"):
            use(ddl)
