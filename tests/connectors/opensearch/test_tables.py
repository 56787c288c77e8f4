"""Tables of the connectors `opensearch` and `elasticsearch-7`, on a fake service."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from tests.connectors.opensearch.service import FakeService
from tests.table.connectors.tables import build_write

from penstock.base.errors import JobExecutionError, UnsupportedError
from penstock.base.secrets import hide
from penstock.common import Configuration, Row, RowKind
from penstock.datastream import StreamExecutionEnvironment
from penstock.sql.connectors.built_in import built_in
from penstock.sql.connectors.opensearch import Documents, OpensearchTableSink
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.logical.nodes import ALL, INSERTS
from penstock.sql.tables.tables import TableWriter
from penstock.table import ChangelogMode, Schema, StreamTableEnvironment
from penstock.testing.connectors import SinkUnderTest, check_sink, last_of_each

NOON_NS = 1_606_737_600_123_000_000  # 2020-11-30 12:00:00.123


def ddl(columns: str, url: str = "http://one:9200", connector: str = "opensearch", **options: str) -> str:
    options = {"connector": connector, "hosts": url, "index": "orders"} | {
        name.replace("__", ".").replace("_", "-"): value for name, value in options.items()
    }
    shown = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE t ({columns}) WITH ({shown})"


def writer_of(statement: str) -> TableWriter:
    """How a table is written, by its primary key."""
    columns = statement.partition("(")[2].partition(") WITH")[0]
    inline = re.search(r"(\w+) \w+ PRIMARY KEY", columns)
    named = [inline[1]] if inline else re.findall(r"\w+", columns.partition("PRIMARY KEY (")[2].partition(")")[0])
    write = build_write(statement)
    return built_in().writer(replace(write, key=tuple(write.schema.names.index(name) for name in named)))


def documents_of(columns: str, **options: str) -> Documents:
    return cast(OpensearchTableSink, writer_of(ddl(columns, **options)).sink).documents


def lines(documents: Documents, changes: Sequence[tuple[int, tuple[Any, ...]]], now_ms: int = 0) -> list[Any]:
    """The lines of the actions for changes, as JSON."""
    columns, kinds = columns_of_changes(changes, documents.schema.names, documents.schema.types)
    actions = documents.actions(columns, kinds, now_ms)
    return [json.loads(line) for action in actions for line in action.lines.splitlines()]


def run_changes(service: FakeService, columns: str, fields: str, rows: Sequence[Row], **options: str) -> None:
    """Write a changelog into a table of the service; into one without a key, only rows that come."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"execution.target": "local"}))
    tables = StreamTableEnvironment.create(env)
    tables.get_config().set("table.exec.sink.upsert-materialize", "NONE")
    schema = Schema.new_builder()
    mode = ChangelogMode.all() if "PRIMARY" in columns else ChangelogMode.insert_only()
    for field in fields.split(", "):
        schema.column(*field.split(" ", 1))
    tables.create_temporary_view(
        "s", tables.from_changelog_stream(env.from_collection(list(rows)), schema.build(), mode)
    )
    tables.execute_sql(ddl(columns, service.url, **options))
    tables.execute_sql("INSERT INTO t SELECT * FROM s").wait()


def row(kind: str, *values: Any) -> Row:
    kinds = {"+I": RowKind.INSERT, "-U": RowKind.UPDATE_BEFORE, "+U": RowKind.UPDATE_AFTER, "-D": RowKind.DELETE}
    return Row.of_kind(kinds[kind], *values)


def test_changes_by_primary_key(service: FakeService) -> None:
    rows = [row("+I", 1, "a"), row("+I", 2, "b"), row("-U", 1, "a"), row("+U", 1, "c"), row("+I", 3, "d"),
            row("-D", 2, "b")]  # fmt: skip
    run_changes(service, "id INT PRIMARY KEY NOT ENFORCED, name STRING", "id INT, name STRING", rows)
    assert service.documents["orders"] == {"1": '{"id":1,"name":"c"}', "3": '{"id":3,"name":"d"}'}


def test_a_row_moves_to_another_index(service: FakeService) -> None:
    """The index depends on a column outside the key, so the former document is deleted."""
    rows = [row("+I", 1, "a"), row("+I", 2, "a"), row("-U", 1, "a"), row("+U", 1, "b"), row("-D", 2, "a")]
    run_changes(service, "id INT PRIMARY KEY NOT ENFORCED, w STRING", "id INT, w STRING", rows, index="in-{w}")
    assert {index: set(of_index) for index, of_index in service.documents.items()} == {"in-a": set(), "in-b": {"1"}}


def test_append_without_a_key(service: FakeService) -> None:
    run_changes(
        service, "id INT, name STRING", "id INT, name STRING", [row("+I", 1, "a")] * 3, connector="elasticsearch-7"
    )
    assert list(service.documents["orders"].values()) == ['{"id":1,"name":"a"}'] * 3
    assert writer_of(ddl("id INT")).accepts == INSERTS


