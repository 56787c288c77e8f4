"""Operators of look-up joins: how a table is asked, at once and later, with caches, and again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random, SystemRandom

import numpy as np
import pyarrow as pa
import pytest
from tests.table.streaming.looked_up import LEFT, RIGHT, Asking, Names, NamesReader, at_once, keyed, later, spec

from penstock.connectors.collection import ColumnsSource
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import BooleanType, DoubleType, IntType
from penstock.sql.stream.lookups import pairing
from penstock.sql.stream.lookups.cache import wrap_reader
from penstock.sql.stream.lookups.lookup_join import LookupJoinOperator
from penstock.sql.stream.lookups.pairing import LookupSpec
from penstock.sql.stream.lookups.settings import CacheSettings, LookupSettings
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.connector import HeldTable
from penstock.sql.typed import Constant, Field, FunctionCall

PLAIN = LookupSettings()


def names() -> Names:
    return Names((1, "one"), (2, "two"))


# --- at once ----------------------------------------------------------------------------------------------------------


def test_a_batch_asks_once_for_each_of_its_keys() -> None:
    table = names()
    asking = at_once(table, PLAIN)
    sent = asking.send(*[("+I", place, key) for place, key in enumerate([2, 1, None, 2, 9])])
    assert sent == [("+I", 0, "two"), ("+I", 1, "one"), ("+I", 2, None), ("+I", 3, "two"), ("+I", 4, None)]
    assert table.asked == [[2, 1, 9]]


def test_a_batch_without_keys_asks_for_nothing() -> None:
    table = names()
    assert at_once(table, PLAIN).send(("+I", 1, None)) == [("+I", 1, None)]
    assert table.asked == []


def test_rows_without_a_match_are_dropped_by_an_inner_join() -> None:
    asking = at_once(names(), PLAIN, keeps_left=False)
    assert asking.send(("+I", 1, 9), ("-D", 2, 2), ("+I", 3, None)) == [("-D", 2, "two")]
    assert asking.send(("+I", 1, 9)) == []


def test_the_table_is_left_when_the_task_ends() -> None:
    table = names()
    asking = at_once(table, PLAIN)
    assert table.is_open
    asking.harness.close()
    assert not table.is_open


def test_a_call_that_fails_is_made_again_as_often_as_an_option_says() -> None:
    table = names()
    table.failures = 2
    assert at_once(table, LookupSettings(error_retries=2)).send(("+I", 1, 1)) == [("+I", 1, "one")]
    assert len(table.asked) == 3
    table.failures = 3
    with pytest.raises(UserCodeError) as error:
        at_once(table, LookupSettings(error_retries=2)).send(("+I", 1, 1))
    assert isinstance(error.value.__cause__, OSError)


# --- few rows of a table in memory ------------------------------------------------------------------------------------


def draw_batches(random: Random) -> list[ColumnBatch]:
    """Batches around the border of the forms, as tuples and as columns, with times and kinds."""
    layout = RowLayout(["c0", "c1"], LEFT)
    batches = []
    for _ in range(random.randint(1, 8)):
        rows = [(number, random.choice([None, *range(6)])) for number in range(random.choice((1, 1, 2, 3, 5)))]
        data = RowData(layout, rows)
        kinds = bytes(random.choices(range(4), k=len(rows))) if random.random() < 0.5 else None
        times = np.array(random.choices(range(9), k=len(rows))) if random.random() < 0.5 else None
        batches.append(ColumnBatch(data if random.random() < 0.5 else data.columns, times, kinds))
    return batches


def join_batches(joining: LookupSpec, table: pa.RecordBatch, batches: list[ColumnBatch], few: int) -> list[object]:
    create = partial(HeldTable, ColumnsSource(table), table.schema, (0,))
    sent: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "FEW_ROWS", few)
        patch.setattr(pairing, "_KNOWN_MAX", 3)
        asking = Asking(partial(LookupJoinOperator, joining, create, PLAIN, StreamSession()))
        for batch in batches:
            asking.harness.operator.process_batch(batch)
            (*joined,) = asking._batches
            asking._batches.clear()
            sent.append([(repr(part.columns.to_pylist()), part.timestamps, part.kinds) for part in joined])
    return sent


@pytest.mark.parametrize("keeps_left", [True, False])
def test_joins_of_few_rows_are_those_of_many(keeps_left: bool) -> None:
    """For keys that are new, known or NULL, filters on either side, and rows with several matches."""
    own, key, number, name = Field(LEFT[0], 0), Field(LEFT[1], 1), Field(RIGHT[0], 0), Field(RIGHT[1], 1)
    for seed in (SystemRandom().getrandbits(48) for _ in range(40)):
        random = Random(seed)
        rows = [(random.choice([None, 1, 2, 3]), random.choice([None, "", "a"])) for _ in range(random.randint(0, 6))]
        joining = replace(
            spec(keeps_left),
            key_values=(random.choice([key, FunctionCall(LEFT[1], "+", (key, Constant(LEFT[1], 1)))]),),
            asks=random.choice([None, FunctionCall(BooleanType(), "<>", (own, Constant(LEFT[0], 1)))]),
            where=random.choice([None, FunctionCall(BooleanType(), "IS NOT NULL", (name,))]),
            condition=random.choice([None, None, FunctionCall(BooleanType(), "<", (own, Field(RIGHT[0], 2)))]),
            expressions=random.choice([(number, name), ()]),
        )
        if not joining.expressions:
            joining = replace(joining, right_types=(), names=("c0", "c1"), condition=None)
        table = RowData(RowLayout(["c0", "c1"], RIGHT), rows).columns
        batches = draw_batches(random)
        expected = join_batches(joining, table, batches, 0)
        assert join_batches(joining, table, batches, 2) == expected, f"seed {seed}"
        assert join_batches(joining, table, batches, 9) == expected, f"seed {seed}"


# --- later ------------------------------------------------------------------------------------------------------------


def test_answers_go_out_in_the_order_of_the_input() -> None:
    asking = later(names(), PLAIN, lambda key: 50 if key == 1 else 10)
    asking.send(("+I", 1, 1))
    asking.send(("+I", 2, 2))
    assert asking.wait(20) == []
    assert asking.wait(30) == [("+I", 1, "one"), ("+I", 2, "two")]


def test_answers_may_overtake_each_other_but_no_watermark() -> None:
    asking = later(names(), LookupSettings(is_ordered=False), lambda key: 50 if key == 1 else 10)
    asking.send(("+I", 1, 1))
    asking.send(("+I", 2, 2))
    asking.harness.watermark(7)
    asking.send(("+I", 3, 2))
    assert asking.wait(20) == [("+I", 2, "two")]
    assert asking.harness.watermarks == []
    assert asking.wait(30) == [("+I", 1, "one"), ("+I", 3, "two")]
    assert asking.harness.watermarks == [7]


def test_only_so_many_batches_wait_for_an_answer() -> None:
    table = names()
    asking = later(table, LookupSettings(capacity=1))
    asking.send(("+I", 1, 1))
    asking.send(("+I", 2, 2))
    assert asking.harness.calls_out == 1
    assert not asking.harness.operator.is_available()
    assert asking.wait(10) == [("+I", 1, "one")]
    assert asking.wait(10) == [("+I", 2, "two")]


def test_a_batch_that_waits_too_long_is_an_error() -> None:
    asking = later(names(), LookupSettings(timeout_ms=100), lambda key: 200)
    asking.send(("+I", 1, 1))
    with pytest.raises(UserCodeError) as error:
        asking.wait(100)
    assert "100 ms" in str(error.value.__cause__)


def test_batches_without_an_answer_are_asked_for_again_after_a_restore() -> None:
    asking = later(names(), PLAIN)
    asking.send(("-U", 1, 1), ("+U", 1, 2))
    asking = asking.restored()
    assert asking.wait(10) == [("-U", 1, "one"), ("+U", 1, "two")]


def test_the_end_waits_for_answers() -> None:
    asking = later(names(), PLAIN)
    asking.send(("+I", 1, 1))
    asking.harness.end()
    assert asking.taken() == [("+I", 1, "one")]


def test_a_call_that_fails_later_is_made_again_too() -> None:
    table = names()
    table.failures = 1
    asking = later(table, LookupSettings(error_retries=1))
    asking.send(("+I", 1, 1))
    assert asking.wait(20) == [("+I", 1, "one")]
    table.failures = 2
    asking.send(("+I", 1, 1))
    with pytest.raises(UserCodeError):
        asking.wait(20)


# --- asking again for what is missing ---------------------------------------------------------------------------------


def test_keys_without_rows_are_asked_for_again_after_a_while() -> None:
    table = names()
    asking = later(table, LookupSettings(miss_retries=2, miss_delay_ms=1000))
    asking.send(("+I", 1, 3), ("+I", 2, 1), ("+I", 3, 4))
    assert asking.wait(900) == []
    table.rows.append((3, "three"))
    assert asking.wait(200) == []
    assert asking.wait(1000) == [("+I", 1, "three"), ("+I", 2, "one"), ("+I", 3, None)]
    assert table.asked == [[3, 1, 4], [3, 4], [4]]


def test_a_table_that_answers_at_once_is_asked_again_too() -> None:
    table = names()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        table.rows.append((3, "three"))

    reader = wrap_reader(NamesReader(table), LookupSettings(miss_retries=3, miss_delay_ms=1500), lambda: 0, wait)
    reader.open()
    found = reader.lookup(pa.record_batch([pa.array([3, 1], pa.int32())], ["c0"]))
    assert found.rows.column(1).to_pylist() == ["three", "one"]
    assert found.key_numbers.to_pylist() == [0, 1]
    assert waits == [1.5]
    assert table.asked == [[3, 1], [3]]


# --- caches -----------------------------------------------------------------------------------------------------------


def cached(table: Names, is_later: bool, **settings: int | bool) -> Asking:
    made = LookupSettings(cache=CacheSettings(**settings))  # type: ignore[arg-type]
    return later(table, made, lambda key: 0) if is_later else at_once(table, made)


@pytest.mark.parametrize("is_later", [False, True])
def test_keys_that_are_held_are_not_asked_for(is_later: bool) -> None:
    table = names()
    asking = cached(table, is_later, max_keys=10)
    for _ in range(2):
        assert asking.send(("+I", 1, 1), ("+I", 2, 9)) == [("+I", 1, "one"), ("+I", 2, None)]
    assert asking.send(("+I", 3, 9), ("+I", 4, 2), ("+I", 5, 1)) == [
        ("+I", 3, None),
        ("+I", 4, "two"),
        ("+I", 5, "one"),
    ]
    assert table.asked == [[1, 9], [2]]


def test_missing_keys_need_not_be_held() -> None:
    table = names()
    asking = cached(table, False, max_keys=10, holds_missing=False)
    asking.send(("+I", 1, 1), ("+I", 2, 9))
    asking.send(("+I", 1, 1), ("+I", 2, 9))
    assert table.asked == [[1, 9], [9]]


def test_the_key_that_was_asked_for_longest_ago_leaves_first() -> None:
    table = names()
    asking = cached(table, False, max_keys=2)
    for key in (1, 2, 1, 3, 1, 2):
        asking.send(("+I", 0, key))
    assert table.asked == [[1], [2], [3], [2]]


def test_keys_expire_after_they_came() -> None:
    table = names()
    asking = cached(table, False, after_write_ms=100)
    asking.send(("+I", 1, 1))
    asking.wait(60)
    table.rows[0] = (1, "uno")
    assert asking.send(("+I", 1, 1)) == [("+I", 1, "one")]
    asking.wait(60)
    assert asking.send(("+I", 1, 1)) == [("+I", 1, "uno")]


def test_keys_expire_after_they_were_asked_for() -> None:
    table = names()
    asking = cached(table, False, after_access_ms=100)
    for wait in (60, 60, 100):
        asking.send(("+I", 1, 1))
        asking.wait(wait)
    asking.send(("+I", 1, 1))
    assert table.asked == [[1], [1]]


# --- what was found is kept -------------------------------------------------------------------------------------------


def test_a_row_that_goes_takes_what_was_found_for_it() -> None:
    table = names()
    asking = keyed(table)
    assert asking.send(("+I", 1, 1), ("+I", 2, 9)) == [("+I", 1, "one"), ("+I", 2, None)]
    table.rows = [(1, "uno"), (9, "nine")]
    asking = asking.restored()
    sent = asking.send(("-U", 1, 1), ("+U", 1, 9), ("-D", 2, 9))
    assert sent == [("-U", 1, "one"), ("+U", 1, "nine"), ("-D", 2, None)]
    assert asking.send(("-D", 1, 9)) == [("-D", 1, "nine")]


def test_a_row_that_is_there_twice_goes_once() -> None:
    table = names()
    asking = keyed(table, key=(0, 1))
    asking.send(("+I", 1, 1), ("+I", 1, 1))
    table.rows.clear()
    assert asking.send(("-D", 1, 1)) == [("-D", 1, "one")]
    assert asking.send(("-D", 1, 1)) == [("-D", 1, "one")]


def test_the_matches_of_a_row_go_with_it_and_not_with_an_equal_one() -> None:
    """0.0 and -0.0 are equal, and the table has changed between the two."""
    table = names()
    asking = keyed(table, key=(1,), left=(DoubleType(), IntType()))
    asking.send(("+I", 0.0, 1))
    table.rows = [(1, "uno")]
    asking.send(("+I", -0.0, 1))
    gone = asking.send(("-D", -0.0, 1)) + asking.restored().send(("-D", 0.0, 1))
    assert [(kind, str(zero), name) for kind, zero, name in gone] == [("-D", "-0.0", "uno"), ("-D", "0.0", "one")]


def test_a_row_that_goes_before_it_comes_sends_nothing() -> None:
    asking = keyed(names())
    assert asking.send(("-D", 1, 1)) == []
    assert asking.send(("+I", 1, 1)) == []
    assert asking.send(("+I", 1, 1)) == [("+I", 1, "one")]


def test_what_was_found_goes_to_other_subtasks_by_its_keys() -> None:
    table = names()
    asking = keyed(table)
    asking.send(*[("+I", place, 1) for place in range(20)])
    snapshot = asking.harness.snapshot(1)
    found = 0
    for subtask in (0, 1):
        part = keyed(table, snapshot, parallelism=2, subtask=subtask)
        found += len(part.send(*[("-D", place, 1) for place in range(20)]))
    assert found == 20
