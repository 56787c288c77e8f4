"""What the steps of a query are called, and what is said of them: on the page, in plans, in the log."""

from __future__ import annotations

import logging
import time

import pytest
from tests.table.api.test_plans import environment, nodes

from penstock.table import ExplainDetail, TableEnvironment

JOINED = """
INSERT INTO sink SELECT o.customer, o.total FROM (
    SELECT customer, window_start, window_end, CAST(SUM(price) AS INT) AS total
    FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(ts), INTERVAL '2' SECOND))
    WHERE price > 10 GROUP BY customer, window_start, window_end
) AS o JOIN orders AS b ON o.customer = b.customer AND b.id > 7
"""


def tables_of_orders(**options: str) -> TableEnvironment:
    tables = environment(**options)
    tables.execute_sql(
        "CREATE TABLE timed (customer STRING, price INT, ts AS LOCALTIMESTAMP, "
        "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'datagen', 'rows-per-second' = '1000')"
    )
    return tables


def described(tables: TableEnvironment, sql: str) -> dict[str, list[str]]:
    """The descriptions by the names of the steps."""
    found: dict[str, list[str]] = {}
    for node in nodes(tables.explain_sql(sql, ExplainDetail.JSON_EXECUTION_PLAN)):
        found.setdefault(node["type"], []).append(node["contents"])
    return found


def test_steps_are_called_by_the_table_alone_and_described_by_its_whole_path() -> None:
    """As in Flink: a catalog and a database in each name would leave no room for anything else."""
    shown = described(tables_of_orders(), JOINED)
    assert "default_catalog" not in " ".join(shown)
    assert shown["Source: timed"] == ["Scan(table=[default_catalog.default_database.timed], fields=[customer, price])"]
    assert shown["Sink: Sink sink"] == ["Write(table=[default_catalog.default_database.sink])"]


def test_joins_filters_and_windows_are_described() -> None:
    """Also where one step does the work of several nodes of the plan."""
    shown = described(tables_of_orders(), JOINED)
    (window,) = shown["Window Aggregate"]
    assert window.startswith("WindowAggregate(window=[TUMBLE(ts, 2000 ms)], groupBy=[customer, ")
    assert any("where=(price > 10)" in text for text in shown["Calc"])
    assert any("where=(id > 7)" in text for text in shown["Calc"])
    (join,) = [texts[0] for name, texts in shown.items() if name.startswith("Join")]
    assert join.startswith("Join(joinType=INNER, where=(customer = ")


def test_nobody_is_asked_to_set_the_uid_of_a_step_of_sql(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids are made of the query, and SQL cannot set them."""
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)  # an earlier test may have set up its log
    tables = tables_of_orders(**{"execution.checkpointing.interval": "1 h"})
    with caplog.at_level(logging.INFO, "penstock"):
        job = tables.execute_sql(JOINED).get_job_client()
        assert job is not None
        deadline = time.monotonic() + 30
        while not any("checkpoints every" in line for line in caplog.messages) and time.monotonic() < deadline:
            time.sleep(0.01)
        job.cancel().result()
    assert any("checkpoints every" in line for line in caplog.messages)
    assert [line for line in caplog.messages if "uid" in line] == []