def test_rejected_documents_fail_the_job_or_are_left_out(service: FakeService) -> None:
    service.refuse = lambda action: (400, "no number") if action[1]["_id"] == "2" else None
    columns, rows = "id INT PRIMARY KEY NOT ENFORCED", [row("+I", number) for number in range(5)]
    with pytest.raises(
        JobExecutionError, match="document '2' of index 'orders': status 400: some_exception: no number"
    ):
        run_changes(service, columns, "id INT", rows)
    run_changes(service, columns, "id INT", rows, failure_handler="ignore")
    assert set(service.documents["orders"]) == {"0", "1", "3", "4"}


def test_actions() -> None:
    documents = documents_of(
        "id INT, d DATE, name STRING, PRIMARY KEY (id, d) NOT ENFORCED", document_id__key_delimiter="/"
    )
    changes = [(0, (1, 0, "a")), (0, (2, 1, None)), (1, (1, 0, "a")), (2, (1, 0, "b")), (3, (2, 1, None))]
    assert lines(documents, changes) == [
        {"index": {"_index": "orders", "_id": "1/1970-01-01"}},
        {"id": 1, "d": "1970-01-01", "name": "b"},
        {"delete": {"_index": "orders", "_id": "2/1970-01-02"}},
    ]
    merging = replace(documents, merges=True)
    assert lines(merging, changes[:1])[1] == {
        "doc_as_upsert": True,
        "doc": {"id": 1, "d": "1970-01-01", "name": "a"},
    }


def test_versions_of_documents() -> None:
    """With versions the order of changes does not matter, so none is left out."""
    columns = "id INT PRIMARY KEY NOT ENFORCED, at_time TIMESTAMP(3)"
    documents = documents_of(columns, sink__version__column="at_time")
    changes = [(0, (1, 5_000_000)), (0, (1, 3_000_000)), (3, (1, 7_000_000))]
    version = {"_index": "orders", "_id": "1", "version_type": "external_gte"}
    assert lines(documents, changes)[::2] == [
        {"index": {**version, "version": 5}},
        {"index": {**version, "version": 3}},
        {"delete": {**version, "version": 7}},
    ]
    for bad, said in ((None, "has NULL"), (-1_000_000, "has -1")):
        with pytest.raises(TableRuntimeError, match=f"column 'at_time' {said}, which is no version"):
            lines(documents, [(0, (1, bad))])
    writer = writer_of(ddl(columns, sink__version__column="at_time"))
    assert (writer.accepts, writer.deletes_by_key, writer.wants_before) == (ALL, False, False)


def test_an_old_version_does_not_come_back(service: FakeService) -> None:
    rows = [row("+I", 1, 5, "new"), row("+U", 1, 3, "old"), row("+I", 2, 4, "a"), row("-D", 2, 6, "a"),
            row("+I", 2, 4, "a")]  # fmt: skip
    columns = "id INT PRIMARY KEY NOT ENFORCED, v INT, name STRING"
    run_changes(service, columns, "id INT, v INT, name STRING", rows, sink__version__column="v")
    assert service.documents["orders"] == {"1": '{"id":1,"v":5,"name":"new"}'}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("BIGINT", -(1 << 63), "-9223372036854775808"),
        ("STRING", "a b/ü", "a b/ü"),
        ("CHAR(3)", "ab ", "ab "),
        ("BOOLEAN", True, "true"),
        ("DECIMAL(38, 18)", "1.5", "1.500000000000000000"),
        ("DOUBLE", 1e10, "1.0E10"),
        ("DATE", 18_596, "2020-11-30"),
        ("TIME(0)", 36_000_000, "10:00"),
        ("TIME(3)", 36_001_120, "10:00:01.120"),
        ("TIMESTAMP(3)", NOON_NS, "2020-11-30T12:00:00.123"),
        ("TIMESTAMP(3)", NOON_NS - 123_000_000, "2020-11-30T12:00"),
        ("TIMESTAMP(9)", NOON_NS + 4_000, "2020-11-30T12:00:00.123004"),
        ("TIMESTAMP_LTZ(3)", NOON_NS, "2020-11-30T12:00:00.123"),
    ],
)
def test_ids(kind: str, value: Any, text: str) -> None:
    """Values have the texts that they have in Flink's ids, which are Java's."""
    given = Decimal(value) if kind.startswith("DEC") else value
    documents = documents_of(f"k {kind}, PRIMARY KEY (k) NOT ENFORCED")
    ((head, _),) = [lines(documents, [(0, (given,))])]
    assert head["index"]["_id"] == text


