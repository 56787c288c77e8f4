"""What the adapter writes and reads without a gateway."""

from datetime import date, datetime
from decimal import Decimal

import pytest
from dbt.adapters.penstock.connections import PenstockCredentials
from dbt.adapters.penstock.declarations import Declaration, comment_of, options_of, plain_type, quoted, value
from dbt.adapters.penstock.gateway import message_of, without_bang
from dbt.adapters.penstock.jobs import Job, Record, Version, job_name, refusal
from dbt.adapters.penstock.relations import PenstockRelation
from dbt_common.exceptions import DbtConfigError

RELATION = PenstockRelation.create("dbt", "shop", "totals")


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("a != b", "a <> b"),
        (
            "'a != b' != `c!=d` -- e != f\n!= /* g != h */ 'it''s !='",
            "'a != b' <> `c!=d` -- e != f\n<> /* g != h */ 'it''s !='",
        ),
    ],
)
def test_bang_equal_becomes_what_flink_knows(written: str, sent: str) -> None:
    assert without_bang(written) == sent


def test_the_innermost_cause_is_the_message() -> None:
    stack = "\n\tat penstock.gateway(Unknown Source)"
    error = (
        f"<Exception on server side:\norg.apache.Outer: Failed to fetchResults.{stack}\n"
        f"Caused by: org.apache.flink.ValidationException: There is no table x,\nat line 1{stack}\n\n"
        "End of exception on server side>"
    )
    assert message_of(["Internal server error.", error]) == "There is no table x,\nat line 1"
    assert message_of(["Session 'x' does not exist."]) == "Session 'x' does not exist."


@pytest.mark.parametrize(
    ("content", "data_type", "text"),
    [
        (None, "INT", "CAST(NULL AS INT)"),
        (7, "BIGINT", "7"),
        (True, "BOOLEAN", "TRUE"),
        (Decimal("1.50"), "DECIMAL(10, 2)", "CAST(1.50 AS DECIMAL(10, 2))"),
        ("it's", "STRING", "CAST('it''s' AS STRING)"),
        (date(2024, 2, 29), "DATE", "CAST('2024-02-29' AS DATE)"),
        (datetime(2024, 2, 29, 12, 30), "TIMESTAMP(6)", "CAST('2024-02-29 12:30:00' AS TIMESTAMP(6))"),
    ],
)
def test_values_of_seeds(content: object, data_type: str, text: str) -> None:
    assert value(content, data_type) == text


def test_declarations() -> None:
    declaration = Declaration(
        [("id", "BIGINT"), ("at", "AS PROCTIME()")],
        {"connector": "kafka", "topic": "it's"},
        ("id",),
        "at AS at",
        ("id",),
        "All",
        {"id": "which"},
    )
    text = declaration.create(quoted("c", "d", "t"), temporary=True)
    assert text == (
        "CREATE TEMPORARY TABLE `c`.`d`.`t` (\n  `id` BIGINT NOT NULL COMMENT 'which', `at` AS PROCTIME(), "
        "WATERMARK FOR at AS at, PRIMARY KEY (`id`) NOT ENFORCED\n) COMMENT 'All' PARTITIONED BY "
        "(`id`) WITH ('connector' = 'kafka', 'topic' = 'it''s')"
    )
    assert plain_type("TIMESTAMP(3) *ROWTIME*") == "TIMESTAMP(3)"


def test_what_show_create_table_says_is_read() -> None:
    shown = (
        "CREATE TABLE `t` (\n  `a` INT\n)\nCOMMENT 'it''s'\nWITH (\n  'path' = '/a''b',\n  'x.y' = 'multi\nline'\n)\n"
    )
    assert options_of(shown) == {"path": "/a'b", "x.y": "multi\nline"}
    assert comment_of(shown) == "it's"


def test_records_come_back() -> None:
    version = Version(3, "f", "select 'x'", {"columns": [["a", "INT"]], "options": {"k": "v"}}, {"1": "step"}, {})
    record = Record(4, version, None)
    assert Record.of_text(record.to_text()) == record
    assert record.valid is not None
    assert record.valid.declaration.text() == "(\n  `a` INT\n) WITH ('k' = 'v')"


def test_a_refusal_names_what_is_lost_and_what_is_new() -> None:
    text = refusal(RELATION, ["A"], ["B"], Job("7", job_name(RELATION, 1), "RUNNING"))
    assert text.splitlines()[1:] == [
        "  - A",
        "These would begin without state:",
        "  - B",
        "Job 7 goes on with the query before. Run with --full-refresh to give up the state and start from the "
        "beginning.",
    ]


def test_a_profile_needs_its_path() -> None:
    credentials = PenstockCredentials(
        schema="shop", path="/data/shop/", catalogs={"lake": {"type": "delta", "path": "/l"}}
    )
    assert credentials.warehouse == "/data/shop/tables"
    assert credentials.all_catalogs()["dbt"] == {"type": "file", "path": "/data/shop/catalog"}
    assert credentials.stores_tables("lake")
    assert not credentials.stores_tables("dbt")
    with pytest.raises(DbtConfigError, match="path"):
        PenstockCredentials(schema="shop")
