"""A4: MATCH_RECOGNIZE in streams: by event time, unless a test says otherwise."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import CanonicalRocks
from tests.table.streaming.matching import Matching, matched_plan, plan_node

from penstock.base.errors import UnsupportedError
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MAX_WATERMARK
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.explain import plan_text
from penstock.sql.stream.match.operator import match_operator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.testing import operator_harness

BY_SYMBOL = "PARTITION BY symbol ORDER BY ts"
#: a fall, and the first rise after it
FALL = f"""
    {BY_SYMBOL} MEASURES FIRST(DOWN.price) AS top, LAST(DOWN.price) AS bottom, UP.price AS up
    AFTER MATCH SKIP PAST LAST ROW PATTERN (DOWN{{2,}} UP)
    DEFINE DOWN AS LAST(DOWN.price, 1) IS NULL OR DOWN.price < LAST(DOWN.price, 1), UP AS UP.price > LAST(DOWN.price)
"""


def matches(clauses: str, *rows: Any) -> list[tuple[Any, ...]]:
    """The matches in rows of one symbol, or prices a second apart."""
    found = Matching(clauses)
    found.rows(*[row if isinstance(row, tuple) else ("x", row, 1000 * place) for place, row in enumerate(rows)])
    found.watermark(MAX_WATERMARK)
    return found.take()


def prices(pattern: str, define: str, *rows: Any, measures: str = "FIRST(price) AS f, LAST(price) AS l") -> Any:
    """What measures give for matches of a pattern; those after one another share no row."""
    skip = "AFTER MATCH SKIP PAST LAST ROW"
    clauses = f"ORDER BY ts MEASURES {measures} {skip} PATTERN ({pattern}) DEFINE {define}"
    return matches(clauses, *rows)


# --- patterns ---------------------------------------------------------------------------------------------------------


def test_rows_are_matched_in_the_order_of_time_when_the_watermark_has_passed_them() -> None:
    found = Matching(FALL)
    found.rows(("x", 7, 20), ("x", 9, 10), ("y", 5, 10), ("y", 4, 20), ("y", 8, 30), ("x", 8, 30))
    assert found.take() == []
    found.watermark(20)
    assert found.take() == []
    found.watermark(30)
    assert sorted(found.take()) == [("x", 9, 7, 8), ("y", 5, 4, 8)]


def test_further_columns_order_rows_of_one_time() -> None:
    clauses = FALL.replace("ORDER BY ts", "ORDER BY ts, price DESC")
    assert matches(clauses, ("x", 7, 10), ("x", 9, 10), ("x", 8, 11)) == [("x", 9, 7, 8)]


def test_late_rows_are_dropped_and_counted() -> None:
    found = Matching(FALL)
    found.watermark(10)
    found.rows(("x", 9, 10), ("x", 8, 11))
    assert found.harnesses[0].counters[LATE_RECORDS] == 1


def test_a_row_needs_its_time() -> None:
    with pytest.raises(UserCodeError, match=r"'price': 9.*'ts': None") as raised:
        Matching(FALL).rows(("x", 9, None))
    assert "column 'ts' is NULL in a row, and MATCH_RECOGNIZE needs" in str(raised.value.__cause__)


@pytest.mark.parametrize(
    ("pattern", "rows", "wanted"),
    [
        ("A B", "a b x a x b", [(0, 1)]),
        ("A B? C", "a c a b c", [(0, 1), (2, 4)]),
        ("A B* C", "a c a b b c", [(0, 1), (2, 5)]),
        ("A B+ C", "a c a b b c", [(2, 5)]),
        ("A B{2} C", "a b c a b b c", [(3, 6)]),
        ("A B{2,} C", "a b c a b b b c", [(3, 7)]),
        ("A B{1,2} C", "a b b c a b b b c", [(0, 3)]),
        ("A B{,2} C", "a c a b b c a b b b c", [(0, 1), (2, 5)]),
        ("A B{2,}?", "a b b b", [(0, 2)]),
        ("A B?", "a x a b", [(0, 0), (2, 2)]),
    ],
)
def test_quantifiers(pattern: str, rows: str, wanted: list[Any]) -> None:
    define = "A AS price = 1, B AS price = 2, C AS price = 3"
    clauses = f"""
        ORDER BY ts MEASURES FIRST(ts) AS f, LAST(ts) AS l AFTER MATCH SKIP PAST LAST ROW
        PATTERN ({pattern}) DEFINE {define}
    """
    found = matches(clauses, *[("x", "xabc".index(letter), place) for place, letter in enumerate(rows.split())])
    assert [(begin.microsecond // 1000, end.microsecond // 1000) for begin, end in found] == wanted


def test_the_difference_between_greedy_and_reluctant() -> None:
    """The example of Flink's documents."""
    define = "A AS A.price > 10, B AS B.price < 15, C AS C.price > 12"
    rows = (10, 11, 12, 13, 14, 16)
    assert prices("A B* C", define, *rows, measures="C.price AS last") == [(16,)]
    assert prices("A B*? C", define, *rows, measures="C.price AS last") == [(13,), (16,)]