@pytest.mark.parametrize(
    ("index", "kind", "value", "name"),
    [
        ("a-{c}-b", "STRING", "x", "a-x-b"),
        ("{c}", "INT", None, "null"),
        ("a-{c|yyyy.MM.dd}", "TIMESTAMP(3)", NOON_NS, "a-2020.11.30"),
        ("a-{ c | yyyy }", "DATE", 18_596, "a- 2020 "),
        ("a-{c|}", "DATE", 18_596, "a-2020_11_30"),
        ("a-{c|}", "TIME(3)", 36_001_120, "a-10_00_01"),
        ("a-{c|HH}", "TIMESTAMP_LTZ(3)", NOON_NS, "a-21"),
        ("a-{c}", "DATE", 18_596, "a-2020-11-30"),
        ("a-{now()|yyyy-MM-dd HH}", "INT", 1, "a-2020-11-30 21"),
        ("a-{CURRENT_TIMESTAMP|yyyy}-{c}", "INT", 1, "a-2020-1"),
        ("a-{NOW()}", "INT", 1, "a-2020_11_30_21_00_00"),
    ],
)
def test_names_of_indexes(index: str, kind: str, value: Any, name: str) -> None:
    documents = documents_of(f"c {kind}", index=index)
    documents = replace(documents, index=replace(documents.index, zone=ZoneInfo("Asia/Tokyo")))
    assert lines(documents, [(0, (value,))], NOON_NS // 1_000_000)[0] == {"create": {"_index": name}}


def test_an_index_by_the_time_only_grows() -> None:
    columns = "id INT PRIMARY KEY NOT ENFORCED"
    assert writer_of(ddl(columns, index="a-{now()|yyyy}")).accepts == INSERTS
    assert writer_of(ddl(columns, index="a-{id}")).deletes_by_key
    with pytest.raises(TableRuntimeError, match="NULL in a column that names its index"):
        lines(documents_of("d DATE", index="a-{d|yyyy}"), [(0, (None,))])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hosts": " ; "}, "at least one host"),
        ({"hosts": "http://me:hush@one"}, "without user and password"),
        ({"index": "{x}"}, "there is no column 'x'"),
        ({"index": "{id|yyyy}"}, "only dates and times have a pattern"),
        ({"index": "{d|qqqqqq bad}"}, "index"),
        ({"format": "csv"}, "format"),
        ({"failure_handler": "org.example.Handler"}, "failure-handler"),
        ({"sink__bulk_flush__max_actions": "-1"}, "it must be 0 or above"),
        ({"sink__version__column": "x"}, "there is no column 'x'"),
        ({"sink__version__column": "name"}, "not an integer or a timestamp"),
        ({"sink__version__column": "v", "sink__write_mode": "merge"}, "merges no documents with versions"),
        ({"sink__delivery_guarantee": "exactly-once"}, "sink.delivery-guarantee"),
        ({"username": "ann"}, "given together"),
        ({"allow_insecure": "true"}, "allow-insecure"),
    ],
)
def test_wrong_options(options: dict[str, str], said: str) -> None:
    columns = "id INT PRIMARY KEY NOT ENFORCED, d DATE, name STRING, v BIGINT"
    with pytest.raises(ValidationError, match=said) as caught:
        writer_of(ddl(columns, **options))
    assert "hush" not in str(caught.value)


def test_tables_that_cannot_be_written() -> None:
    with pytest.raises(ValidationError, match="illegal types: ARRAY<INT> NOT NULL"):
        writer_of(ddl("k ARRAY<INT>, PRIMARY KEY (k) NOT ENFORCED"))
    with pytest.raises(ValidationError, match="only a table with a primary key"):
        writer_of(ddl("v BIGINT", sink__version__column="v"))
    with pytest.raises(UnsupportedError, match="INSERT OVERWRITE"):
        built_in().writer(build_write(ddl("v BIGINT"), overwrites=True))


def test_the_password_is_hidden() -> None:
    writer_of(ddl("v BIGINT", username="ann", password="secret-of-ann"))
    assert "secret-of-ann" not in hide("no: secret-of-ann")


def test_conformance(service: FakeService) -> None:
    """With versions, so that writers of runs that the kit has left, and that still send, change nothing."""

    def prepare() -> SinkUnderTest:
        service.documents.clear()
        service.versions.clear()
        writer = writer_of(
            ddl(
                "id INT PRIMARY KEY NOT ENFORCED, n INT",
                service.url,
                sink__bulk_flush__interval="20 ms",
                sink__version__column="n",
            )
        )
        rows = [(0, (number % 12, number)) for number in range(24)]
        read = lambda: [  # noqa: E731
            (0, tuple(json.loads(text).values())) for text in service.documents.get("orders", {}).values()
        ]
        by_key = lambda change: change[1][0]  # noqa: E731
        return SinkUnderTest(writer.sink, records=rows, read=read, shown=last_of_each(by_key), key=by_key)

    check_sink(prepare, "undisturbed", "close", "restart", parallelisms=[1, 2], places=4)
