"""Aggregate functions of the program, in BATCH."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest
from tests.table.batch.batches import SETTINGS
from tests.table.udf.aggregates import Greatest, Texts, Total
from tests.table.udf.test_data_views import Counted, expected

from penstock.base.errors import UnsupportedError
from penstock.common import Configuration
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.table.expressions import col
from penstock.table.udf import udaf, udtaf

pytestmark = pytest.mark.spark

MEAN = udaf(lambda values: values.mean(), result_type="DOUBLE", func_type="pandas")


@pytest.fixture
def tables() -> TableEnvironment:
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_batch_mode().with_configuration(configuration).build()
    found = TableEnvironment.create(settings)
    rows = [("a", 1), ("b", 4), ("a", 3), ("a", 3), ("b", None)]
    found.create_temporary_view("sold", found.from_elements(rows, ["k", "v"]))
    functions = {"total": udaf(Total()), "texts": udaf(Texts()), "counted": udaf(Counted()), "mean": MEAN}
    functions["sum_of"] = udaf(pc.sum, result_type="BIGINT", func_type="arrow")
    for name, function in functions.items():
        found.create_temporary_function(name, function)
    return found


def read_rows(table: Any) -> list[tuple[Any, ...]]:
    with table.execute().collect() as rows:
        return sorted((tuple(row) for row in rows), key=str)


@pytest.mark.slow
def test_all_kinds_give_a_value_for_each_group(tables: TableEnvironment) -> None:
    """Of whole columns also without windows."""
    sql = (
        "SELECT k, total(v), total(DISTINCT v), total(v) FILTER (WHERE v > 1), mean(v), sum_of(v) FROM sold GROUP BY k"
    )
    assert read_rows(tables.sql_query(sql)) == [("a", 7, 4, 6, 7 / 3, 7), ("b", 4, 4, 4, 4.0, 4)]
    assert read_rows(tables.sql_query("SELECT texts(v) FROM sold WHERE k = 'b' AND v > 0")) == [("4",)]
    assert read_rows(tables.sql_query("SELECT counted(v) FROM sold WHERE v = 3")) == [(expected([3, 3]),)]


def test_over_windows(tables: TableEnvironment) -> None:
    """Each row has the value of its frame."""
    sql = "SELECT v, total(v) OVER (ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM sold WHERE v > 0"
    assert read_rows(tables.sql_query(sql)) == [(1, 1), (3, 4), (3, 6), (4, 7)]


def test_aggregate_of_the_table_api(tables: TableEnvironment) -> None:
    """With the whole row as a data frame."""
    both = udaf(lambda frame: (frame.v.max(), len(frame)), result_type="ROW<most BIGINT, n INT>", func_type="pandas")
    found = tables.from_path("sold").group_by(col("k")).aggregate(both).select("*")
    assert read_rows(found) == [("a", 3, 3), ("b", 4, 2)]


def test_table_aggregates_are_for_streams(tables: TableEnvironment) -> None:
    """Which the error says."""
    flat = tables.from_path("sold").flat_aggregate(udtaf(Greatest())(col("v"))).select("*")
    with pytest.raises(UnsupportedError, match="TableAggregate"):
        flat.execute()