def test_a_variable_without_a_condition_takes_any_row() -> None:
    assert prices("A B C", "A AS A.price = 1", 1, 7, 9) == [(1, 9)]


@pytest.mark.parametrize(
    ("skip", "wanted"),
    [
        ("PAST LAST ROW", [(26, 1, 4), (17, 5, 7)]),
        ("TO NEXT ROW", [(26, 1, 4), (24, 2, 5), (25, 3, 6), (22, 4, 7), (17, 5, 7)]),
        ("TO LAST A", [(26, 1, 4), (25, 3, 6), (17, 5, 7)]),
    ],
)
def test_where_the_search_goes_on(skip: str, wanted: list[Any]) -> None:
    """The example of Flink's documents."""
    clauses = f"""
        PARTITION BY symbol ORDER BY ts MEASURES SUM(A.price) AS s, FIRST(ts) AS b, LAST(ts) AS e
        AFTER MATCH SKIP {skip} PATTERN (A+ C) DEFINE A AS SUM(A.price) < 30
    """
    rows = [("x", price, second + 1) for second, price in enumerate([7, 9, 10, 5, 10, 7, 14])]
    found = [
        (total, begin.microsecond // 1000, end.microsecond // 1000) for _, total, begin, end in matches(clauses, *rows)
    ]
    assert found == wanted


def test_skipping_to_where_the_match_began_fails() -> None:
    clauses = FALL.replace("PAST LAST ROW", "TO FIRST DOWN")
    with pytest.raises(UserCodeError) as raised:
        matches(clauses, 9, 8, 10)
    assert "Could not skip to first element of a match" in str(raised.value.__cause__)


# --- expressions ------------------------------------------------------------------------------------------------------


def test_logical_offsets_in_conditions() -> None:
    """The example of Flink's documents: 35 is less than twice 20."""
    define = """
        A AS A.price >= 10,
        B AS (LAST(B.price, 1) IS NULL OR B.price > LAST(B.price, 1))
             AND (LAST(B.price, 2) IS NULL OR B.price > 2 * LAST(B.price, 2)),
        C AS C.price = 35
    """
    assert prices("A B+ C", define, 10, 15, 20, 31, 35, measures="COUNT(B.price) AS n, FIRST(B.price, 1) AS f") == [
        (3, 20)
    ]


def test_a_column_without_a_variable_is_of_all_rows() -> None:
    define = "A AS price = 10, B AS price = 13, C AS LAST(price, 1) = C.price - 5"
    assert prices("A B? C", define, 10, 13, 18) == [(10, 18)]
    assert prices("A B? C", define, 10, 15) == [(10, 15)]
    assert prices("A B? C", define, 10, 13, 15) == []


def test_aggregates_over_rows_of_a_variable_and_over_all() -> None:
    define = "A AS A.price >= 10, B AS B.price > A.price AND SUM(price) < 100 AND SUM(B.price) < 80, C AS TRUE"
    measures = (
        "SUM(B.price) AS s, AVG(B.price * 2) AS a, MIN(price) AS mi, MAX(price) AS ma, COUNT(*) AS n, C.price AS c"
    )
    assert prices("A B+ C", define, 10, 15, 20, 31, 35, measures=measures) == [(66, 44, 10, 35, 5, 35)]


def test_expressions_in_first_and_last() -> None:
    clauses = """
        ORDER BY ts MEASURES LAST(A.price * A.tax, 1) AS c, FINAL FIRST(A.price) AS f, PREV(A.price, 0) AS p
        AFTER MATCH SKIP PAST LAST ROW PATTERN (A{2} B) DEFINE A AS A.price < 5, B AS price > 5
    """
    assert matches(clauses, ("x", 2, 1, 10), ("x", 3, 2, 20), ("x", 6, 3, 30)) == [(20, 2, 3)]


def test_what_is_not_there_is_null() -> None:
    assert prices("A B* C", "A AS price = 1, B AS price = 2, C AS price = 3", 1, 3, measures="B.price AS b") == [
        (None,)
    ]


def test_a_condition_that_may_fail_is_only_asked_for_candidates() -> None:
    """100 / 0 would fail, and no partial match waits for B there."""
    define = "A AS price = 1, B AS 100 / B.price > 10"
    assert prices("A B", define, 0, 1, 5, 0) == [(1, 5)]


def test_a_condition_behind_one_that_guards_it_does_not_fail() -> None:
    define = "A AS price = 1, B AS B.price <> 0 AND 100 / B.price > A.price"
    assert prices("A B", define, 1, 0, 1, 5) == [(1, 5)]


def test_match_rowtime_and_match_proctime_are_time_attributes() -> None:
    node = plan_node(
        """ORDER BY ts MEASURES A.price AS a, MATCH_ROWTIME() AS r, MATCH_ROWTIME(ts) AS s, MATCH_PROCTIME() AS p,
        A.ts AS t PATTERN (A) DEFINE A AS TRUE"""
    )
    assert [str(column) for column in node.schema] == [
        "INT",
        "TIMESTAMP(3) NOT NULL *ROWTIME*",
        "TIMESTAMP(3) *ROWTIME*",
        "TIMESTAMP_LTZ(3) NOT NULL *PROCTIME*",
        "TIMESTAMP(3) *ROWTIME*",
    ]


def test_the_time_of_a_match_is_that_of_its_last_row() -> None:
    found = Matching("ORDER BY ts MEASURES MATCH_ROWTIME() AS r PATTERN (A B) DEFINE A AS price = 1, B AS price = 2")
    found.rows(("x", 1, 1000), ("x", 2, 3000))
    found.watermark(MAX_WATERMARK)
    (record,) = found.harnesses[0].take_output()
    assert record.timestamp == 3000
    assert str(next(iter(record.value))) == "1970-01-01 00:00:03"


# --- time and state ---------------------------------------------------------------------------------------------------

WITHIN = f"""
    {BY_SYMBOL} MEASURES A.price AS a, C.price AS c AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A B* C) WITHIN INTERVAL '1' HOUR
    DEFINE B AS B.price > A.price - 10, C AS C.price < A.price - 10
"""


def test_a_match_is_shorter_than_its_window() -> None:
    hour = 3_600_000
    assert matches(WITHIN, ("x", 30, 0), ("x", 25, 1), ("x", 15, hour - 1)) == [("x", 30, 15)]
    assert matches(WITHIN, ("x", 30, 0), ("x", 29, 1), ("x", 15, hour)) == [("x", 29, 15)]


def test_what_took_too_long_is_forgotten() -> None:
    found = Matching(WITHIN)
    found.rows(("x", 30, 0), ("x", 29, 10), ("y", 7, 20))
    found.watermark(20)
    assert found.held > 0
    found.watermark(3_600_020)
    assert found.held == 0


def test_a_partition_in_which_nothing_has_begun_holds_nothing() -> None:
    found = Matching(f"{BY_SYMBOL} MEASURES A.price AS a PATTERN (A B) DEFINE A AS price = 1, B AS price = 2")
    found.rows(("x", 5, 1), ("y", 1, 2), ("y", 7, 3))
    found.watermark(10)
    assert found.held == 0


def test_in_processing_time_rows_are_matched_as_they_come() -> None:
    found = Matching(FALL.replace("ORDER BY ts", "ORDER BY p"))
    found.rows(("x", 9), ("x", 8))
    found.recover(2)
    found.rows(("x", 10))
    assert found.take() == [("x", 9, 8, 10)]


def test_in_processing_time_rows_of_a_millisecond_may_be_sorted() -> None:
    found = Matching(FALL.replace("ORDER BY ts", "ORDER BY p, price DESC"))
    found.rows(("x", 8), ("x", 9))
    found.wait(1)
    found.rows(("x", 10))
    assert found.take() == []
    found.harnesses[0].end()
    assert found.take() == [("x", 9, 8, 10)]


def test_in_processing_time_what_took_too_long_is_forgotten() -> None:
    found = Matching(WITHIN.replace("ORDER BY ts", "ORDER BY p"))
    found.rows(("x", 30))
    assert found.held > 0
    found.wait(3_600_000)
    assert found.held == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 3), st.sampled_from([1, 2, 3, 9, 10, 11])), max_size=24),
    st.sampled_from(["PAST LAST ROW", "TO NEXT ROW"]),
    st.sampled_from(["A+ B", "A B? C", "A B+? C", "A{2,3} C"]),
    st.sets(st.integers(0, 24)),
    st.sampled_from(["", ", price"]),
)
def test_rows_that_come_at_some_times_give_what_rows_of_these_times_give(
    rows: list[tuple[str, int, int]], skip: str, pattern: str, stops: set[int], further: str
) -> None:
    """WITHIN is of the times at which rows come: those before, and long after it, and the moment itself."""
    within = f"""
        PARTITION BY symbol ORDER BY ts{further} MEASURES FIRST(price) AS f, LAST(price) AS l, COUNT(price) AS n
        AFTER MATCH SKIP {skip} PATTERN ({pattern}) WITHIN INTERVAL '0.010' SECOND
        DEFINE A AS A.price < 2, B AS B.price > 0, C AS C.price <> FIRST(A.price)
    """
    at_times = list(accumulate(gap for *_, gap in rows))
    found, taken = Matching(within.replace("ORDER BY ts", "ORDER BY p")), []
    for place, (symbol, price, gap) in enumerate(rows):
        found.wait(gap)
        if place in stops:
            taken += found.take()
            found.recover(1 + place % 2)
        found.rows((symbol, price))
    found.wait(100)
    events = [(symbol, price, time) for (symbol, price, _), time in zip(rows, at_times, strict=True)]
    assert sorted(taken + found.take()) == sorted(matches(within, *events))
    assert found.held == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9)), max_size=24),
    st.sets(st.integers(0, 24)),
    st.sampled_from([FALL, WITHIN, FALL.replace("PAST LAST ROW", "TO NEXT ROW")]),
    st.booleans(),
)
def test_recovery_changes_nothing(rows: list[Any], stops: set[int], clauses: str, on_rocks: bool) -> None:
    events = [(symbol, price, place + 1) for place, (symbol, price) in enumerate(rows)]
    wanted = sorted(matches(clauses, *events), key=str)
    with pytest.MonkeyPatch.context() as patch:
        if on_rocks:
            patch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
        found, taken = Matching(clauses), []
        for place, event in enumerate(events):
            found.rows(event)
            if place in stops:
                found.watermark(place)
                taken += found.take()
                found.recover(1 if on_rocks else 1 + place % 3)
        found.watermark(MAX_WATERMARK)
        taken += found.take()
    assert sorted(taken, key=str) == wanted


