"""Whole pipelines, from a script of events to the target, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cdc.programs import CUPS, iceberg_sink, read_iceberg, run_pipeline, write_events

from penstock.base.errors import FormatError, PenstockError
from penstock.cdc.kafka_messages import MessageFormat, MessageFunction
from penstock.cdc.operators import TableKnown
from penstock.cli.main import main
from penstock.connectors.cdc.events import TableId

JARS = {"create": "shop.jars", "columns": {"id": "INT NOT NULL", "size": "INT"}, "primary-key": ["id"]}


def test_rows_and_schema_changes_reach_the_lake_in_order(tmp_path: Path) -> None:
    lines = [
        *CUPS,
        {"add-column": "shop.cups", "column": {"size": "INT"}, "after": "id"},
        {"insert": "shop.cups", "row": {"id": 3, "name": "can", "size": 7}},
        {"rename-column": "shop.cups", "name": "name", "new-name": "title"},
        {"alter-column": "shop.cups", "column": {"size": "BIGINT"}},
        {"update": "shop.cups", "before": {"id": 3, "size": 7}, "after": {"id": 3, "title": "tin", "size": 1 << 40}},
    ]
    run_pipeline(tmp_path, lines, iceberg_sink(tmp_path), pipeline="schema.change.behavior: evolve,")
    columns, rows = read_iceberg(tmp_path, "shop.cups")
    assert columns == ["id", "size", "title"]
    assert rows == [{"id": 1, "size": None, "title": "pot"}, {"id": 3, "size": 1 << 40, "title": "tin"}]


def test_tables_are_merged_into_one_by_a_route(tmp_path: Path) -> None:
    lines = [*CUPS, JARS, {"insert": "shop.jars", "row": {"id": 9, "size": 3}}]
    route = r"route: [{source-table: 'shop.\.*', sink-table: lake.all}]"
    run_pipeline(tmp_path, lines, iceberg_sink(tmp_path), route)
    columns, rows = read_iceberg(tmp_path, "lake.all")
    assert columns == ["id", "name", "size"]
    assert rows == [{"id": 1, "name": "pot", "size": None}, {"id": 9, "name": None, "size": 3}]


def test_a_python_function_gets_typed_values(tmp_path: Path) -> None:
    rest = r"transform: [{source-table: 'shop.\.*', projection: '\*, longer(name, id) AS longer', filter: keep(id)}]"
    functions = "user-defined-function: [{name: longer, classpath: 'tests.cdc.test_pipeline:longer'}, "
    functions += "{name: keep, classpath: 'tests.cdc.test_pipeline:keep'}],"
    run_pipeline(tmp_path, CUPS, iceberg_sink(tmp_path), rest, functions)
    assert read_iceberg(tmp_path, "shop.cups")[1] == [{"id": 1, "name": "pot", "longer": "pot1"}]


def longer(name: str, number: int) -> str:
    return name + str(number)


def keep(number: int) -> bool:
    return number > 0


def test_a_value_that_a_column_cannot_hold_is_null_rather_than_another_one(tmp_path: Path) -> None:
    lines = [
        {"create": "shop.cups", "columns": {"id": "INT NOT NULL", "n": "INT"}, "primary-key": ["id"]},
        {"alter-column": "shop.cups", "column": {"n": "BIGINT"}},
        {"insert": "shop.cups", "row": {"id": 1, "n": 30_000_000_000}},
        {"insert": "shop.cups", "row": {"id": 2, "n": 7}},
    ]
    run_pipeline(tmp_path, lines, iceberg_sink(tmp_path), pipeline="schema.change.behavior: ignore,")
    assert read_iceberg(tmp_path, "shop.cups")[1] == [{"id": 1, "n": None}, {"id": 2, "n": 7}]


def test_print_shows_events_as_flink_cdc_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_pipeline(tmp_path, [*CUPS, {"drop-column": "shop.cups", "name": "name"}], "{type: print}")
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith(("Data", "Create", "Drop"))]
    assert lines == [
        "CreateTableEvent{tableId=shop.cups, the table is created: id BIGINT NOT NULL, name STRING}",
        "DataChangeEvent{tableId=shop.cups, before=[], after=[1, mug], op=INSERT}",
        "DataChangeEvent{tableId=shop.cups, before=[], after=[2, jar], op=INSERT}",
        "DataChangeEvent{tableId=shop.cups, before=[1, mug], after=[1, pot], op=UPDATE}",
        "DataChangeEvent{tableId=shop.cups, before=[2, jar], after=[], op=DELETE}",
    ]


@pytest.mark.parametrize(
    ("value_format", "expected"),
    [
        (
            "debezium-json",
            {"before": None, "after": {"id": 1, "name": "mug"}, "op": "c", "source": {"db": "shop", "table": "cups"}},
        ),
        (
            "canal-json",
            {
                "old": None,
                "data": [{"id": 1, "name": "mug"}],
                "type": "INSERT",
                "database": "shop",
                "table": "cups",
                "pkNames": ["id"],
            },
        ),
    ],
)
def test_messages_have_the_form_of_debezium_or_canal(
    value_format: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.cdc.sources import parse_event

    created: list[str] = []
    monkeypatch.setattr(
        "penstock.cdc.kafka_messages.TopicCreator", lambda settings: type("C", (), {"create": created.append})
    )
    function = MessageFunction(MessageFormat(value_format, "json", None, ((TableId("shop", "x"), "y"),)), {})
    function.open(None)
    schemas: dict[Any, Any] = {}
    create, insert = (parse_event(json.dumps(line), schemas) for line in CUPS[:2])
    assert list(function.process_element(TableKnown(create.table_id, create.schema), None)) == []  # type: ignore[union-attr]
    (message,) = function.process_element(insert, None)
    assert json.loads(message.value) == expected
    assert json.loads(message.key or b"") == {"TableId": "shop.cups", "id": 1}
    assert (message.topic, created) == ("shop.cups", ["shop.cups"])


def write_pipeline(folder: Path, sink: str = "type: print", more: str = "") -> Path:
    events = write_events(folder / "events.jsonl", [*CUPS, JARS])
    path = folder / "pipeline.yaml"
    path.write_text(f"source:\n  type: values\n  path: {events}\nsink:\n  {sink}\n{more}")
    return path


def test_a_dry_run_shows_tables_routes_and_schemas(tmp_path: Path) -> None:
    more = "transform:\n  - source-table: shop.cups\n    projection: \\*, UPPER(name) AS title\n"
    more += "route:\n  - {source-table: 'shop.\\.*', sink-table: lake.ods_<>, replace-symbol: <>}\n"
    result = CliRunner().invoke(main, ["cdc", "--dry-run", str(write_pipeline(tmp_path, more=more))])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "Flink CDC Pipeline Job: values → print, 2 source tables, 2 sink tables",
        "schema.change.behavior: lenient (add.column, alter.column.type, create.table, drop.column, rename.column)",
        "",
        "shop.cups → lake.ods_cups",
        "    id BIGINT NOT NULL, key",
        "    name STRING",
        "    title STRING",
        "",
        "shop.jars → lake.ods_jars",
        "    id INT NOT NULL, key",
        "    size INT",
    ]


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        ("type: doris", "pipeline.yaml:5: sink.type: there is no sink 'doris'; there are values, print, iceberg"),
        ("type: kafka", "sink.properties.bootstrap.servers: the option is missing"),
        ("type: print\n  pritn: x", "pipeline.yaml:6: sink.pritn: there is no such option"),
    ],
)
def test_the_command_tells_what_is_wrong_without_starting_a_job(tmp_path: Path, sink: str, error: str) -> None:
    result = CliRunner().invoke(main, ["cdc", str(write_pipeline(tmp_path, sink))])
    assert result.exit_code != 0
    assert error in result.output + str(result.exception)


def test_a_line_that_is_no_event_is_an_error_that_quotes_it(tmp_path: Path) -> None:
    lines = [*CUPS, {"insert": "shop.cups", "row": {"nmae": "mug"}}]
    with pytest.raises(PenstockError, match=r"events\.jsonl, offset \d+: this line is no event: .*'nmae'"):
        run_pipeline(tmp_path, lines, "{type: print}", pipeline="execution.runtime-mode: BATCH,")
    assert issubclass(FormatError, PenstockError)
