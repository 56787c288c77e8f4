"""Asynchronous table functions: the rows of plain ones, in order, several calls at once, each call tried again."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.table.udf import importable
from tests.table.udf.jobs import changes_of, environment, read_rows

from penstock.base.errors import ConfigurationError, UnsupportedError, UserFunctionError
from penstock.sql.data.errors import ValidationError
from penstock.table import Row
from penstock.table.expressions import col
from penstock.table.udf import AsyncTableFunction, FunctionContext, ProcessTableFunction, udaf, udf, udptf, udtf

PREFIX = "table.exec.async-table."


def split(text: str | None) -> Iterator[tuple[str, int]]:
    for word in (text or "").split(" ") if text else ():
        yield word, len(word)


class Split(AsyncTableFunction):
    """The same rows; the shorter the text, the later."""

    async def eval(self, text: str | None) -> AsyncIterator[tuple[str, int]]:
        for _ in range(20 - 5 * len(text or "")):
            await asyncio.sleep(0)
        for row in split(text):
            yield row
            await asyncio.sleep(0)


FROM = {
    "SELECT id, word, n FROM words, LATERAL TABLE(split(text)) AS s (word, n)": [
        (1, "a", 1),
        (1, "bb", 2),
        (2, "c", 1),
    ],
    "SELECT id, word, n FROM words LEFT JOIN LATERAL TABLE(split(text)) AS s (word, n) ON TRUE": [
        (1, "a", 1),
        (1, "bb", 2),
        (2, "c", 1),
        (3, None, None),
    ],
    "SELECT id, word FROM words LEFT JOIN LATERAL TABLE(split(text)) AS s (word, n) ON n = id": [
        (1, "a"),
        (2, None),
        (3, None),
    ],
    "SELECT id, word FROM words CROSS JOIN LATERAL TABLE(split(text)) AS s (word, n) WHERE n > 1": [(1, "bb")],
    "SELECT word FROM TABLE(split('x y')) AS s (word, n)": [("x",), ("y",)],
    "SELECT a.word, b.n FROM words, LATERAL TABLE(split(text)) AS a (word, n), "
    "LATERAL TABLE(split(a.word)) AS b (word, n) WHERE id = 1": [("a", 1), ("bb", 2)],
}


@pytest.mark.parametrize("sql", FROM)
def test_a_query_gives_the_rows_of_each_row_in_order(sql: str) -> None:
    """Flink loses rows without results in LEFT JOIN, and refuses conditions on the rows."""
    made = environment(split=udtf(Split()))
    with made.execute_sql(sql).collect() as rows:
        assert [tuple(row) for row in rows] == FROM[sql]
    assert "AsyncCorrelate(split(" in made.explain_sql(sql)


def test_joins_of_the_table_api() -> None:
    """With and without the rows of which nothing is made, and the rows alone."""
    made = environment()
    words = made.from_path("words").select(col("id"), col("text"))
    call = udtf(Split())(col("text")).alias("word", "n")
    assert read_rows(made, words.join_lateral(call).select(col("word"))) == [("a",), ("bb",), ("c",)]
    assert read_rows(made, words.join_lateral(call, col("n") == col("id")).select(col("word"))) == [("a",)]
    assert read_rows(made, words.left_outer_join_lateral(call).select(col("id"), col("n")))[-1] == (3, None)

    @udtf(result_types="INT")
    async def both(row: Any) -> Any:
        return [row.id, row[0] + 10]

    assert read_rows(made, words.flat_map(both)) == [(1,), (11,), (12,), (13,), (2,), (3,)]


async def listed(number: int) -> list[tuple[int, str | None]]:
    return [(number, None)] * number


async def iterated(number: int) -> Iterator[tuple[int, str | None]]:
    return iter([(number, None)] * number)


async def yielded(number: int) -> AsyncIterator[tuple[int, str | None]]:
    for row in [(number, None)] * number:
        yield row


def handed_on(number: int) -> AsyncIterator[tuple[int, str | None]]:
    return yielded(number)


class HandedOn(AsyncTableFunction):
    """Awaits nothing itself."""

    def eval(self, number: int) -> AsyncIterator[tuple[int, str | None]]:
        return handed_on(number)


async def rows_of(made: Any, number: int) -> Any:
    return made


FORMS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "a list": (udtf(listed), [(2, None), (2, None)]),
    "an iterator": (udtf(iterated), [(2, None), (2, None)]),
    "yielded": (udtf(yielded), [(2, None), (2, None)]),
    "an asynchronous iterator": (udtf(HandedOn()), [(2, None), (2, None)]),
    "none": (functools.partial(rows_of, None), []),
    "an empty list": (functools.partial(rows_of, []), []),
    "one row": (functools.partial(rows_of, (1, "a")), [(1, "a")]),
    "one row of names": (functools.partial(rows_of, Row(f1="a", f0=1)), [(1, "a")]),
    "fields that are NULL": (functools.partial(rows_of, [(None, "a"), (None, None)]), [(None, "a"), (None, None)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_come_in_many_forms(form: str) -> None:
    """Those of plain table functions, and asynchronous iterators."""
    function, expected = FORMS[form]
    if isinstance(function, functools.partial):
        function = udtf(function, result_types=["BIGINT", "STRING"])
    made = environment(f=function)
    assert read_rows(made, "SELECT f0, f1 FROM words, LATERAL TABLE(f(id)) WHERE id = 2") == sorted(expected, key=str)


@pytest.mark.parametrize("parallelism", ["1", "2"])
def test_random_rows_are_those_of_a_plain_function(parallelism: str) -> None:
    """Also where calls fail and are repeated, and end in another order."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    drawn = random.Random(seed)
    rows = [(number, drawn.choice([None, *range(4)])) for number in range(drawn.randrange(1, 120))]

    def plain(number: int, count: int | None) -> list[tuple[int | None, int]] | None:
        return None if count is None else [(number if place else None, place) for place in range(count)]

    async def later(number: int, count: int | None) -> Any:
        for _ in range(drawn.randrange(5)):
            await asyncio.sleep(0)
        if drawn.random() < 0.1:
            raise ConnectionError("not now")
        return plain(number, count)

    types = ["BIGINT", "BIGINT"]
    options = ((f"{PREFIX}max-concurrent-operations", str(drawn.randrange(1, 12))), (f"{PREFIX}max-retries", "9"))
    delay = (f"{PREFIX}retry-delay", "0 ms")
    made = environment(*options, delay, plain=udtf(plain, result_types=types), later=udtf(later, result_types=types))
    made.get_config().set("parallelism.default", parallelism)
    made.get_config().set("penstock.source.batch-records", str(drawn.randrange(1, 50)))
    made.create_temporary_view("numbers", made.from_elements([(-1, 0), *rows], ["a", "b"]))
    joins = drawn.choice(
        ["{0} CROSS JOIN LATERAL TABLE({1}) AS t (x, y)", "{0} LEFT JOIN LATERAL TABLE({1}) t (x, y) ON y <> a"]
    )

    def answer(function: str, table: str) -> list[str]:
        return changes_of(made, f"SELECT * FROM {joins.format(table, f'{function}(a, b)')}")

    changing = "(SELECT MAX(a) AS a, b FROM numbers GROUP BY b)"
    if parallelism == "1":
        assert answer("later", "numbers") == answer("plain", "numbers")
        assert answer("later", changing) == answer("plain", changing)
    else:
        assert sorted(answer("later", "numbers")) == sorted(answer("plain", "numbers"))


