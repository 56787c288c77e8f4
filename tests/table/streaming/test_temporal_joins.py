"""Event-time temporal joins: rows wait for their versions, and versions go when no row can ask for them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import CanonicalRocks
from tests.table.streaming.joined import CALLS, Change, Driven

from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.types import IntType, TimestampType, VarCharType
from penstock.sql.logical.nodes import SHORT
from penstock.sql.stream.joins.temporal import ROWS, TemporalJoinOperator, TemporalSpec
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.typed import Field, Typed
from penstock.testing import operator_harness

ROW = [IntType(), TimestampType(3), VarCharType()]
DIFFERS = CALLS.call("<>", [Field(VarCharType(), 2), Field(VarCharType(), 5)])
MS = 1_000_000
NOTHING = (None, None, None)


def join(
    keeps_left: bool = True, condition: Typed | None = None, ends_by_before: bool = False, **options: Any
) -> Driven:
    names = [f"c{place}" for place in range(6)]
    spec = TemporalSpec(keeps_left, ([0], [0]), (False,), (1, 1), condition, (ROW, ROW), names, ends_by_before)
    return Driven(partial(TemporalJoinOperator, spec, StreamSession()), (ROW, ROW), [*ROW, *ROW], **options)


def row(key: int | None, time: int, text: str | None = "a", kind: str = "+I") -> Change:
    return (kind, key, time * MS, text)


def versions_of(sent: list[Change]) -> list[Any]:
    """The time of each left row that came out, and the text of its version."""
    return [(change[2] // MS, change[6]) for change in sent]


def after(driven: Driven, watermark: int) -> list[Any]:
    driven.harness.watermark(watermark)
    return versions_of(driven.taken())


def test_a_row_waits_for_the_watermark_of_both_sides() -> None:
    driven = join()
    driven.send(1, row(1, 10, "x"))
    assert driven.send(0, row(1, 12)) == []
    driven.harness.watermark1(20)
    assert driven.taken() == []
    driven.send(1, row(1, 11, "y"))
    driven.harness.watermark2(11)
    assert driven.taken() == []
    driven.harness.watermark2(12)
    assert versions_of(driven.taken()) == [(12, "y")]
    assert driven.harness.watermarks == [11, 12]


def test_a_version_lasts_from_its_own_time_to_that_of_the_next_one() -> None:
    driven = join()
    driven.send(1, row(1, 20, "z"), row(1, 10, "x"), row(2, 12, "other"))
    driven.send(0, *[row(1, time) for time in (9, 10, 19, 20, 25)])
    assert after(driven, 30) == [(9, None), (10, "x"), (19, "x"), (20, "z"), (25, "z")]


def test_rows_leave_in_the_order_in_which_they_came() -> None:
    driven = join()
    driven.send(1, row(1, 0, "x"))
    driven.send(0, row(1, 5), row(1, 3), row(1, 9), row(1, 4))
    assert after(driven, 6) == [(5, "x"), (3, "x"), (4, "x")]
    assert after(driven, 9) == [(9, "x")]


def test_of_two_versions_of_one_time_the_later_one_counts() -> None:
    driven = join()
    driven.send(1, row(1, 5, "x"), row(1, 5, "y"))
    driven.send(0, row(1, 5))
    assert after(driven, 5) == [(5, "y")]


def test_a_deletion_ends_a_version() -> None:
    driven = join()
    driven.send(1, row(1, 1, "x"), row(1, 5, "x", "-D"), row(1, 8, "y"))
    driven.send(0, *[row(1, time) for time in (4, 5, 7, 8)])
    assert after(driven, 9) == [(4, "x"), (5, None), (7, None), (8, "y")]


@pytest.mark.parametrize(("ends_by_before", "version"), [(False, "x"), (True, None)])
def test_a_row_as_it_was_ends_a_version_where_the_new_one_may_be_missing(
    ends_by_before: bool, version: str | None
) -> None:
    driven = join(ends_by_before=ends_by_before)
    driven.send(1, row(1, 1, "x"), row(1, 1, "x", "-U"))
    driven.send(0, row(1, 4))
    assert after(driven, 9) == [(4, version)]


def test_rows_without_a_version_are_dropped_by_an_inner_join() -> None:
    driven = join(keeps_left=False)
    driven.send(1, row(1, 5, "x"))
    driven.send(0, row(1, 4), row(1, 5), row(None, 6))
    assert after(driven, 9) == [(5, "x")]


def test_the_rest_of_the_condition_is_asked_of_the_version() -> None:
    for keeps_left, expected in ((True, [(6, None), (7, "x")]), (False, [(7, "x")])):
        driven = join(keeps_left, DIFFERS)
        driven.send(1, row(1, 1, "y"), row(1, 5, "x"))
        driven.send(0, row(1, 6, "x"), row(1, 7, "y"))
        assert after(driven, 9) == expected


def test_a_row_keeps_its_kind() -> None:
    driven = join()
    driven.send(1, row(1, 1, "x"))
    driven.send(0, *[row(1, 6, "a", kind) for kind in ("+I", "-U", "+U", "-D")])
    driven.harness.watermark(9)
    assert [change[0] for change in driven.taken()] == ["+I", "-U", "+U", "-D"]


def test_a_late_row_is_answered_from_the_versions_that_are_there_still() -> None:
    driven = join()
    driven.send(1, row(1, 1, "x"), row(1, 5, "y"))
    driven.send(0, row(1, 6))
    assert after(driven, 10) == [(6, "y")]
    assert driven.send(0, row(1, 7), row(1, 3)) == []
    assert after(driven, 11) == [(7, "y"), (3, None)]


def test_versions_that_no_row_in_time_can_ask_for_are_forgotten() -> None:
    driven = join()
    driven.send(1, *[row(1, time, "x") for time in range(50)])
    entries = driven.harness.context.keyed.table(ROWS).entries(None)
    driven.harness.watermark(40)
    (entry,) = entries.values()
    assert entry[1] == list(range(40, 50))


def test_a_key_without_versions_leaves_nothing_behind() -> None:
    driven = join()
    driven.send(0, row(1, 6), row(None, 7))
    driven.harness.watermark(9)
    assert not driven.harness.context.keyed.table(ROWS).entries(None)


@pytest.mark.parametrize("side", [0, 1])
def test_a_row_without_event_time_is_an_error(side: int) -> None:
    with pytest.raises(UserCodeError) as error:
        join().send(side, ("+I", 1, None, "a"))
    assert "column '2' is NULL in a row, and a temporal join needs" in str(error.value.__cause__)


def test_state_goes_to_other_subtasks_by_its_keys() -> None:
    driven = join()
    driven.send(1, *[row(key, 1, f"v{key}") for key in range(20)])
    driven.send(0, *[row(key, 5) for key in range(20)])
    snapshot = driven.harness.snapshot(1)
    found: Counter[str] = Counter()
    for subtask in (0, 1):
        part = Driven(*driven._arguments, snapshot, parallelism=2, subtask=subtask)
        part.harness.watermark(9)
        sent = part.taken()
        assert 0 < len(sent) < 20
        found.update(change[6] for change in sent)
    assert found == Counter(f"v{key}" for key in range(20))


# --- against a search through all versions ----------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(
                st.integers(0, 1),
                st.sampled_from([None, 1, 2]),
                st.integers(0, 12),
                st.sampled_from("ab"),
                st.sampled_from(["+I", "+U", "-D"]),
            ),
            max_size=6,
        ),
        st.integers(0, 12),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=200)
@given(STEPS, st.booleans(), st.booleans())
def test_rows_that_are_not_late_have_the_version_of_their_time(
    steps: list[Any], keeps_left: bool, differs: bool
) -> None:
    driven = join(keeps_left, DIFFERS if differs else None)
    left: list[Change] = []
    versions: dict[Any, dict[int, str | None]] = {}
    sent: list[Change] = []
    watermark = 0
    for rows, advance, restores in steps:
        for side, key, ahead, text, kind in rows:
            one = row(key, watermark + 1 + ahead, text, kind)
            driven.send(side, one)
            if side == 0:
                left.append(one)
            elif key is not None:
                versions.setdefault(key, {})[one[2]] = None if kind == "-D" else text
        watermark += advance
        if restores:
            driven = driven.restored()
        driven.harness.watermark(watermark)
        sent += driven.taken()
    driven.harness.end()
    sent += driven.taken()
    expected: Counter[Change] = Counter()
    for one in left:
        known = versions.get(one[1], {})
        time = max((at for at in known if at <= one[2]), default=None)
        text = None if time is None else known[time]
        if text is not None and not (differs and text == one[3]):
            expected[*one, one[1], time, text] += 1
        elif keeps_left:
            expected[*one, *NOTHING] += 1
    assert Counter(sent) == expected


BEHIND = st.lists(
    st.tuples(
        st.lists(
            st.tuples(
                st.integers(0, 1), st.integers(1, 2), st.integers(-6, 6), st.sampled_from("abc"), st.sampled_from(SHORT)
            ),
            max_size=6,
        ),
        st.integers(1, 6),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=200)
@given(BEHIND, st.booleans())
def test_versions_and_deletions_behind_the_watermark(steps: list[Any], ends_by_before: bool) -> None:
    """K1: of the versions that the watermark has passed the last one stays, and late changes are compared with it."""
    driven = join(ends_by_before=ends_by_before)
    waiting: list[Change] = []
    versions: dict[int, dict[int, tuple[int, str] | None]] = {1: {}, 2: {}}
    sent: list[Change] = []
    expected: list[Change] = []
    watermark = 0
    for rows, advance, restores in steps:
        for side, key, ahead, text, kind in rows:
            time = max(0, watermark + 1 + (ahead if side else abs(ahead)))  # rows of the left side are not late
            driven.send(side, row(key, time, text, kind))
            if side == 0:
                waiting.append(row(key, time, text, kind))
            elif kind != "-U" or ends_by_before:
                versions[key][time] = (time, text) if kind in ("+I", "+U") else None
        watermark += advance
        if restores:
            driven = driven.restored()
        driven.harness.watermark(watermark)
        sent += driven.taken()
        for one in [change for change in waiting if change[2] <= watermark * MS]:
            waiting.remove(one)
            known = versions[one[1]]
            last = max((time for time in known if time * MS <= one[2]), default=None)
            version = None if last is None else known[last]
            expected.append((*one, *(NOTHING if version is None else (one[1], version[0] * MS, version[1]))))
        for known in versions.values():
            for time in sorted(time for time in known if time <= watermark)[:-1]:
                del known[time]
    assert Counter(sent) == Counter(expected)


def test_rows_that_came_out_stay_out_of_rocksdb(monkeypatch: pytest.MonkeyPatch) -> None:
    # Between two keys the backend may put entries out of memory, as they were if nobody has marked them.
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
    driven = join()
    driven.send(1, *[row(key, 10, "x") for key in range(20)])
    driven.send(0, *[row(key, 12 + key) for key in range(20)])
    driven = driven.restored()
    assert len(after(driven, 100)) == 20
    assert after(driven.restored(2), 200) == []
