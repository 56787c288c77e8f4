"""Changelogs as messages and as files: what each format says of rows, as Flink reads and writes it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table.connectors.tables import held_rows

from penstock.codecs.serialization import Deserialized
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data.arrow import to_column
from penstock.sql.data.errors import ValidationError
from penstock.sql.formats import built_in_formats
from penstock.sql.logical.nodes import ALL, SHORT, PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions
from penstock.table import EnvironmentSettings, TableEnvironment

ROW = {"id": "INT", "name": "STRING"}


def make_schema(columns: dict[str, str]) -> RowSchema:
    return RowSchema(tuple(PlanColumn(name, parse_data_type(kind)) for name, kind in columns.items()))


def found_format(name: str, options: dict[str, str]) -> tuple[Any, TableOptions]:
    values = {"format": name, **{f"{name}.{key}": value for key, value in options.items()}}
    return built_in_formats().find(TableOptions("t", values))


def decoded(
    name: str,
    messages: list[bytes],
    columns: dict[str, str] = ROW,
    metadata: dict[str, str] | None = None,
    options: dict[str, str] | None = None,
) -> Deserialized:
    found, below = found_format(name, options or {})
    schema = make_schema(columns)
    places = {schema.names.index(column): key for column, key in (metadata or {}).items()}
    decoding = found.decoding_with_metadata(schema, range(len(schema)), below, places)
    assert decoding.changes == ALL
    result: Deserialized = pickle.loads(pickle.dumps(decoding.messages)).decode(messages)
    return result


def shown(found: Deserialized, columns: dict[str, str] = ROW) -> list[tuple[Any, ...]]:
    kinds = found.kinds or bytes(len(found.values))
    rows = held_rows(found.columns, make_schema(columns).types)
    return [(SHORT[kind], *row) for kind, row in zip(kinds, rows, strict=True)]


READ = {
    "debezium-json": (
        [
            b'{"before": null, "after": {"id": 1, "name": "a"}, "op": "c", "source": {"x": [1]}}',
            b'{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, "op": "u"}',
            b"",
            b'{"before": {"id": 1, "name": "b"}, "after": null, "op": "d"}',
            b"null",
            b'{"after": {"id": 2}, "op": "r"}',
        ],
        [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b"), ("+I", 2, None)],
        [0, 1, 1, 3, 5],
    ),
    "canal-json": (
        [
            b'{"data": [{"id": "1", "name": "a"}, {"id": 2, "name": null}], "type": "INSERT"}',
            b'{"data": [{"id": 1, "name": "b"}], "old": [{"name": "a"}], "type": "UPDATE"}',
            b'{"data": [{"id": 1, "name": "c"}], "old": [{"name": null}], "type": "UPDATE"}',
            b'{"data": null, "type": "CREATE"}',
            b'{"data": [{"id": 1, "name": "c"}], "type": "DELETE"}',
        ],
        [
            ("+I", 1, "a"),
            ("+I", 2, None),
            ("-U", 1, "a"),
            ("+U", 1, "b"),
            ("-U", 1, None),
            ("+U", 1, "c"),
            ("-D", 1, "c"),
        ],
        [0, 0, 1, 1, 2, 2, 4],
    ),
    "maxwell-json": (
        [
            b'{"database": "d", "type": "insert", "xid": 1, "data": {"id": 1, "name": "a"}}',
            b'{"type": "update", "data": {"id": 1, "name": "b"}, "old": {"name": "a"}}',
            b'{"type": "delete", "data": {"id": 1, "name": "b"}}',
        ],
        [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")],
        [0, 1, 1, 2],
    ),
    "ogg-json": (
        [
            b'{"before": null, "after": {"id": 1, "name": "a"}, "op_type": "I"}',
            b'{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, "op_type": "U"}',
            b'{"before": {"id": 1, "name": "b"}, "op_type": "D"}',
        ],
        [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")],
        [0, 1, 1, 2],
    ),
}
#: of a row (1, "a"): how it comes, and how it goes; taken from files that Flink 2.3 wrote
WRITTEN = {
    "debezium-json": (
        b'{"before":null,"after":{"id":1,"name":"a"},"op":"c"}',
        b'{"before":{"id":1,"name":"a"},"after":null,"op":"d"}',
    ),
    "canal-json": (
        b'{"data":[{"id":1,"name":"a"}],"type":"INSERT"}',
        b'{"data":[{"id":1,"name":"a"}],"type":"DELETE"}',
    ),
    "maxwell-json": (
        b'{"data":{"id":1,"name":"a"},"type":"insert"}',
        b'{"data":{"id":1,"name":"a"},"type":"delete"}',
    ),
    "ogg-json": (
        b'{"before":null,"after":{"id":1,"name":"a"},"op_type":"I"}',
        b'{"before":{"id":1,"name":"a"},"after":null,"op_type":"D"}',
    ),
}
NAMES = tuple(READ)


@pytest.mark.parametrize("name", NAMES)
def test_messages_are_changes(name: str) -> None:
    messages, expected, places = READ[name]
    found = decoded(name, messages)
    assert not found.bad
    assert shown(found) == expected
    assert found.of_records(range(len(messages))) == places


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_written_as_rows_that_go_and_come(name: str) -> None:
    found, below = found_format(name, {})
    schema = make_schema(ROW)
    encoding = found.encoding(schema, below)
    assert encoding.accepts == ALL
    columns = [to_column([value] * 4, kind) for value, kind in zip((1, "a"), schema.types, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema.names)
    came, went = WRITTEN[name]
    assert encoding.messages.encode_changes(batch, bytes([0, 1, 2, 3])) == [came, went, came, went]
    assert encoding.messages.encode(batch) == [came] * 4
    assert shown(decoded(name, [came, went])) == [("+I", 1, "a"), ("-D", 1, "a")]


@pytest.mark.parametrize(
    ("name", "message", "reason"),
    [
        ("debezium-json", b'{"after": {"id": 1}, "op": "u"}', "must be set to REPLICA IDENTITY FULL"),
        ("debezium-json", b'{"op": "d"}', "must be set to REPLICA IDENTITY FULL"),
        ("debezium-json", b'{"op": "c"}', """the "after" field of an INSERT ('c') message is null"""),
        ("debezium-json", b'{"after": {"id": 1}, "op": "t"}', "unknown \"op\" value 't'"),
        ("debezium-json", b'{"id": 1}', "missing required field `op`"),
        ("debezium-json", b"x", "malformed"),
        ("debezium-json", b'{"after": {"id": "x"}, "op": "c"}', "column 'id': 'x' cannot be read"),
        ("debezium-json", b'{"before": {"id": "x"}, "after": {"id": 7}, "op": "u"}', "column 'id': 'x' cannot be read"),
        ("canal-json", b'{"data": [{"id": 1}], "type": "UPDATE"}', '1 rows in "data" and 0 in "old"'),
        ("canal-json", b'{"data": [], "type": "TRUNCATE"}', "unknown \"type\" value 'TRUNCATE'"),
        ("maxwell-json", b'{"data": {}, "type": "bootstrap-start"}', "unknown \"type\" value 'bootstrap-start'"),
        ("ogg-json", b'{"op_type": "T"}', "unknown \"op_type\" value 'T'"),
        ("ogg-json", b'{"after": {"id": 1}, "op_type": "U"}', 'the "before" field of an UPDATE message is null'),
    ],
)
def test_message_that_is_no_change_is_bad_as_a_whole(name: str, message: bytes, reason: str) -> None:
    good = READ[name][0][0]
    found = decoded(name, [good, message, good])
    assert [bad.place for bad in found.bad] == [1]
    assert reason in found.bad[0].reason
    assert len(found.values) == 2 * len(decoded(name, [good]).values)
    assert set(found.of_records(range(3))) == {0, 2}


def test_errors_are_ignored_where_the_table_says_so() -> None:
    """As in Flink: a value that cannot be read is NULL, a message that cannot be read is left out."""
    messages = [b"x", b'{"after": {"id": "q", "name": "k"}, "op": "c"}', b'{"after": {"id": 1}, "op": "u"}']
    found = decoded("debezium-json", messages, options={"ignore-parse-errors": "true"})
    assert shown(found) == [("+I", None, "k")]
    assert [bad.place for bad in found.bad] == [0, 2]


def test_schema_beside_the_payload() -> None:
    message = b'{"schema": {"type": "struct"}, "payload": {"before": null, "after": {"id": 1}, "op": "c", "ts_ms": 5}}'
    columns = {"schema": "STRING", "id": "INT", "at": "TIMESTAMP_LTZ(3)"}
    metadata = {"schema": "schema", "at": "ingestion-timestamp"}
    found = decoded("debezium-json", [message], columns, metadata, {"schema-include": "true"})
    assert shown(found, columns) == [("+I", '{"type":"struct"}', 1, 5_000_000)]
    with pytest.raises(ValidationError, match=r"debezium-json\.schema-include"):
        found_format("debezium-json", {})[0].encoding(
            make_schema(ROW), found_format("debezium-json", {"schema-include": "true"})[1]
        )


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        (
            "debezium-json",
            b'{"after": {"id": 1}, "op": "c", "ts_ms": 7, "source": {"ts_ms": 6, "db": "d", "schema": "s", "table": '
            b'"t", "lsn": 9, "snapshot": null}}',
            {
                "ingestion-timestamp": ("TIMESTAMP_LTZ(3)", 7_000_000),
                "source.timestamp": ("TIMESTAMP_LTZ(6)", 6_000_000),
                "source.database": ("STRING", "d"),
                "source.schema": ("STRING", "s"),
                "source.table": ("STRING", "t"),
                "source.properties": (
                    "MAP<STRING, STRING>",
                    [("ts_ms", "6"), ("db", "d"), ("schema", "s"), ("table", "t"), ("lsn", "9"), ("snapshot", None)],
                ),
                "schema": ("STRING", None),
            },
        ),
        (
            "canal-json",
            b'{"data": [{"id": 1}], "type": "INSERT", "database": "d", "table": "t", "sqlType": {"id": 4}, '
            b'"pkNames": ["id"], "ts": 7, "es": 6}',
            {
                "database": ("STRING", "d"),
                "table": ("STRING", "t"),
                "sql-type": ("MAP<STRING, INT>", [("id", 4)]),
                "pk-names": ("ARRAY<STRING>", ["id"]),
                "ingestion-timestamp": ("TIMESTAMP_LTZ(3)", 7_000_000),
                "event-timestamp": ("TIMESTAMP_LTZ(3)", 6_000_000),
            },
        ),
        (
            "maxwell-json",
            b'{"data": {"id": 1}, "type": "insert", "database": "d", "table": "t", "primary_key_columns": ["id"], '
            b'"ts": 7}',
            {
                "database": ("STRING", "d"),
                "table": ("STRING", "t"),
                "primary-key-columns": ("ARRAY<STRING>", ["id"]),
                "ingestion-timestamp": ("TIMESTAMP_LTZ(3)", 7_000_000),
            },
        ),
        (
            "ogg-json",
            b'{"after": {"id": 1}, "op_type": "I", "table": "o.t", "primary_keys": ["id"], '
            b'"op_ts": "1970-01-01 00:00:00.000006", "current_ts": "1970-01-01T00:00:00.000007"}',
            {
                "table": ("STRING", "o.t"),
                "primary-keys": ("ARRAY<STRING>", ["id"]),
                "event-timestamp": ("TIMESTAMP_LTZ(6)", 6_000),
                "ingestion-timestamp": ("TIMESTAMP_LTZ(6)", 7_000),
            },
        ),
    ],
)
def test_metadata_of_messages(name: str, message: bytes, expected: dict[str, tuple[str, Any]]) -> None:
    """All that Flink has, beside the row's own columns, in the order of the table."""
    found, below = found_format(name, {})
    assert set(found.readable_metadata(below)) == set(expected)
    columns = {f"m{place}": kind for place, (kind, _) in enumerate(expected.values())}
    columns = {"m0": columns.pop("m0"), "id": "INT", **columns}
    metadata = {f"m{place}": key for place, key in enumerate(expected)}
    first, *rest = (value for _, value in expected.values())
    assert shown(decoded(name, [message], columns, metadata), columns) == [("+I", first, 1, *rest)]


