"""Conditions on a row number that contradict each other give no rows, as in Flink 2.3."""

from __future__ import annotations

import pytest

from penstock.base.configuration import Configuration
from penstock.table import EnvironmentSettings, TableEnvironment

RANKED = "(SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM numbers)"
WHERE = ["rn <= 2 AND rn > 4", "rn = 3 AND rn <= 1", "rn <= 1 AND rn >= 2", "rn < 2 AND rn > 1"]
QUERIES = [
    *(f"SELECT * FROM {RANKED} WHERE {condition}" for condition in WHERE),
    f"SELECT * FROM (SELECT * FROM {RANKED} WHERE rn <= 2) WHERE rn > 4",
    f"SELECT n.k, q.rn FROM numbers AS n JOIN (SELECT * FROM {RANKED} WHERE rn = 1) AS q ON n.k = q.k AND q.rn = 2",
    f"SELECT n.k, q.rn FROM numbers AS n JOIN (SELECT * FROM {RANKED} WHERE rn <= 3) AS q ON n.k = q.k AND 4 < q.rn",
]


def run_query(mode: str, query: str) -> list[str]:
    settings = Configuration.from_dict({"execution.target": "local", "execution.runtime-mode": mode})
    environment = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(settings).build())
    rows = environment.from_elements([(1, 5), (1, 6), (2, 7)], ["k", "v"])
    environment.create_temporary_view("numbers", rows)
    return sorted(map(str, environment.sql_query(query).execute().collect()))


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", pytest.param("BATCH", marks=pytest.mark.spark)])
def test_contradictory_conditions_give_no_rows(mode: str, query: str) -> None:
    assert run_query(mode, query) == []


def test_an_outer_join_keeps_its_rows() -> None:
    query = f"SELECT n.v, q.rn FROM numbers AS n LEFT JOIN (SELECT * FROM {RANKED} WHERE rn = 1) AS q ON q.rn = 2"
    assert run_query("STREAMING", query) == ["+I[5, null]", "+I[6, null]", "+I[7, null]"]


def test_conditions_that_agree_give_their_rows() -> None:
    assert run_query("STREAMING", f"SELECT * FROM {RANKED} WHERE rn <= 2 AND rn > 1") == ["+I[1, 6, 2]"]
