"""A4: groups that are kept up through any changelog, however it is cut, and through snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table.running import Change, folded

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.types import ArrayType, DataType, MultisetType
from penstock.sql.functions.definition import BIGINT, BOOLEAN_TYPE, STRING
from penstock.sql.logical.nodes import SHORT, AggregateCall
from penstock.sql.stream.groups import operators as group_aggregate_operator
from penstock.sql.stream.groups.operators import GroupAggregateOperator
from penstock.sql.typed import Field
from penstock.testing import OneInputOperatorHarness

#: the columns of the input: a key, a number, a text, and a condition
TYPES: list[DataType] = [BIGINT, BIGINT, STRING, BOOLEAN_TYPE]
NUMBER, TEXT = Field(BIGINT, 1), Field(STRING, 2)


def call(function: str, *operands: Field, type: DataType = BIGINT, **more: Any) -> AggregateCall:
    return AggregateCall(function, operands, type, **more)


#: each call, and what it gives for the rows of a group
CALLS: list[tuple[AggregateCall, Callable[[list[Any], list[Any], list[Any]], Any]]] = [
    (call("COUNT"), lambda numbers, texts, kept: len(numbers)),
    (call("COUNT", NUMBER), lambda numbers, texts, kept: len(known(numbers))),
    (call("COUNT", NUMBER, TEXT), lambda numbers, texts, kept: len(known(map(both, numbers, texts)))),
    (call("COUNT", condition=Field(BOOLEAN_TYPE, 3)), lambda numbers, texts, kept: len(kept)),
    (call("SUM", NUMBER), lambda numbers, texts, kept: sum(known(numbers)) if known(numbers) else None),
    (call("$SUM0", NUMBER), lambda numbers, texts, kept: sum(known(numbers))),
    (call("SUM", NUMBER, is_distinct=True), lambda n, t, k: sum(set(known(n))) if known(n) else None),
    (
        call("SUM", NUMBER, condition=Field(BOOLEAN_TYPE, 3)),
        lambda n, t, kept: sum(known(kept)) if known(kept) else None,
    ),
    (call("AVG", NUMBER), lambda numbers, texts, kept: mean(known(numbers))),
    (call("MIN", NUMBER), lambda numbers, texts, kept: min(known(numbers), default=None)),
    (call("MAX", TEXT, type=STRING), lambda numbers, texts, kept: max(known(texts), default=None)),
    (call("COUNT", TEXT, is_distinct=True), lambda numbers, texts, kept: len(set(known(texts)))),
    (call("COLLECT", TEXT, type=MultisetType(STRING)), lambda n, texts, k: sorted(Counter(known(texts)).items())),
    (call("ARRAY_AGG", NUMBER, type=ArrayType(BIGINT)), lambda numbers, texts, kept: ordered(numbers) or None),
    (call("LISTAGG", TEXT, type=STRING), lambda n, texts, k: ",".join(sorted(known(texts))) if known(texts) else None),
]


def known(values: Any) -> list[Any]:
    return [one for one in values if one is not None]


def both(one: Any, other: Any) -> Any:
    return None if one is None or other is None else (one, other)


def mean(values: list[int]) -> int | None:
    return int(sum(values) / len(values)) if values else None


def ordered(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda one: (one is not None, one))


def plain(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """An answer without the order of values that came in any order."""
    *rest, collected, gathered, joined = answer
    joined = joined and ",".join(sorted(joined.split(",")))
    return (*rest, sorted(collected), gathered and ordered(gathered), joined)


class Groups:
    """The operator over batches of changes; after a snapshot another one goes on."""

    def __init__(
        self, calls: Sequence[AggregateCall], retracts: bool = True, before: bool = True, keys: int = 1
    ) -> None:
        self.calls = calls
        self.types = [*TYPES[:keys], *(one.type for one in calls)]
        names = [f"c{place}" for place in range(len(self.types))]
        self._factory = partial(GroupAggregateOperator, range(keys), calls, TYPES, names, retracts, before)
        self.sent: list[Change] = []
        self._harness = OneInputOperatorHarness(self._factory)
        self._open()

    def _open(self) -> None:
        self._harness.open()
        self._harness.operator.output.collect = self._take  # type: ignore[method-assign]

    def _take(self, batch: Batch) -> None:
        assert isinstance(batch, ColumnBatch)
        columns = [to_values(column, kind) for column, kind in zip(batch.columns.columns, self.types, strict=True)]
        kinds = batch.kinds or bytes(len(batch))
        self.sent += [(SHORT[kind], row) for kind, row in zip(kinds, zip(*columns, strict=True), strict=True)]

    def process(self, changes: Sequence[Change]) -> None:
        arrays = [to_column([row[place] for _, row in changes], kind) for place, kind in enumerate(TYPES)]
        kinds = bytes(SHORT.index(kind) for kind, _ in changes)
        columns = pa.RecordBatch.from_arrays(arrays, ["c0", "c1", "c2", "c3"])
        self._harness.operator.process_batch(ColumnBatch(columns, None, kinds if any(kinds) else None))

    def snapshot_and_restore(self, checkpoint: int) -> None:
        taken = self._harness.snapshot(checkpoint)
        self._harness.close()
        self._harness = OneInputOperatorHarness(self._factory)
        self._harness.restore(taken)
        self._open()

    def held(self) -> dict[Any, Any]:
        """The state."""
        return dict(self._harness.context.keyed.table(group_aggregate_operator.GROUPS).entries(None))


ROWS = st.tuples(
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.integers(-2, 2)),
    st.one_of(st.none(), st.sampled_from("abc")),
    st.one_of(st.none(), st.booleans()),
)


@st.composite
def changelogs(draw: st.DrawFn) -> list[Change]:
    """Rows that come, some of which go: after they came, or before."""
    rows = draw(st.lists(ROWS, max_size=20))
    changes = [("+I", row) for row in rows] + [("-D", row) for row in rows if draw(st.booleans())]
    return draw(st.permutations(changes))


def expected(changes: Sequence[Change]) -> dict[Any, tuple[Any, ...]]:
    net: Counter[Any] = Counter()
    for kind, row in changes:
        net[row] += 1 if kind == "+I" else -1
    groups: dict[Any, list[Any]] = {}
    for row in net.elements():
        groups.setdefault(row[0], []).append(row)
    found = {}
    for key, rows in groups.items():
        numbers, texts = [row[1] for row in rows], [row[2] for row in rows]
        kept = [row[1] for row in rows if row[3]]
        found[key] = tuple(value(numbers, texts, kept) for _, value in CALLS)
    return found


@pytest.mark.parametrize("few_rows", [0, 64])
@settings(max_examples=80, deadline=None)
@given(changes=changelogs(), data=st.data())
def test_groups_follow_any_changelog(few_rows: int, changes: list[Change], data: st.DataObject) -> None:
    """What was sent stands for the groups of the rows that are there; without rows nothing is held."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_aggregate_operator, "FEW_ROWS", few_rows)
        groups = Groups([one for one, _ in CALLS])
        place = 0
        while place < len(changes):
            end = data.draw(st.integers(place + 1, len(changes)))
            groups.process(changes[place:end])
            place = end
            if data.draw(st.booleans()):
                groups.snapshot_and_restore(place)
    wanted = expected(changes)
    assert {row[0]: plain(row[1:]) for row in folded(groups.sent)} == wanted
    assert set(groups.held()) == set(wanted)


