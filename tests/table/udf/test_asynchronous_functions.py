"""Asynchronous scalar functions: what waits together, what is tried again, and what takes too long."""

from __future__ import annotations

import asyncio

import pytest
from tests.table.udf import importable
from tests.table.udf.jobs import environment, read_rows

from penstock.base.errors import ConfigurationError, UserFunctionError
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


@pytest.mark.parametrize(("strategy", "calls"), [("FIXED_DELAY", 3), ("NO_RETRY", 1)])
def test_a_call_that_fails_is_tried_again(strategy: str, calls: int) -> None:
    """As often as the options say; then the job fails with what the function raised."""
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


def test_options_that_make_no_sense_are_refused() -> None:
    """When the job starts."""
    made = environment((f"{PREFIX}max-concurrent-operations", "0"))
    with pytest.raises(ConfigurationError, match="max-concurrent-operations must be at least 1, not 0"):
        read_rows(made, "SELECT id FROM words")


def test_an_asynchronous_function_works_row_by_row() -> None:
    """Not on columns."""

    async def later(number: int) -> int:
        return number

    with pytest.raises(ValueError, match="function 'later' is asynchronous: its func_type is general, not pandas"):
        udf(later, func_type="pandas")
