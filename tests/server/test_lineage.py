"""Lineage events: what jobs send of their runs, datasets and columns, in OpenLineage's form."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.servers.http import Received, Reply, http_server

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.base.lineage import InputField, LineageDataset
from penstock.common import SimpleStringSchema
from penstock.connectors.file.sink import FileSink
from penstock.connectors.file.source import FileSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.http import HttpSink
from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, KafkaSource
from penstock.formats.file_format import StreamFormat
from penstock.sql.logical.lineage import describe_write, name_table
from penstock.sql.tables.connector import Connectors
from penstock.table import EnvironmentSettings, TableEnvironment

jsonschema: Any = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

#: Run events of the specification 2-0-2 and the facets that we send, as their documents describe them.
_FACET = {
    "type": "object",
    "properties": {"_producer": {"type": "string", "format": "uri"}, "_schemaURL": {"type": "string", "format": "uri"}},
    "required": ["_producer", "_schemaURL"],
}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def _facets(**known: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"allOf": [_FACET, schema]} for name, schema in known.items()},
        "additionalProperties": False,  # we send no others
    }


_TEXT = {"type": "string", "minLength": 1}
_INPUT_FIELD = _object(
    "namespace name field",
    namespace=_TEXT,
    name=_TEXT,
    field=_TEXT,
    transformations={
        "type": "array",
        "items": _object("type", type={"enum": ["DIRECT", "INDIRECT"]}, subtype=_TEXT, description=_TEXT),
    },
)
_INPUT_FIELDS = {"type": "array", "items": _INPUT_FIELD}
_DATASET = _object(
    "namespace name",
    namespace=_TEXT,
    name=_TEXT,
    facets=_facets(
        schema=_object("fields", fields={"type": "array", "items": _object("name", name=_TEXT, type=_TEXT)}),
        symlinks=_object(
            "identifiers", identifiers={"type": "array", "items": _object("namespace name type", name=_TEXT)}
        ),
        columnLineage=_object(
            "fields",
            fields={
                "type": "object",
                "additionalProperties": _object("inputFields", inputFields=_INPUT_FIELDS),
            },
            dataset=_INPUT_FIELDS,
        ),
    ),
)
_UUID = {"type": "string", "format": "uuid"}
_JOB = {"namespace": _TEXT, "name": _TEXT}
RUN_EVENT = _object(
    "eventTime producer schemaURL run job",
    eventType={"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
    eventTime={"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"},
    producer={"type": "string", "format": "uri"},
    schemaURL={"type": "string", "format": "uri"},
    run=_object(
        "runId",
        runId=_UUID,
        facets=_facets(
            processing_engine=_object("version", version=_TEXT, name=_TEXT),
            errorMessage=_object("message programmingLanguage", message=_TEXT, programmingLanguage=_TEXT),
            parent=_object("run job", run=_object("runId", runId=_UUID), job=_object("namespace name", **_JOB)),
        ),
    ),
    job=_object(
        "namespace name",
        **_JOB,
        facets=_facets(
            jobType=_object(
                "processingType integration", processingType={"enum": ["BATCH", "STREAMING"]}, integration=_TEXT
            )
        ),
    ),
    inputs={"type": "array", "items": _DATASET},
    outputs={"type": "array", "items": _DATASET},
)


def read_events(texts: list[str]) -> list[dict[str, Any]]:
    """The events; each keeps the schema."""
    events = [json.loads(text) for text in texts]
    for event in events:
        jsonschema.validate(event, RUN_EVENT, format_checker=jsonschema.FormatChecker())
    return events


def prepare(folder: Path, **options: str) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {"execution.target": "local", "parallelism.default": "1"}
    settings |= {f"openlineage.{name.replace('__', '.')}": value for name, value in options.items()}
    for key, value in settings.items():
        tables.get_config().set(key, value)
    (folder / "orders").mkdir()
    (folder / "orders" / "a.csv").write_text("1,ann,5\n2,bob,7\n3,ann,1\n")
    for name, columns in (
        ("orders", "id INT, who STRING, price INT"),
        ("totals", "who STRING, total INT, shown STRING"),
        ("copies", "id INT, price INT"),
    ):
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{folder / name}', "
            "'format' = 'csv')"
        )
    return tables


COPY = "INSERT INTO copies SELECT id, price * 2 FROM orders WHERE who = 'ann'"


def test_a_job_says_when_it_starts_runs_and_ends(tmp_path: Path) -> None:
    run_id = str(uuid.uuid4())
    tables = prepare(
        tmp_path,
        transport__type="file",
        transport__location=str(tmp_path / "log" / "events"),
        job__namespace="shop",
        job__name="copy",
        parentJobNamespace="airflow",
        parentJobName="dag.task",
        parentRunId=run_id,
    )
    tables.execute_sql(COPY).wait()
    events = read_events((tmp_path / "log" / "events").read_text().splitlines())
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert sorted(event["eventTime"] for event in events) == [event["eventTime"] for event in events]
    for event in events:
        assert (event["job"]["namespace"], event["job"]["name"]) == ("shop", "copy")
        assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
        parent = event["run"]["facets"]["parent"]
        assert (parent["run"]["runId"], parent["job"]) == (run_id, {"namespace": "airflow", "name": "dag.task"})
        ((source,), (target,)) = event["inputs"], event["outputs"]
        assert (source["namespace"], source["name"]) == ("file", str(tmp_path / "orders"))
        assert [field["name"] for field in source["facets"]["schema"]["fields"]] == ["id", "who", "price"]
        assert target["name"] == str(tmp_path / "copies")
        assert target["facets"]["symlinks"]["identifiers"][0]["name"] == "default_catalog.default_database.copies"
        columns = target["facets"]["columnLineage"]
        assert {
            name: [(it["field"], it["transformations"][0]["subtype"]) for it in column["inputFields"]]
            for name, column in columns["fields"].items()
        } == {"id": [("id", "IDENTITY")], "price": [("price", "TRANSFORMATION")]}
        assert [(it["field"], it["transformations"]) for it in columns["dataset"]] == [
            ("who", [{"type": "INDIRECT", "subtype": "FILTER"}])
        ]


def test_a_job_that_fails_says_why_without_secrets(tmp_path: Path) -> None:
    tables = prepare(tmp_path, transport__type="file", transport__location=str(tmp_path / "events"))
    (tmp_path / "orders" / "a.csv").write_text("not a number,password=s3cret-of-ann,1\n")
    with pytest.raises(JobExecutionError):
        tables.execute_sql(COPY).wait()
    events = read_events((tmp_path / "events").read_text().splitlines())
    assert [events[0]["eventType"], events[-1]["eventType"]] == ["START", "FAIL"]
    assert "not a number" in events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert "s3cret-of-ann" not in (tmp_path / "events").read_text()


def test_events_are_posted_with_a_key(tmp_path: Path) -> None:
    with http_server() as server:
        tables = prepare(
            tmp_path, transport__type="http", transport__url=server.url, transport__auth__apiKey="key-of-the-test"
        )
        tables.execute_sql(COPY).wait()
        events = read_events([request.body.decode() for request in server.requests])
        heads = {(r.method, r.target, r.headers["authorization"]) for r in server.requests}
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert heads == {("POST", "/api/v1/lineage", "Bearer key-of-the-test")}


@pytest.mark.parametrize("is_up", [False, True])
def test_a_job_goes_on_when_events_cannot_be_sent(
    tmp_path: Path, is_up: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Received) -> Reply:
        return 500, b"", {}

    with caplog.at_level(logging.WARNING, "penstock.lineage"), http_server(refuse) as server:
        if not is_up:
            server.kill()
        tables = prepare(tmp_path, transport__type="http", transport__url=server.url)
        tables.execute_sql(COPY).wait()
        if not is_up:
            server.start()
    messages = [record.getMessage() for record in caplog.records if record.name == "penstock.lineage"]
    assert len(messages) == 2
    assert "a lineage event cannot be sent, and is dropped" in messages[0]
    assert messages[1].endswith("3 of 3 lineage events could not be sent")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transport.type": "file"}, "needs openlineage.transport.location"),
        ({"transport.type": "http"}, "needs openlineage.transport.url"),
        ({"transport.type": "http", "transport.url": "marquez"}, "such as http://host:5000"),
        ({"transport.type": "kafka"}, "file, http, console"),
        ({"transport.type": "console", "parentRunId": "x"}, "go together"),
        (
            {"transport.type": "console", "parentRunId": "x", "parentJobName": "n", "parentJobNamespace": "s"},
            "is a UUID, not 'x'",
        ),
    ],
)
def test_options_that_are_wrong_are_named_before_the_job_begins(options: dict[str, str], message: str) -> None:
    settings = {f"openlineage.{name}": value for name, value in options.items()} | {"execution.target": "local"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=message):
        env.execute()


def test_connectors_name_their_datasets() -> None:
    builder = KafkaSource.builder().set_bootstrap_servers("b1:9092,b2:9092").set_topics("orders", "bills")
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    serializers = KafkaRecordSerializationSchema.builder().set_topic("out")
    schema = serializers.set_value_serialization_schema(SimpleStringSchema()).build()
    sink = KafkaSink.builder().set_bootstrap_servers("b1:9092").set_record_serializer(schema).build()
    kafka = "kafka://b1:9092"
    assert source.describe_lineage() == (LineageDataset(kafka, "bills"), LineageDataset(kafka, "orders"))
    assert sink.describe_lineage() == (LineageDataset(kafka, "out"),)
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/data/a", "s3://bucket/b").build()
    assert files.describe_lineage() == (LineageDataset("file", "/data/a"), LineageDataset("s3://bucket", "b"))
    folder = FileSink.for_row_format("/data/out", SimpleStringSchema()).build()
    assert folder.describe_lineage() == (LineageDataset("file", "/data/out"),)
    http = HttpSink.builder().set_endpoint_url("https://shop/rows?k=1").build()
    assert http.describe_lineage() == (LineageDataset("https://shop", "/rows"),)


# --- columns --------------------------------------------------------------------------------------------------------


MYSQL = "mysql://h:3306"


class Planned(Exception):
    """Ends a statement whose INSERT is planned."""


@pytest.fixture(name="find_columns")
def fixture_find_columns(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], LineageDataset]:
    """Returns what an INSERT says of its table."""
    found: list[LineageDataset] = []

    def writer(_: Connectors, node: Any) -> Any:
        found.append(describe_write(node))
        raise Planned

    def find(query: str, columns: str) -> LineageDataset:
        tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        tables.execute_sql(
            "CREATE TABLE orders (id INT, who INT, price INT, pt AS PROCTIME(), ts TIMESTAMP(3), WATERMARK FOR ts AS "
            "ts) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'b:9092', "
            "'format' = 'json', 'properties.group.id' = 'g', 'scan.startup.mode' = 'earliest-offset')"
        )
        tables.execute_sql(
            "CREATE TABLE people (id INT, name STRING) WITH ('connector' = 'jdbc', "
            "'url' = 'jdbc:postgresql://db/shop', 'table-name' = 'people')"
        )
        tables.execute_sql(f"CREATE TABLE t ({columns}) WITH ('connector' = 'blackhole')")
        monkeypatch.setattr(Connectors, "writer", writer)
        with pytest.raises(Planned):
            tables.execute_sql(f"INSERT INTO t {query}")
        return found[-1]

    return find


def shown(origins: Sequence[InputField]) -> list[str]:
    return sorted(f"{it.name.split('.')[-1]}.{it.field} {it.kind}" for it in origins)


def test_joins_and_groups(find_columns: Callable[[str, str], LineageDataset]) -> None:
    dataset = find_columns(
        "SELECT name, SUM(price + o.id), COUNT(*) FROM orders o JOIN people p ON o.who = p.id WHERE price > 1 "
        "GROUP BY name",
        "name STRING, total INT, n BIGINT",
    )
    assert (dataset.namespace, dataset.name) == ("blackhole", "default_catalog.default_database.t")
    assert {name: shown(origins) for name, origins in dataset.columns.items()} == {
        "name": ["people.name IDENTITY"],
        "total": ["orders.id AGGREGATION", "orders.price AGGREGATION"],
    }
    assert shown(dataset.rows) == [
        "orders.price FILTER",
        "orders.who JOIN",
        "people.id JOIN",
        "people.name GROUP_BY",
    ]
    assert {it.namespace for it in dataset.rows} == {"kafka://b:9092", "postgres://db:5432"}
    assert not any(it.is_direct for it in dataset.rows)


def test_look_ups(find_columns: Callable[[str, str], LineageDataset]) -> None:
    dataset = find_columns(
        "SELECT o.id, UPPER(p.name) FROM orders o JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.who = p.id",
        "id INT, name STRING",
    )
    assert {name: shown(origins) for name, origins in dataset.columns.items()} == {
        "id": ["orders.id IDENTITY"],
        "name": ["people.name TRANSFORMATION"],
    }
    assert shown(dataset.rows) == ["orders.who JOIN", "people.id JOIN"]


def test_unions_windows_and_ranks(find_columns: Callable[[str, str], LineageDataset]) -> None:
    dataset = find_columns("SELECT id FROM orders UNION ALL SELECT price FROM orders", "id INT")
    assert shown(dataset.columns["id"]) == ["orders.id IDENTITY", "orders.price IDENTITY"]
    dataset = find_columns(
        "SELECT window_start, SUM(price) FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY "
        "window_start, window_end",
        "w TIMESTAMP(3), total INT",
    )
    assert shown(dataset.columns["w"]) == ["orders.ts TRANSFORMATION"]
    assert shown(dataset.columns["total"]) == ["orders.price AGGREGATION"]
    dataset = find_columns(
        "SELECT id, n FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY who ORDER BY price DESC) AS n FROM orders) "
        "WHERE n <= 3",
        "id INT, n BIGINT",
    )
    assert shown(dataset.columns["id"]) == ["orders.id IDENTITY"]
    dataset = find_columns("SELECT SUM(price) OVER (PARTITION BY who ORDER BY ts) FROM orders", "total INT")
    assert shown(dataset.columns["total"]) == ["orders.price AGGREGATION", "orders.who WINDOW"]


def test_a_step_that_is_not_known_names_all_columns_of_its_input(
    find_columns: Callable[[str, str], LineageDataset],
) -> None:
    query = (
        "SELECT first_id FROM orders MATCH_RECOGNIZE (ORDER BY ts MEASURES A.id AS first_id ONE ROW PER MATCH "
        "PATTERN (A B) DEFINE B AS B.price > 1)"
    )
    dataset = find_columns(query, "id INT")
    assert {"orders.id TRANSFORMATION", "orders.price TRANSFORMATION"} <= set(shown(dataset.columns["id"]))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"connector": "mysql-cdc", "hostname": "h", "database-name": "d", "table-name": "t"},
            ("mysql://h:3306", "d.t"),
        ),
        (
            {"connector": "postgres-cdc", "hostname": "h", "database-name": "d", "schema-name": "s", "table-name": "t"},
            ("postgres://h:5432", "d.s.t"),
        ),
        ({"connector": "filesystem", "path": "file:///data/x/"}, ("file", "/data/x")),
        ({"connector": "delta", "table-path": "s3a://b/x"}, ("s3://b", "x")),
        ({"connector": "iceberg", "warehouse": "s3://b/w"}, ("s3://b", "w/db/t")),
        ({"connector": "redis", "url": "redis://u:secret@h:6379/0", "key-prefix": "k:"}, ("redis://h:6379", "k:")),
        ({"connector": "redis-streams", "url": "redis://h:6379/0", "streams": "s"}, ("redis://h:6379", "s")),
        ({"connector": "opensearch", "hosts": "http://h:9200;http://i:9200", "index": "i"}, ("http://h:9200", "i")),
        ({"connector": "datagen"}, ("datagen", "c.db.t")),
    ],
)
def test_names_of_tables(options: dict[str, str], expected: tuple[str, str]) -> None:
    assert name_table(options, ("c", "db", "t")) == expected