def test_rows_keep_their_kinds() -> None:
    """What a row made is taken back with it, as in Flink."""

    async def upto(number: int) -> Any:
        return range(number)

    made = environment(upto=udtf(upto, result_types="BIGINT"))
    sql = "SELECT n, x FROM (SELECT COUNT(*) AS n FROM words), LATERAL TABLE(upto(n)) AS r (x)"
    assert changes_of(made, sql)[:5] == ["+I[1, 0]", "-U[1, 0]", "+U[2, 0]", "+U[2, 1]", "-U[2, 0]"]


# --- calls -----------------------------------------------------------------------------------------------------------


class Meeting(AsyncTableFunction):
    """Waits until so many calls are there."""

    def __init__(self, needed: int) -> None:
        self._needed = needed

    async def open(self, function_context: FunctionContext) -> None:  # type: ignore[override]
        self._here = self._most = 0
        self._event = asyncio.Event()

    async def eval(self, number: int) -> list[int]:
        self._here += 1
        self._most = max(self._most, self._here)
        if self._here == self._needed:
            self._event.set()
        await self._event.wait()
        self._here -= 1
        return [self._most]


@pytest.mark.parametrize("calls", [2, 3])
def test_as_many_calls_run_at_once_as_the_option_says(calls: int) -> None:
    """Each would wait for ever alone."""
    made = environment((f"{PREFIX}max-concurrent-operations", str(calls)), meeting=udtf(Meeting(calls)))
    assert max(read_rows(made, "SELECT f0 FROM words, LATERAL TABLE(meeting(id))")) == (calls,)