# --- plans ------------------------------------------------------------------------------------------------------------


def test_a_plan_shows_what_is_looked_for() -> None:
    text = plan_text(matched_plan(FALL)).replace("default_catalog.default_database.", "")
    assert "MatchRecognize(partitionBy=[symbol], orderBy=[ts ASC], measures=[FIRST(DOWN.price, 0) AS top, " in text
    assert "after=[SKIP PAST LAST EVENT], pattern=[DOWN{2,} UP], define=[DOWN AS (LAST(DOWN.price, 1) IS NULL" in text


@pytest.mark.parametrize(
    ("clauses", "error", "message"),
    [
        ("MEASURES A.price AS a PATTERN (A)", ValidationError, "You must specify either rowtime or proctime"),
        ("ORDER BY price MEASURES A.price AS a PATTERN (A)", ValidationError, "order by as the first one"),
        ("ORDER BY ts DESC MEASURES A.price AS a PATTERN (A)", ValidationError, "must be ascending on time"),
        ("ORDER BY ts ALL ROWS PER MATCH PATTERN (A)", UnsupportedError, "All rows per match mode"),
        ("ORDER BY ts PATTERN (A*)", UnsupportedError, "can produce empty matches"),
        ("ORDER BY ts PATTERN (A B+)", UnsupportedError, "Greedy quantifiers are not allowed as the last"),
        ("ORDER BY ts PATTERN (A?? B)", UnsupportedError, "Reluctant optional variables"),
        ("ORDER BY ts PATTERN (A (B C)+ D)", UnsupportedError, "Group patterns are not supported yet"),
        ("ORDER BY ts PATTERN (A | B)", UnsupportedError, "doesn't support branching patterns"),
        ("ORDER BY ts PATTERN (PERMUTE(A, B))", UnsupportedError, "PERMUTE patterns"),
        ("ORDER BY ts PATTERN (A B A)", UnsupportedError, "Pattern variables must be unique"),
        ("ORDER BY ts PATTERN (^ A)", UnsupportedError, "neither beginning nor end"),
        ("ORDER BY ts PATTERN (A {- B* -} C)", UnsupportedError, "doesn't support '{-' '-}' patterns"),
        ("ORDER BY ts PATTERN (A+ B? C)", UnsupportedError, "Optional pattern cannot be preceded by greedy pattern"),
        ("ORDER BY ts PATTERN (A{1,2} B* C)", UnsupportedError, "Optional pattern cannot be preceded by greedy"),
        ("ORDER BY ts PATTERN (A B) SUBSET S = (A, B)", UnsupportedError, "SUBSET"),
        ("ORDER BY ts PATTERN (A B) WITHIN INTERVAL '1' MONTH", UnsupportedError, "millisecond resolution"),
        ("ORDER BY ts AFTER MATCH SKIP TO LAST C PATTERN (A B)", ValidationError, "Unknown pattern 'C'"),
        ("ORDER BY ts PATTERN (A) DEFINE A AS price = 1, A AS price = 2", ValidationError, "already been defined"),
        ("ORDER BY ts MEASURES LAST(A.price * B.tax) AS m PATTERN (A B)", ValidationError, "a single variable"),
        ("ORDER BY ts MEASURES SUM(A.price * B.tax) AS m PATTERN (A B)", ValidationError, "a single variable"),
        ("ORDER BY ts MEASURES LAST(LAST(A.price)) AS m PATTERN (A)", ValidationError, "Cannot nest"),
        ("ORDER BY ts MEASURES LAST(A.price, -1) AS m PATTERN (A)", ValidationError, "offset of LAST"),
        ("ORDER BY ts PATTERN (A) DEFINE A AS price > PREV(A.price)", UnsupportedError, "physical offsets"),
        ("ORDER BY ts MEASURES COUNT(DISTINCT A.price) AS m PATTERN (A)", UnsupportedError, "DISTINCT aggregates"),
        ("ORDER BY ts MEASURES CLASSIFIER() AS m PATTERN (A)", UnsupportedError, "CLASSIFIER"),
        ("ORDER BY ts MEASURES MATCH_ROWTIME(p) AS m PATTERN (A)", ValidationError, "MATCH_ROWTIME takes"),
        ("ORDER BY ts PATTERN (A) DEFINE A AS MATCH_ROWTIME() = ts", ValidationError, "only be used in MEASURES"),
    ],
)
def test_what_is_refused(clauses: str, error: type[Exception], message: str) -> None:
    if "DEFINE" not in clauses:
        clauses += " DEFINE A AS TRUE"
    with pytest.raises(error) as raised:
        match_operator(plan_node(clauses), StreamSession())
    assert message in str(raised.value)
