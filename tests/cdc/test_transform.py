"""Transforms: projections, filters, keys and Python functions on the rows of a table."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.base.types import RowKind
from penstock.cdc.definition import DefinitionError, parse_definition
from penstock.cdc.expressions import make_column, parse_type
from penstock.cdc.transform import Environment, TableTransform, TransformError, Transforms
from penstock.connectors.cdc.events import DataChangeEvent, TableId, TableSchema

CUPS = TableId("shop", "cups")
COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "price": "DECIMAL(8, 2)", "at": "TIMESTAMP(6)"}
MUG = (1, "mug", Decimal("2.50"), datetime.datetime(2024, 5, 6, 7, 8, 9, 10))


def compiled(rules: str, columns: dict[str, str] | None = None) -> TableTransform:
    """The transform of the table by rules in YAML, each a mapping without its table."""
    text = "source: {type: values, path: e}\nsink: {type: print}\ntransform:\n"
    text += "".join(f"  - {{source-table: shop.cups, {rule}}}\n" for rule in rules.split("\n"))
    definition = parse_definition(text)
    schema = TableSchema(
        tuple(make_column(name, parse_type(kind)) for name, kind in (columns or COLUMNS).items()), ("id",)
    )
    transforms = Transforms(definition.transforms, definition.functions, datetime.UTC)
    return transforms.compile(CUPS, schema, Environment(datetime.UTC, lambda: 1_700_000_000_000_000_000))


def insert(transform: TableTransform, row: tuple[Any, ...] = MUG) -> tuple[Any, ...] | None:
    event = transform.apply(DataChangeEvent(CUPS, RowKind.INSERT, None, row))
    return None if event is None else event.after


@pytest.mark.parametrize(
    ("expression", "data_type", "value"),
    [
        ("UPPER(name)", "STRING", "MUG"),
        ("id + 1", "BIGINT", 2),
        ("price * 2", "DECIMAL(19, 2)", Decimal("5.00")),
        ("DATE_FORMAT(`at`, 'yyyy-MM')", "STRING", "2024-05"),
        ("CAST(`at` AS DATE)", "DATE", datetime.date(2024, 5, 6)),
        ("CASE WHEN id > 1 THEN 'many' ELSE 'one' END", "VARCHAR(4)", "one"),
        ("__schema_name__ || '.' || __table_name__", "STRING", "shop.cups"),
        ("__data_event_type__", "STRING", "+I"),
        ("LOCALTIMESTAMP", "TIMESTAMP(3)", datetime.datetime(2023, 11, 14, 22, 13, 20)),
        ("TIMESTAMPADD(DAY, 1, `at`)", "TIMESTAMP(6)", MUG[3] + datetime.timedelta(days=1)),
    ],
)
def test_an_expression_has_its_type_and_value_of_flink_sql(expression: str, data_type: str, value: Any) -> None:
    transform = compiled(f'projection: "id, {expression} AS x"')
    assert transform.schema.columns[1].sql_type == data_type
    row = insert(transform)
    assert row is not None
    assert row[1] == value


def test_a_computed_column_takes_the_place_of_the_column_of_its_name() -> None:
    transform = compiled(r"projection: '\*, UPPER(name) AS name, id AS again'")
    assert transform.schema.names == ("id", "name", "price", "at", "again")
    assert insert(transform) == (1, "MUG", *MUG[2:], 1)


def test_a_filter_sees_columns_that_are_left_out_and_computed_ones() -> None:
    transform = compiled("projection: 'id, UPPER(name) AS title', filter: \"title = 'MUG' AND price > 1\"")
    assert insert(transform) == (1, "MUG")
    assert insert(transform, (1, "jar", *MUG[2:])) is None
    assert insert(transform, (1, "mug", None, None)) is None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (1, 2, None),
        (1, 12, (RowKind.INSERT, None, 12)),
        (12, 1, (RowKind.DELETE, 12, None)),
        (12, 13, (RowKind.UPDATE_AFTER, 12, 13)),
        (None, 1, (RowKind.DELETE, 1, None)),
        (None, 13, (RowKind.UPDATE_AFTER, None, 13)),
    ],
)
def test_an_update_enters_and_leaves_the_filter(before: int | None, after: int, expected: Any) -> None:
    transform = compiled("filter: id > 10")
    rows = [None if number is None else (number, *MUG[1:]) for number in (before, after)]
    event = transform.apply(DataChangeEvent(CUPS, RowKind.UPDATE_AFTER, rows[0], rows[1]))
    found = None if event is None else (event.kind, event.before and event.before[0], event.after and event.after[0])
    assert found == expected


def test_the_first_rule_whose_filter_holds_computes_the_row() -> None:
    transform = compiled("projection: 'id, name', filter: id < 10\nprojection: 'id, price', filter: id < 20")
    assert transform.schema.names == ("id", "name", "price")
    assert insert(transform) == (1, "mug", None)
    assert insert(transform, (11, *MUG[1:])) == (11, None, MUG[2])
    assert insert(transform, (21, *MUG[1:])) is None


def test_rules_with_different_types_of_a_column_give_the_widest() -> None:
    transform = compiled("projection: 'id, id AS x', filter: id = 1\nprojection: 'id, name AS x'")
    assert transform.schema.columns[1].sql_type == "STRING"
    assert insert(transform) == (1, "1")
    assert insert(transform, (2, *MUG[1:])) == (2, "mug")


def test_deletions_become_inserts_with_soft_delete() -> None:
    transform = compiled("projection: 'id, __data_event_type__ AS op', converter-after-transform: SOFT_DELETE")
    event = transform.apply(DataChangeEvent(CUPS, RowKind.DELETE, MUG, None))
    assert event is not None
    assert (event.kind, event.before, event.after) == (RowKind.INSERT, None, (1, "-D"))


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("projection: 'id, name'", ("id",)),
        ("projection: 'id AS number, name'", ()),
        ("projection: 'id, name', primary-keys: name", ("name",)),
        ("projection: 'id, name', primary-keys: 'name, id'", ("name", "id")),
    ],
)
def test_the_key_stays_if_its_columns_do_or_is_the_given_one(rule: str, key: tuple[str, ...]) -> None:
    schema = compiled(rule).schema
    assert schema.primary_key == key
    assert all(not column.is_nullable for column in schema.columns if column.name in key)


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("projection: 'id, nam'", r"pipeline\.yaml:4: transform\.projection: table shop\.cups: .*did you mean 'name'"),
        ("projection: 'UPPER(name)'", r"projection: UPPER\(`name`\) needs a name"),
        ("projection: 'id,,'", r"projection: 'id,,' is no projection"),
        ("filter: 'id +'", r"filter: 'id \+' is no filter"),
        ("filter: 'UPPER(name)'", r"filter: 'UPPER\(name\)' is STRING, and no condition"),
        ("projection: 'name', primary-keys: id", r"primary-keys: table shop\.cups has no column 'id'"),
        ("filter: 'id > 1 GROUP BY id'", r"filter: .* is no filter"),
    ],
)
def test_a_rule_that_does_not_fit_is_an_error_that_names_it(rule: str, error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        compiled(rule)


def test_a_failing_expression_names_rule_and_row() -> None:
    transform = compiled("projection: 'id, CAST(name AS INT) AS n'")
    with pytest.raises(TransformError, match=r"pipeline\.yaml:4: transform: .* shop\.cups: .*'mug'"):
        insert(transform)