@pytest.mark.parametrize(("strategy", "calls"), [("FIXED_DELAY", 3), ("NO_RETRY", 1)])
def test_a_call_that_fails_is_repeated(strategy: str, calls: int) -> None:
    """As often as the options say; then the job fails with the function, the row and the error."""
    importable.CALLS.clear()

    async def broken(number: int) -> AsyncIterator[int]:
        importable.CALLS.append("call")
        yield number
        raise ValueError(f"no {number}")

    options = ((f"{PREFIX}retry-strategy", strategy), (f"{PREFIX}retry-delay", "1 ms"), (f"{PREFIX}max-retries", "2"))
    made = environment(*options, broken=udtf(broken))
    with pytest.raises(UserFunctionError, match="no 2") as caught:
        read_rows(made, "SELECT * FROM (SELECT id FROM words WHERE id = 2), LATERAL TABLE(broken(id))")
    assert len(importable.CALLS) == calls
    text = str(caught.value)
    assert "asynchronous table function 'broken'\nrecord: (2,)" in text
    assert "src/penstock" not in text
    assert "asyncio" not in text


def test_rows_of_a_call_that_failed_are_not_used() -> None:
    """The repeated call gives all of them."""
    importable.CALLS.clear()

    async def shaky(number: int) -> AsyncIterator[int]:
        yield number
        importable.CALLS.append("call")
        if len(importable.CALLS) == 1:
            raise ValueError("not yet")
        yield number + 1

    made = environment((f"{PREFIX}retry-delay", "1 ms"), shaky=udtf(shaky))
    assert read_rows(made, "SELECT f0 FROM words, LATERAL TABLE(shaky(id)) WHERE id = 1") == [(1,), (2,)]


def test_a_call_that_takes_too_long_fails() -> None:
    """With its retries; the message says the option, and why the call failed before."""
    importable.CALLS.clear()

    async def endless(number: int) -> AsyncIterator[int]:
        try:
            await asyncio.Event().wait()
        finally:
            importable.CALLS.append("ended")
        yield number

    async def failing(number: int) -> list[int]:
        await asyncio.sleep(0)
        raise ValueError("not now")

    options = ((f"{PREFIX}timeout", "20 ms"), (f"{PREFIX}retry-delay", "1 ms"), (f"{PREFIX}max-retries", "1000000"))
    made = environment(*options, endless=udtf(endless), failing=udtf(failing))
    late = r"took longer than 20 ms \(table.exec.async-table.timeout\)"
    with pytest.raises(UserFunctionError, match=f"asynchronous table function 'endless'[^$]*{late}$"):
        read_rows(made, "SELECT * FROM words, LATERAL TABLE(endless(id))")
    assert importable.CALLS == ["ended"] * 3
    with pytest.raises(UserFunctionError, match=f"{late}, after it had failed with ValueError: not now"):
        read_rows(made, "SELECT * FROM words, LATERAL TABLE(failing(id))")


