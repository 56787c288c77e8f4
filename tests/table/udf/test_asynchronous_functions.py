"""Asynchronous scalar functions, on values and on columns: what waits together, is tried again, or takes too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.table.udf import importable
from tests.table.udf.jobs import environment, read_rows

from penstock.base.errors import ConfigurationError, UserFunctionError
from penstock.sql.user_functions.definition import call_settings
from penstock.table import Row
from penstock.table.expressions import col
from penstock.table.udf import AsyncScalarFunction, udf

PREFIX = "table.exec.async-scalar."


class Meeting(AsyncScalarFunction):
    """Waits until so many calls are there."""

    def __init__(self, needed: int) -> None:
        self._needed = needed

    def open(self, function_context: object) -> None:
        self._here = self._most = 0
        self._event: asyncio.Event | None = None

    async def eval(self, number: int) -> int:
        if self._event is None:
            self._event = asyncio.Event()
        self._here += 1
        if self._here == self._needed:
            self._event.set()
        await self._event.wait()
        return number * 10


def test_the_calls_of_a_batch_wait_together() -> None:
    """Each would wait for ever alone."""
    made = environment()
    table = made.from_path("words").select(col("id"), udf(Meeting(3))(col("id")))
    assert read_rows(made, table) == [(1, 10), (2, 20), (3, 30)]


def test_no_more_calls_are_out_than_the_option_says() -> None:
    """The rest waits for a place."""
    most = 0
    out = 0

    @udf
    async def counted(number: int) -> int:
        nonlocal most, out
        out += 1
        most = max(most, out)
        await asyncio.sleep(0)
        out -= 1
        return most

    made = environment((f"{PREFIX}max-concurrent-operations", "2"))
    table = made.from_elements([(number,) for number in range(9)], ["n"]).select(counted(col("n")))
    assert max(most for (most,) in read_rows(made, table)) == 2


def test_a_function_of_sql_is_asynchronous_too() -> None:
    """By `async def`."""

    @udf
    async def twice(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    assert read_rows(environment(twice=twice), "SELECT twice(id) + 1 FROM words WHERE twice(id) > 2") == [(5,), (7,)]


@pytest.mark.parametrize(("strategy", "calls"), [("FIXED_DELAY", 4), ("NO_RETRY", 1)])
def test_a_call_that_fails_is_tried_again(strategy: str, calls: int) -> None:
    """Three times more, as in Flink; then the job fails with what the function raised."""
    importable.CALLS.clear()

    async def broken(number: int) -> int:
        importable.CALLS.append("call")
        raise ValueError(f"no {number}")

    made = environment((f"{PREFIX}retry-strategy", strategy), (f"{PREFIX}retry-delay", "1 ms"), broken=udf(broken))
    with pytest.raises(UserFunctionError, match="no 2") as caught:
        read_rows(made, "SELECT broken(id) FROM words WHERE id = 2")
    assert len(importable.CALLS) == calls
    text = str(caught.value)
    assert "asynchronous scalar function 'broken'" in text
    assert "src/penstock" not in text
    assert "asyncio" not in text


def test_a_call_that_fails_once_succeeds_at_the_second_time() -> None:
    """Nobody notices."""
    importable.CALLS.clear()

    async def shaky(number: int) -> int:
        importable.CALLS.append("call")
        if len(importable.CALLS) == 1:
            raise ValueError("not yet")
        return number

    made = environment((f"{PREFIX}retry-delay", "1 ms"), shaky=udf(shaky))
    assert read_rows(made, "SELECT shaky(id) FROM words WHERE id = 1") == [(1,)]


def test_a_call_that_takes_too_long_fails() -> None:
    """With the option that says how long it may take."""

    async def endless(number: int) -> int:
        await asyncio.Event().wait()
        return number

    options = ((f"{PREFIX}timeout", "5 ms"), (f"{PREFIX}max-attempts", "1"))
    with pytest.raises(UserFunctionError, match=r"took longer than 5 ms \(table.exec.async-scalar.timeout\)"):
        read_rows(environment(*options, endless=udf(endless)), "SELECT endless(id) FROM words")


def test_a_call_with_its_retries_ends_in_time() -> None:
    """As in Flink; the message says why the call failed before."""

    async def failing(number: int) -> int:
        await asyncio.sleep(0)
        raise ConnectionError("nobody there")

    options = ((f"{PREFIX}timeout", "20 ms"), (f"{PREFIX}retry-delay", "1 ms"), (f"{PREFIX}max-attempts", "1000000"))
    late = (
        r"took longer than 20 ms \(table.exec.async-scalar.timeout\), after it had failed with ConnectionError: nobody"
    )
    with pytest.raises(UserFunctionError, match=late):
        read_rows(environment(*options, failing=udf(failing)), "SELECT failing(id) FROM words")


def test_a_timeout_of_its_own_is_no_timeout_of_the_call() -> None:
    """It is repeated like any other error."""

    async def impatient(number: int) -> int:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
        return number

    made = environment((f"{PREFIX}retry-delay", "1 ms"), impatient=udf(impatient))
    with pytest.raises(UserFunctionError, match=r"TimeoutError$"):
        read_rows(made, "SELECT impatient(id) FROM words")


def test_options_that_make_no_sense_are_refused() -> None:
    """When the job starts."""
    made = environment((f"{PREFIX}max-concurrent-operations", "0"))
    with pytest.raises(ConfigurationError, match=r"max-concurrent-operations .* has value '0': must be at least 1"):
        read_rows(made, "SELECT id FROM words")


def test_the_earlier_name_of_an_option_is_known() -> None:
    """As in Flink, where the newer one wins."""
    capacity, newer = f"{PREFIX}buffer-capacity", f"{PREFIX}max-concurrent-operations"
    assert call_settings({capacity: "7"}).scalar.concurrent_max == 7
    assert call_settings({capacity: "7", newer: "8"}).scalar.concurrent_max == 8
    assert call_settings({}).scalar.concurrent_max == 10


# --- functions of columns --------------------------------------------------------------------------------------------

BATCH_SIZE = "python.fn-execution.arrow.batch.size"


class Batches(AsyncScalarFunction):
    """Waits until so many calls are there, and returns the numbers with the rows of their call."""

    def __init__(self, needed: int) -> None:
        self._needed = needed

    async def open(self, function_context: object) -> None:  # type: ignore[override]
        self._here, self._event = 0, asyncio.Event()

    async def eval(self, numbers: Any, factor: int) -> Any:
        self._here += 1
        if self._here == self._needed:
            self._event.set()
        await self._event.wait()
        if isinstance(numbers, pa.Array):
            return pc.add(pc.multiply(numbers, factor), len(numbers))
        return numbers * factor + len(numbers)


@pytest.mark.parametrize("func_type", ["pandas", "arrow"])
def test_calls_on_columns_wait_together(func_type: str) -> None:
    """Each takes as many rows as the option says, and would wait for ever alone; the rows keep their order."""
    batches = udf(Batches(3), result_type="BIGINT", func_type=func_type)
    made = environment((BATCH_SIZE, "2"), batches=batches)
    made.create_temporary_view("numbers", made.from_elements([(n,) for n in range(5)], ["n"]))
    with made.execute_sql("SELECT batches(n, 10) FROM numbers").collect() as rows:
        assert [tuple(row) for row in rows] == [(2,), (12,), (22,), (32,), (41,)]


def test_a_call_on_columns_is_small_where_nothing_is_said() -> None:
    """A thousand rows, so that several run at once; a function that is not asynchronous takes a whole batch."""

    async def later(numbers: Any) -> Any:
        return pa.array([len(numbers)] * len(numbers))

    made = environment(
        later=udf(later, result_type="BIGINT", func_type="arrow"),
        at_once=udf(lambda numbers: pa.array([len(numbers)] * len(numbers)), result_type="BIGINT", func_type="arrow"),
    )
    made.create_temporary_view("numbers", made.from_elements([(n,) for n in range(2_500)], ["n"]))
    sizes = "SELECT later(n), at_once(n), COUNT(*) FROM numbers GROUP BY later(n), at_once(n)"
    assert {(row[0], row[1]) for row in read_rows(made, sizes)} == {(1_000, 2_500), (500, 2_500)}
    made.get_config().set(BATCH_SIZE, "1250")
    assert {(row[0], row[1]) for row in read_rows(made, sizes)} == {(1_250, 1_250)}


NESTED = (
    "SELECT id, f(MAP[COALESCE(text, '-'), id]), g(ARRAY[id, id + 1]), f(MAP['x', 1]), "
    "h(CAST(ROW(id, text) AS ROW<id INT, text STRING>)) FROM words"
)


@pytest.mark.parametrize("func_type", ["pandas", "arrow"])
def test_values_of_many_parts_survive_the_cut(func_type: str) -> None:
    """Maps, arrays and rows, in calls of one row each as in one call."""

    async def same(values: Any) -> Any:
        return values

    types = {"f": "MAP<STRING, INT>", "g": "ARRAY<INT>", "h": "ROW<id INT, text STRING>"}
    functions = {name: udf(same, result_type=kind, func_type=func_type) for name, kind in types.items()}
    cut = read_rows(environment((BATCH_SIZE, "1"), **functions), NESTED)
    assert cut == read_rows(environment(**functions), NESTED)
    assert cut[1] == (2, {"c": 2}, [2, 3], {"x": 1}, Row(2, "c"))


def test_a_call_on_columns_that_fails_is_tried_again_and_says_its_rows() -> None:
    """As one on values."""
    importable.CALLS.clear()

    async def broken(numbers: Any) -> Any:
        importable.CALLS.append("call")
        raise ValueError("no answer")

    options = ((f"{PREFIX}retry-delay", "1 ms"), (f"{PREFIX}max-attempts", "1"), (f"{PREFIX}timeout", "1 min"))
    made = environment(*options, broken=udf(broken, result_type="BIGINT", func_type="pandas"))
    with pytest.raises(UserFunctionError, match="asynchronous scalar function 'broken'\nrecord: 'a batch of 3 rows'"):
        read_rows(made, "SELECT broken(id) FROM words")
    assert len(importable.CALLS) == 2


def test_a_call_on_columns_returns_as_many_values() -> None:
    """In each call."""

    async def lost(numbers: Any) -> Any:
        return numbers[:1]

    made = environment((BATCH_SIZE, "2"), lost=udf(lost, result_type="BIGINT", func_type="pandas"))
    with pytest.raises(UserFunctionError, match="it returned 1 values for a batch of 2 rows"):
        read_rows(made, "SELECT lost(id) FROM words")
