"""Functions of the program and UNNEST, in BATCH."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.table.batch.batches import SETTINGS

from penstock.common import Configuration
from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment
from penstock.table.udf import FunctionContext, ScalarFunction, udf, udtf

pytestmark = pytest.mark.spark


class Greeting(ScalarFunction):
    """Says the word that the program set, which it learns when it is opened."""

    def open(self, function_context: FunctionContext) -> None:
        self._word = function_context.get_job_parameter("greeting", "Hello")

    def eval(self, name: str) -> str:
        return f"{self._word}, {name}"


@udtf(result_types=["STRING", "BIGINT"])
def letters(text: str) -> Iterator[tuple[str, int]]:
    for place, letter in enumerate(text, 1):
        yield letter, place


@udtf(result_types=["STRING", "BIGINT"])
async def later_letters(text: str) -> AsyncIterator[tuple[str, int]]:
    for letter in letters.definition.function.eval(text):
        await asyncio.sleep(0)
        yield letter


@udf(result_type=DataTypes.STRING(), func_type="pandas")
async def later_greeting(names: Any) -> Any:
    await asyncio.sleep(0)
    return "Later, " + names


@pytest.fixture
def tables() -> TableEnvironment:
    configuration = Configuration()
    for key, value in {**SETTINGS, "pipeline.global-job-parameters": "greeting:Servus"}.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_batch_mode().with_configuration(configuration).build()
    found = TableEnvironment.create(settings)
    people = found.from_elements([("Al", [1, 2]), ("Bo", [])], DataTypes.ROW(_FIELDS))
    found.create_temporary_view("people", people)
    found.create_temporary_function("greeting", udf(Greeting(), result_type=DataTypes.STRING()))
    found.create_temporary_function("trim_all", udf(lambda text: text[1:], result_type=DataTypes.STRING()))
    found.create_temporary_function("letters", letters)
    found.create_temporary_function("later_letters", later_letters)
    found.create_temporary_function("later_greeting", later_greeting)
    return found


_FIELDS = [DataTypes.FIELD("name", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.ARRAY(DataTypes.BIGINT()))]


def read_rows(tables: TableEnvironment, sql: str) -> list[tuple[object, ...]]:
    with tables.execute_sql(sql).collect() as rows:
        return sorted(tuple(row) for row in rows)


def test_a_scalar_function_is_opened_where_it_runs(tables: TableEnvironment) -> None:
    assert read_rows(tables, "SELECT greeting(name) FROM people") == [("Servus, Al",), ("Servus, Bo",)]


def test_functions_stand_beside_those_that_spark_answers(tables: TableEnvironment) -> None:
    sql = "SELECT trim_all(name), CHAR_LENGTH(name) + 1 FROM people WHERE trim_all(name) = 'o'"
    assert read_rows(tables, sql) == [("o", 3)]


def test_a_table_function_makes_rows(tables: TableEnvironment) -> None:
    sql = "SELECT name, letter, place FROM people, LATERAL TABLE(letters(name)) AS t (letter, place) WHERE place = 2"
    assert read_rows(tables, sql) == [("Al", "l", 2), ("Bo", "o", 2)]


def test_unnest_keeps_rows_without_elements_where_asked(tables: TableEnvironment) -> None:
    sql = "SELECT name, e FROM people LEFT JOIN UNNEST(n) AS t (e) ON TRUE WHERE e IS NULL OR e = 2"
    assert read_rows(tables, sql) == [("Al", 2), ("Bo", None)]


def test_asynchronous_functions_give_the_same(tables: TableEnvironment) -> None:
    """Flink refuses asynchronous table functions in batch."""
    lateral = "SELECT name, letter, place FROM people {} LATERAL TABLE({}(name)) AS t (letter, place) {}"
    for join, condition in (("CROSS JOIN", "WHERE place < 3"), ("LEFT JOIN", "ON place = CHAR_LENGTH(name) + 1")):
        later = read_rows(tables, lateral.format(join, "later_letters", condition))
        assert later == read_rows(tables, lateral.format(join, "letters", condition))
        assert later
    assert read_rows(tables, "SELECT later_greeting(name) FROM people") == [("Later, Al",), ("Later, Bo",)]


def test_asynchronous_functions_run_in_micro_batches() -> None:
    configuration = Configuration()
    micro = {"execution.runtime-mode": "MICRO_BATCH", "execution.micro-batch.max-records": "2"}
    for key, value in {**SETTINGS, **micro, "parallelism.default": "2"}.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    found = TableEnvironment.create(settings)
    found.create_temporary_function("later_letters", later_letters)
    found.create_temporary_view("people", found.from_elements([("Al",), ("Bo",), ("C",)], ["name"]))
    sql = "SELECT name, letter FROM people, LATERAL TABLE(later_letters(name)) AS t (letter, place)"
    assert read_rows(found, sql) == [("Al", "A"), ("Al", "l"), ("Bo", "B"), ("Bo", "o"), ("C", "C")]