WRONG: dict[str, tuple[Any, str]] = {
    "fields": ((1, 2, 3), r"it gave the row \(1, 2, 3\) of 3 fields, and its result types are 2"),
    "type": ((1, 2), "it returned 2 .int., which is no STRING, as column f1 is"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_fails_with_the_function_and_the_row(case: str) -> None:
    """At once: the call would give the same again."""
    wrong, message = WRONG[case]
    made = environment(wrong=udtf(functools.partial(rows_of, wrong), result_types=["BIGINT", "STRING"], name="wrong"))
    with pytest.raises(UserFunctionError, match=f"function 'wrong'\nrecord: .2,.[^$]*{message}"):
        read_rows(made, "SELECT * FROM (SELECT id FROM words WHERE id = 2), LATERAL TABLE(wrong(id))")


@pytest.mark.parametrize("option", ["max-concurrent-operations", "max-retries"])
def test_options_that_make_no_sense_are_refused(option: str) -> None:
    """When the job starts."""
    with pytest.raises(ConfigurationError, match=f"{PREFIX}{option} .* has value '0': must be at least 1"):
        read_rows(environment((f"{PREFIX}{option}", "0")), "SELECT id FROM words")


class Client(AsyncTableFunction):
    """Opens and closes what it asks in the loop of its calls."""

    async def open(self, function_context: FunctionContext) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self._loop = asyncio.get_running_loop()
        importable.CALLS.append("open")

    async def eval(self, number: int) -> list[int]:
        assert asyncio.get_running_loop() is self._loop
        return [number]

    async def close(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is self._loop
        importable.CALLS.append("close")


def test_it_is_opened_and_closed_where_it_runs() -> None:
    """`open` and `close` may be asynchronous."""
    importable.CALLS.clear()
    read_rows(environment(client=udtf(Client())), "SELECT * FROM words, LATERAL TABLE(client(id))")
    assert importable.CALLS == ["open", "close"]


# --- guarantees ------------------------------------------------------------------------------------------------------


class FailsOnce(AsyncTableFunction):
    """Two rows for each number; fails once, when a checkpoint is complete."""

    failures = 0
    first_calls = 0

    async def eval(self, number: int) -> list[tuple[int, int]]:
        await asyncio.sleep(0)
        FailsOnce.first_calls += number == 1
        if number == 4_000 and not FailsOnce.failures:
            FailsOnce.failures += 1
            raise RuntimeError("once")
        return [(number, 0), (number, 1)]


def test_rows_are_exactly_once_through_a_failure(tmp_path: Path) -> None:
    """G8: no call is in flight at a checkpoint, so the rows behind it are called again, and no others."""
    FailsOnce.failures = FailsOnce.first_calls = 0
    options = {
        f"{PREFIX}retry-strategy": "NO_RETRY",
        "execution.checkpointing.interval": "20 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    made = environment(*options.items(), twice=udtf(FailsOnce()))
    made.execute_sql(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10000', "
        "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '6000')"
    )
    made.execute_sql(
        "CREATE TABLE sink (n BIGINT, place BIGINT) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path / 'sink'}', 'format' = 'parquet')"
    )
    made.execute_sql("INSERT INTO sink SELECT x, y FROM numbers, LATERAL TABLE(twice(n)) AS t (x, y)").wait()
    files = [file for file in (tmp_path / "sink").rglob("part-*") if not file.name.startswith(".")]
    rows = [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    assert (FailsOnce.failures, FailsOnce.first_calls) == (1, 1)
    assert sorted(rows) == [(number, place) for number in range(1, 6_001) for place in (0, 1)]


# --- catalogs and plans ----------------------------------------------------------------------------------------------


def test_sql_creates_and_describes_it() -> None:
    """By its path, as Flink's ASYNC_TABLE."""
    made = environment()
    made.execute_sql("CREATE FUNCTION letters AS 'tests.table.udf.importable.LaterLetters' LANGUAGE PYTHON")
    sql = "SELECT id, x FROM words LEFT JOIN LATERAL TABLE(letters(text)) AS t (x) ON TRUE WHERE id > 1"
    assert read_rows(made, sql) == [(2, "c"), (3, None)]
    assert read_rows(made, "SHOW USER FUNCTIONS") == [("letters",)]
    assert read_rows(made, "DESCRIBE FUNCTION EXTENDED letters") == [
        ("class name", "tests.table.udf.importable.LaterLetters"),
        ("function language", "PYTHON"),
        ("is deterministic", "true"),
        ("is system function", "false"),
        ("is temporary", "false"),
        ("kind", "ASYNC_TABLE"),
        ("requirements", "[]"),
        ("supports constant folding", "false"),
    ]
    made.create_temporary_function("own", udf(listed, result_type="STRING"))
    assert ("kind", "ASYNC_SCALAR") in read_rows(made, "DESCRIBE FUNCTION EXTENDED own")


def test_a_compiled_plan_calls_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is found by its name, and has to be asynchronous still."""
    made = environment(letters=udtf(importable.LaterLetters()))
    made.execute_sql("CREATE TABLE shown (id INT, x STRING) WITH ('connector' = 'print')")
    plan = tmp_path / "plan.json"
    insert = "INSERT INTO shown SELECT id, x FROM words, LATERAL TABLE(letters(text)) AS t (x)"
    made.execute_sql(f"COMPILE PLAN '{plan}' FOR {insert}")
    capsys.readouterr()
    made.execute_sql(f"EXECUTE PLAN '{plan}'").wait()
    assert capsys.readouterr().out.splitlines() == ["+I[1, a]", "+I[1,  ]", "+I[1, b]", "+I[1, b]", "+I[2, c]"]
    made.drop_temporary_function("letters")
    made.create_temporary_function("letters", udtf(importable.Letters()))
    with pytest.raises(ValidationError, match="calls the asynchronous table function 'letters', and there is none"):
        made.execute_sql(f"EXECUTE PLAN '{plan}'")


def test_annotations_say_the_columns() -> None:
    """Of what is yielded, too."""
    assert str(udtf(Split()).definition.result_type) == "ROW<`f0` STRING, `f1` BIGINT> NOT NULL"
    assert str(udtf(listed).definition.result_type) == "ROW<`f0` BIGINT, `f1` STRING> NOT NULL"


# --- what is refused -------------------------------------------------------------------------------------------------


def test_it_is_no_scalar_function() -> None:
    """Neither by a query nor by its definition."""
    made = environment(letters=udtf(importable.LaterLetters()))
    with pytest.raises(ValidationError, match="asynchronous table function 'letters' gives rows: call it as LATERAL"):
        made.sql_query("SELECT letters(text) FROM words")
    with pytest.raises(TypeError, match="'yielded' yields rows, so it is no scalar function: pass it to udtf"):
        udf(yielded, result_type="BIGINT")


def test_aggregates_and_process_table_functions_are_not_asynchronous() -> None:
    """With what to write instead."""

    async def total(prices: Any) -> float:
        return 0.0

    class Asks(ProcessTableFunction):
        async def eval(self, row: Row) -> list[int]:
            return [1]

    with pytest.raises(UnsupportedError, match="call a service in an asynchronous scalar function first"):
        udaf(total, func_type="pandas")
    with pytest.raises(UnsupportedError, match="call a service in an asynchronous scalar or table function first"):
        udptf(Asks)
