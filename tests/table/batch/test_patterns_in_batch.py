"""A4: MATCH_RECOGNIZE in batch finds what it finds in streams; what it refuses, Flink 2.3 refuses in batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.batch.batches import run_batch
from tests.table.running import Rows
from tests.table.streaming.matching import Matching, plan_node

from penstock.runtime.records import MAX_WATERMARK
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DateType, DoubleType, IntType, TimestampType, TimeType, VarCharType
from penstock.sql.spark.kernels import BatchSession, Step
from penstock.sql.spark.stored import from_stored
from penstock.sql.spark.windows import Recognized
from penstock.sql.stream.match.operator import build_match_specification

BY_SYMBOL = "PARTITION BY symbol ORDER BY ts"
MEASURES = "MEASURES FIRST(A.price) AS f, LAST(A.price) AS l, B.price AS b"
CLAUSES = [
    f"{BY_SYMBOL} {MEASURES} AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS A.price < 5, B AS B.price >= 5",
    f"{BY_SYMBOL} {MEASURES} AFTER MATCH SKIP TO NEXT ROW PATTERN (A{{2,3}} B) WITHIN INTERVAL '0.004' SECOND "
    "DEFINE A AS A.price < 7",
    f"{BY_SYMBOL} {MEASURES} AFTER MATCH SKIP TO NEXT ROW PATTERN (A+? B?) WITHIN INTERVAL '0.003' SECOND "
    "DEFINE A AS A.price < 7, B AS B.price > LAST(A.price)",
    f"ORDER BY ts {MEASURES} AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) "
    "DEFINE A AS A.price > 3, B AS B.price < A.price",
    "ORDER BY ts MEASURES MATCH_ROWTIME() AS t, B.price AS b PATTERN (A B) DEFINE A AS A.price > 3",
]


def in_stream(clauses: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The matches that the stream's operator finds."""
    found = Matching(clauses)
    found.rows(*rows)
    found.watermark(MAX_WATERMARK)
    return sorted(found.take(), key=str)


def in_step(clauses: str, rows: Sequence[tuple[Any, ...]], stops: set[int]) -> list[tuple[Any, ...]]:
    """The matches that the step finds in sorted rows, which come in batches that end at the stops."""
    node = plan_node(clauses)
    types = node.input.schema.types
    step = Step(Recognized(build_match_specification(node), BatchSession()), tuple(types), tuple(node.schema.types))
    ends = sorted({*(stop for stop in stops if 0 < stop < len(rows)), len(rows)})
    ordered = sorted(rows, key=(lambda row: (row[0], row[2])) if node.partition else (lambda row: row[2]))
    whole = Matching(clauses)._batch(list(ordered)).columns if rows else None
    starts = [0, *ends[:-1]]
    batches = [] if whole is None else [whole.slice(at, end - at) for at, end in zip(starts, ends, strict=True)]
    found: list[tuple[Any, ...]] = []
    for batch in step(batches):
        columns = [from_stored(column, kind) for column, kind in zip(batch.columns, node.schema.types, strict=True)]
        found += zip(*(column.to_pylist() for column in columns), strict=True)
    return sorted(found, key=str)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.integers(0, 2)), max_size=24),
    st.sets(st.integers(0, 24)),
    st.sampled_from(CLAUSES),
)
def test_the_matches_are_those_of_a_stream_however_rows_are_cut_into_batches(
    drawn: list[Any], stops: set[int], clauses: str
) -> None:
    """A4, A3."""
    rows, time = [], 0
    for symbol, price, gap in drawn:
        time += gap + 1
        rows.append((symbol, price, time))
    assert in_step(clauses, rows, stops) == in_stream(clauses, rows)


# --- in Spark ---------------------------------------------------------------------------------------------------------

#: the answers are those of a Flink 2.3 in batch
STRING = VarCharType(2**31 - 1)
HOUR = 3_600_000
EVENTS = Rows(
    {"id": IntType(), "g": DoubleType(), "tm": TimeType(), "ts": TimestampType(3), "n": IntType(), "d": DateType()},
    [
        (1, 0.0, 10 * HOUR, 10 * HOUR * 1_000_000, 5, 1),
        (2, -0.0, 1_000, 9 * HOUR * 1_000_000, 3, 0),
        (3, 2.0, 5_000, (9 * HOUR + 5_000) * 1_000_000, 1, 2),
        (4, 2.0, 9_000, (9 * HOUR + 9_000) * 1_000_000, 2, 3),
        (5, 2.0, 29_000, (9 * HOUR + 29_000) * 1_000_000, 3, 4),
        (6, 2.0, None, None, 9, None),
    ],
)
NEXT = "MEASURES A.id AS x, B.id AS y AFTER MATCH SKIP TO NEXT ROW PATTERN (A B)"
ANSWERS = {
    f"PARTITION BY g ORDER BY ts {NEXT} DEFINE A AS A.id > 0": [(2, 1), (3, 4), (4, 5), (6, 3)],
    f"PARTITION BY g ORDER BY ts {NEXT} WITHIN INTERVAL '10' SECOND DEFINE A AS A.id > 0": [(3, 4)],
    f"ORDER BY tm {NEXT} DEFINE A AS A.id = 2, B AS B.id = 3": [(2, 3)],
    f"PARTITION BY g ORDER BY tm, n DESC {NEXT} WITHIN INTERVAL '5' SECOND DEFINE A AS A.id > 0": [(3, 4)],
    f"PARTITION BY g ORDER BY d {NEXT} WITHIN INTERVAL '25' HOUR DEFINE A AS A.id > 0": [(2, 1), (3, 4), (4, 5)],
}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("clauses", list(ANSWERS))
def test_matches_in_spark(clauses: str) -> None:
    """A4: by any point in time; rows without one come first, further than any WITHIN from all others."""
    found = run_batch(f"SELECT x, y FROM t MATCH_RECOGNIZE ({clauses})", t=EVENTS)
    assert sorted(found) == ANSWERS[clauses]


@pytest.mark.spark
def test_matches_are_rows_like_others() -> None:
    clauses = f"PARTITION BY g ORDER BY ts {NEXT} DEFINE A AS A.id > 0"
    query = f"SELECT g, COUNT(*) FROM (SELECT * FROM t MATCH_RECOGNIZE ({clauses})) GROUP BY g"
    assert sorted(run_batch(query, t=EVENTS)) == [(0.0, 1), (2.0, 3)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("PARTITION BY g", "You must specify non-empty order by."),
        ("ORDER BY n", "You must specify time point for order by as the first one."),
        ("ORDER BY ts DESC", "Primary sort order of a table must be ascending on time."),
    ],
)
def test_the_order_is_by_a_point_in_time(order: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        run_batch(f"SELECT * FROM t MATCH_RECOGNIZE ({order} {NEXT} DEFINE A AS A.id > 0)", t=EVENTS)
