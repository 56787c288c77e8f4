"""The definition of a pipeline: Flink CDC's form, and errors by file, line and key."""

from __future__ import annotations

import pytest

from penstock.cdc.definition import CHANGE_TYPES, DefinitionError, parse_definition
from penstock.cdc.tables import Router, RouteRule, TableSelector
from penstock.connectors.cdc.events import TableId

START = "source: {type: values, path: events}\nsink: {type: print}\n"

COMPLETE = r"""
source:
  type: mysql
  name: The shop
  hostname: 127.0.0.1
  port: 3306
  username: reader
  password: 123456
  tables: shop.\.*, app.order_[0-9]+

sink:
  type: iceberg
  catalog.properties:
    type: hadoop
    warehouse: /lake
  include.schema.changes: [create.table.event, column]
  exclude.schema.changes: [drop.column]

transform:
  - source-table: shop.orders
    projection: \*, UPPER(name) AS title
    filter: id > 10 AND number > 100
    primary-keys: id, number
    partition-keys: title
    table-options: comment=orders,format-version=2
    description: only large orders

route:
  - source-table: shop.\.*
    sink-table: lake.ods_<>
    replace-symbol: <>
    description: all tables

pipeline:
  name: Shop to the lake
  parallelism: 2
  local-time-zone: Europe/Berlin
  schema.change.behavior: EVOLVE
  user-defined-function:
    - name: add_one
      classpath: functions:add_one
"""


def test_a_complete_definition_has_all_sections_with_scalars_as_they_are_written() -> None:
    pipeline = parse_definition(COMPLETE)
    assert pipeline.source.text("password") == "123456"
    assert pipeline.sink.prefixed("catalog.properties.") == {"type": "hadoop", "warehouse": "/lake"}
    assert pipeline.included == {"create.table", "add.column", "alter.column.type", "rename.column"}
    (transform,) = pipeline.transforms
    assert (transform.primary_keys, transform.partition_keys) == (("id", "number"), ("title",))
    assert transform.options == (("comment", "orders"), ("format-version", "2"))
    assert pipeline.routes[0].find_target(TableId("shop", "cups")) == TableId("lake", "ods_cups")
    assert (pipeline.behavior, pipeline.parallelism, pipeline.zone) == ("evolve", 2, "Europe/Berlin")
    assert pipeline.functions[0].target == "functions:add_one"
    assert "123456" not in repr(pipeline)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("source: {type: values}", r"the section 'sink' is missing"),
        ("source: [1", r"p\.yaml:\d+: this is no YAML"),
        (START + "sinks: {}\n", r"p\.yaml:3: sinks: there is no such section; did you mean 'sink'"),
        (START + "route:\n  - sink-table: x\n", r"p\.yaml:4: route\.source-table: the option is missing"),
        (
            START + "route:\n  - source-table: a.b\n    sinktable: x\n    sink-table: y\n",
            r"p\.yaml:5: route\.sinktable",
        ),
        (START + "pipeline: {parallelism: two}\n", r"p\.yaml:3: pipeline\.parallelism: 'two' is no whole number"),
        (START + "pipeline: {schema.change.behavior: evolv}\n", r"'evolv' is none of exception, evolve"),
        (START + "pipeline: {name: a, name: b}\n", r"p\.yaml:3: pipeline\.name: the key occurs twice"),
        (
            START + "transform:\n  - {source-table: 'a.[', filter: x}\n",
            r"p\.yaml:4: transform\.source-table: .*expression",
        ),
        (START + "pipeline: {model: []}\n", r"embedded AI models are not supported"),
        (
            START + "pipeline:\n  user-defined-function:\n    - {name: f, classpath: com.example.F}\n",
            r"p\.yaml:5: .*classpath: 'com\.example\.F' is a class of Java",
        ),
        (START.replace("print", "print, exclude.schema.changes: [x]"), r"p\.yaml:2: sink\.exclude\.schema\.changes"),
    ],
)
def test_an_error_names_file_line_and_key(text: str, error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        parse_definition(text, "p.yaml")


@pytest.mark.parametrize(
    ("sink", "behavior", "left_out"),
    [
        ("", "lenient", {"drop.table", "truncate.table"}),
        ("", "evolve", set()),
        (", exclude.schema.changes: [drop]", "lenient", {"drop.table", "drop.column"}),
        (", include.schema.changes: [table]", "evolve", {kind for kind in CHANGE_TYPES if "column" in kind}),
    ],
)
def test_included_changes_are_chosen_by_parts_of_their_names(sink: str, behavior: str, left_out: set[str]) -> None:
    text = START.replace("print", f"print{sink}") + f"pipeline: {{schema.change.behavior: {behavior}}}\n"
    assert set(CHANGE_TYPES) - parse_definition(text).included == left_out


@pytest.mark.parametrize(
    ("pattern", "selected", "others"),
    [
        (r"app_db.\.*", ["app_db.orders", "app_db.a"], ["other.orders"]),
        (r"\.*.\.*", ["a.b", "c.d"], []),
        (
            r"adb.\.*, bdb.user_table_[0-9]+, [app|web].order_\.*",
            ["adb.x", "bdb.user_table_12", "w.order_1"],
            ["bdb.u"],
        ),
        (r"db.t_[0-9]{1,2}", ["db.t_1", "db.t_22"], ["db.t_333", "xdb.t_1"]),
        ("pg.public.orders", ["public.orders"], ["pg.orders"]),
    ],
)
def test_a_pattern_selects_tables_as_flink_cdc_does(pattern: str, selected: list[str], others: list[str]) -> None:
    selector = TableSelector.parse(pattern)
    for names, expected in ((selected, True), (others, False)):
        for name in names:
            assert selector.selects(TableId(*name.split("."))) is expected, name


def test_a_table_goes_to_the_targets_of_all_rules_or_of_the_first_one() -> None:
    rules = [RouteRule(TableSelector.parse(r"a.\.*"), "lake.<>", "<>"), RouteRule(TableSelector.parse("a.x"), "topic")]
    both = Router(rules).route(TableId("a", "x"))
    assert both == (TableId("lake", "x"), TableId("", "topic"))
    assert Router(rules, first_only=True).route(TableId("a", "x")) == both[:1]
    assert Router(rules).route(TableId("b", "x")) == (TableId("b", "x"),)
