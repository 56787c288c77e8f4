"""Running sum, min, max, min_by and max_by under the hostile harness: every form of record, and what is refused."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pytest

from penstock.base.types import Row
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.keyed.aggregates import AccumulateType, KeyedAggregateOperator
from penstock.testing import OneInputOperatorHarness, Record, run_hostile


class Sale(NamedTuple):
    shop: str
    amount: int
    clerk: str


@dataclass(frozen=True)
class FrozenSale:
    shop: str
    amount: int
    clerk: str


def row(*values):
    return Row("shop", "amount", "clerk")(*values)


def as_dict(*values):
    return dict(zip(("shop", "amount", "clerk"), values, strict=True))


SALES = [("a", 5, "x"), ("b", 1, "y"), ("a", 2, "z"), ("a", 2, "w"), ("a", 9, "v"), ("b", 1, "u")]
EXPECTED = {
    AccumulateType.SUM: [5, 1, 7, 9, 18, 2],
    AccumulateType.MIN: [5, 1, 2, 2, 2, 1],
    AccumulateType.MAX: [5, 1, 5, 5, 9, 1],
}
FIRST_CLERK = {"a": "x", "b": "y"}


def shop_of(record):
    return record.shop if hasattr(record, "shop") else record["shop" if isinstance(record, dict) else 0]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda *values: values, 1),
        (lambda *values: values, "f1"),
        (lambda *values: list(values), 1),
        (Sale, 1),
        (Sale, "amount"),
        (FrozenSale, "amount"),
        (FrozenSale, 1),
        (row, "amount"),
        (row, 1),
        (as_dict, "amount"),
    ],
)
@pytest.mark.parametrize("kind", EXPECTED)
def test_one_field_is_aggregated_and_the_others_are_those_of_the_first_record(kind, make, field):
    """A2, D1: sum, min and max of a field, by position or name, in records of every form, through snapshots."""
    inputs = [Record(make(*sale), 10 * i) for i, sale in enumerate(SALES)]
    expected = [
        Record(make(shop, amount, FIRST_CLERK[shop]), 10 * i)
        for i, ((shop, _, _), amount) in enumerate(zip(SALES, EXPECTED[kind], strict=True))
    ]
    run_hostile(partial(KeyedAggregateOperator, kind, field, shop_of), inputs, expected)


@pytest.mark.parametrize(
    ("kind", "winners"),
    [(AccumulateType.MIN_BY, [0, 1, 2, 2, 2, 1]), (AccumulateType.MAX_BY, [0, 1, 0, 0, 4, 1])],
)
@pytest.mark.parametrize("make", [lambda *values: values, Sale, FrozenSale, row])
def test_the_whole_record_wins_and_of_equal_ones_the_first(kind, winners, make):
    """A2: min_by and max_by give the record itself."""
    run_hostile(
        partial(KeyedAggregateOperator, kind, 1 if make is not FrozenSale else "amount", shop_of),
        [Record(make(*sale)) for sale in SALES],
        [make(*SALES[winner]) for winner in winners],
    )


def test_plain_numbers_are_their_own_field():
    """A2: of numbers, position 0 is the number."""
    numbers = [Record(n) for n in (3, 1, 2)]
    for kind, expected in [
        (AccumulateType.SUM, [3, 4, 6]),
        (AccumulateType.MIN, [3, 1, 1]),
        (AccumulateType.MAX_BY, [3, 3, 3]),
    ]:
        run_hostile(partial(KeyedAggregateOperator, kind, 0, lambda n: 0), numbers, expected)


def test_what_was_emitted_is_not_changed_later():
    """A2: records are read-only once emitted; the aggregate is a copy."""
    harness = OneInputOperatorHarness(partial(KeyedAggregateOperator, AccumulateType.SUM, 1, shop_of))
    harness.open()
    first = Row("a", 1)
    harness.process_batch([first, Row("a", 2)])
    assert first == Row("a", 1)
    assert [r.value for r in harness.captured.records] == [Row("a", 1), Row("a", 3)]


def test_forms_may_be_mixed():
    """A2: the key's first record says what the aggregate looks like."""
    run_hostile(
        partial(KeyedAggregateOperator, AccumulateType.SUM, 1, lambda v: v[0]),
        [Record(v) for v in [("a", 1), ["b", 2], Row("a", 3), ("b", 4)]],
        [("a", 1), ["b", 2], ("a", 4), ["b", 6]],
    )


@pytest.mark.parametrize(
    ("record", "field", "reason"),
    [
        (7, 1, "only position 0"),
        (Sale("a", 1, "x"), "price", "there are shop, amount, clerk"),
        (("a", 1), "price", "named f0, f1"),
    ],
)
def test_a_field_that_is_not_there_is_an_error_of_the_first_record(record, field, reason):
    """A2: what is asked for and what there is, at the first record already."""
    harness = OneInputOperatorHarness(partial(KeyedAggregateOperator, AccumulateType.MIN, field, lambda v: 0))
    harness.open()
    with pytest.raises(UserCodeError) as caught:
        harness.process(record)
    assert reason in str(caught.value.__cause__)