def test_canal_of_some_tables() -> None:
    messages = [
        b'{"data": [{"id": %d}], "type": "INSERT", "database": "%s", "table": "%s"}' % (number, database, table)
        for number, (database, table) in enumerate([(b"shop", b"orders"), (b"shop", b"users"), (b"x", b"orders_2")])
    ]
    options = {"database.include": "sh.*", "table.include": "orders.*"}
    assert shown(decoded("canal-json", messages, options=options)) == [("+I", 0, None)]
    with pytest.raises(ValidationError, match=r"canal-json\.table\.include"):
        decoded("canal-json", [], options={"table.include": "("})


@pytest.mark.parametrize("name", NAMES)
def test_query_writes_its_changes_into_files_and_reads_them(name: str, tmp_path: Path) -> None:
    """Counts change while words come; whoever reads the files has the last ones."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.execute_sql(
        f"CREATE TABLE counts (word STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', "
        f"'format' = '{name}')"
    )
    tables.execute_sql(
        "INSERT INTO counts SELECT word, COUNT(*) FROM (VALUES ('a'), ('b'), ('a'), ('a')) AS t(word) GROUP BY word"
    ).wait()
    lines = b"".join(path.read_bytes() for path in tmp_path.glob("part-*")).splitlines()
    assert lines
    with tables.execute_sql("SELECT word, SUM(n) FROM counts GROUP BY word").collect() as rows:
        kept: list[tuple[Any, ...]] = []
        for row in rows:
            if row.get_row_kind().value in (0, 2):
                kept.append(tuple(row))
            else:
                kept.remove(tuple(row))
    assert sorted(kept) == [("a", 3), ("b", 1)]