@pytest.mark.parametrize("few_rows", [0, 64])
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=30), data=st.data())
def test_rows_that_only_come_give_the_same(few_rows: int, rows: list[Any], data: st.DataObject) -> None:
    """Each row sends its update, cut as the batches may be."""
    changes = [("+I", row) for row in rows]
    cut = data.draw(st.integers(0, len(rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_aggregate_operator, "FEW_ROWS", few_rows)
        calls = [one for one, _ in CALLS]
        groups, other = Groups(calls, retracts=False), Groups(calls, retracts=True)
        for part in filter(None, (changes[:cut], changes[cut:])):
            groups.process(part)
        other.process(changes)
    assert groups.sent == other.sent
    assert {row[0]: plain(row[1:]) for row in folded(groups.sent)} == expected(changes)


# --- what is sent -----------------------------------------------------------------------------------------------------


def row(key: int | None, number: int | None, text: str | None = None) -> tuple[Any, ...]:
    return key, number, text, True


@pytest.mark.parametrize("few_rows", [0, 64])
def test_each_row_sends_what_it_changes(few_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new group, an update, nothing for the same value, the end of the group."""
    monkeypatch.setattr(group_aggregate_operator, "FEW_ROWS", few_rows)
    groups = Groups([call("MAX", NUMBER)])
    groups.process([("+I", row(1, 5)), ("+I", row(1, 7)), ("+I", row(1, 6)), ("+I", row(2, None))])
    assert groups.sent == [("+I", (1, 5)), ("-U", (1, 5)), ("+U", (1, 7)), ("+I", (2, None))]
    groups.sent.clear()
    groups.process([("-D", row(1, 7)), ("-U", row(1, 5)), ("+U", row(1, 6)), ("-D", row(1, 6)), ("-D", row(1, 6))])
    assert groups.sent == [("-U", (1, 7)), ("+U", (1, 6)), ("-D", (1, 6))]


@pytest.mark.parametrize("few_rows", [0, 64])
def test_updates_without_the_row_before(few_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody asks for the row as it was, only the new one is sent; a delete still has the old one."""
    monkeypatch.setattr(group_aggregate_operator, "FEW_ROWS", few_rows)
    groups = Groups([call("SUM", NUMBER)], before=False)
    groups.process([("+I", row(1, 5)), ("+I", row(1, 1)), ("-D", row(1, 5)), ("-D", row(1, 1))])
    assert groups.sent == [("+I", (1, 5)), ("+U", (1, 6)), ("+U", (1, 1)), ("-D", (1, 1))]


@pytest.mark.parametrize("few_rows", [0, 64])
def test_a_group_begins_anew_within_a_batch(few_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last row goes, what was held is forgotten."""
    monkeypatch.setattr(group_aggregate_operator, "FEW_ROWS", few_rows)
    groups = Groups([call("SUM", NUMBER), call("LISTAGG", TEXT, type=STRING)], keys=0)
    groups.process([("+I", row(1, 5, "a")), ("-D", row(1, 5, "a")), ("+I", row(1, 2, "b"))])
    assert groups.sent == [("+I", (5, "a")), ("-D", (5, "a")), ("+I", (2, "b"))]


def test_what_is_owed_is_not_forgotten() -> None:
    """A group whose rows have gone but for one, and which has lost another one before it came, goes on."""
    groups = Groups([call("SUM", NUMBER), call("LISTAGG", TEXT, type=STRING), call("FIRST_VALUE", NUMBER)])
    groups.process([("+I", row(1, 5, "a")), ("-D", row(1, 7, "b"))])
    assert groups.sent == [("+I", (1, 5, "a", 5)), ("-D", (1, 5, "a", 5))]
    groups.snapshot_and_restore(1)
    groups.process([("+I", row(1, 7, "b"))])
    assert groups.sent[2:] == [("+I", (1, 5, "a", 5))]


def test_groups_without_calls_are_distinct_rows() -> None:
    """Each key is sent once, and goes with its last row."""
    groups = Groups([])
    groups.process([("+I", row(1, 5)), ("+I", row(1, 6)), ("+I", row(None, 1)), ("-D", row(1, 5)), ("-D", row(1, 6))])
    assert groups.sent == [("+I", (1,)), ("+I", (None,)), ("-D", (1,))]
