"""Pairs and values by number: equal ones have one number, whatever their hashes and however many there are."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.stream.aggregates import pairs
from penstock.sql.stream.aggregates.pairs import PairTable, ValueCodes, is_coded, packed_values, unpacked_values

ENDS = [-(1 << 63), -1, 0, 1, 2, (1 << 63) - 1]
ROWS = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.sampled_from(ENDS), st.integers(0, 50))), max_size=60)


def all_alike(*columns: Any) -> Any:
    """One hash for everything."""
    return np.zeros(len(columns[0]), np.uint64)


def two_hashes(*columns: Any) -> Any:
    return (columns[-1].view(np.uint64) & np.uint64(1)) << np.uint64(63)


@pytest.fixture(params=["as they are", "one for all pairs", "two for all pairs", "few slots"])
def hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "few slots":
        monkeypatch.setattr(pairs, "_SLOTS_MIN", 2)
        monkeypatch.setattr(pairs, "_PAIRS_AT_ONCE", 3)
    elif request.param != "as they are":
        monkeypatch.setattr(pairs, "_mix", all_alike if request.param == "one for all pairs" else two_hashes)


@pytest.mark.usefixtures("hashes")
def test_equal_pairs_have_one_number() -> None:
    @settings(max_examples=60, deadline=None)
    @given(batches=st.lists(ROWS, max_size=6))
    def holds(batches: list[list[tuple[int, int]]]) -> None:
        table = PairTable()
        known: dict[tuple[int, int], int] = {}
        for rows in batches:
            groups, codes = (np.array([row[index] for row in rows], np.int64) for index in (0, 1))
            numbers, fresh = table.locate(groups, codes)
            new = [rows[row] for row in fresh.tolist()]
            assert len(set(new)) == len(new)
            assert set(new) == set(rows) - known.keys()
            known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
            assert [known[row] for row in rows] == numbers.tolist()
        assert len(table) == len(known)
        assert list(zip(table.groups.tolist(), table.codes.tolist(), strict=True)) == list(known)

    holds()


@pytest.mark.usefixtures("hashes")
def test_a_table_of_some_pairs_finds_them() -> None:
    table = PairTable.of(np.array([3, 1, 3]), np.array([5, 5, 6]))
    numbers, fresh = table.locate(np.array([3, 3, 1, 1]), np.array([6, 5, 6, 5]))
    assert numbers.tolist() == [2, 0, 3, 1]
    assert fresh.tolist() == [2]


def test_many_pairs_take_few_bytes_each() -> None:
    table = PairTable()
    for first in range(0, 1 << 17, 1 << 14):
        codes = np.arange(first, first + (1 << 14))
        numbers, fresh = table.locate(codes % 7, codes)
        assert len(fresh) == len(codes)
        assert (np.sort(numbers) == codes).all()
    arrays = [table._slots, table._groups._room, table._codes._room]
    assert sum(array.nbytes for array in arrays) <= 32 * len(table)


#: values of each type that are different; and the same ones in another form
CODED: list[tuple[types.DataType, list[Any], list[Any]]] = [
    (types.VarCharType(20), ["", "a", "aa", "é"], ["", "a", "aa", "é"]),
    (types.VarBinaryType(20), [b"", b"\x00", b"\x00\x00"], [b"", b"\x00", b"\x00\x00"]),
    (types.DecimalType(10, 2), [Decimal("1.00"), Decimal("-1.00")], [Decimal(1), Decimal("-1.0")]),
    (types.DoubleType(), [0.0, math.nan, math.inf, -math.inf], [-0.0, -math.nan, math.inf, -math.inf]),
    (types.FloatType(), [0.0, math.nan, 1.5], [-0.0, -math.nan, 1.5]),
    (types.BooleanType(), [True, False], [True, False]),
    (types.TinyIntType(), [-128, 127], [-128, 127]),
    (types.BigIntType(), [-(1 << 63), (1 << 63) - 1], [-(1 << 63), (1 << 63) - 1]),
    (types.TimestampType(9), [-1, 0], [-1, 0]),
    (types.DateType(), [-1, 0], [-1, 0]),
]


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize(("data_type", "values", "same"), CODED, ids=[str(kind) for kind, *_ in CODED])
def test_equal_values_have_one_code(
    data_type: types.DataType, values: list[Any], same: list[Any], collide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values with the same hash are told apart by themselves."""
    if collide:
        monkeypatch.setattr(pairs, "_hash", lambda values: np.full(len(values), 7))
    codes = ValueCodes(data_type)
    before = codes.of(to_column(values[:1], data_type)).tolist()
    known = codes.of(to_column(values + values, data_type)).tolist()
    assert known[: len(values)] == known[len(values) :]
    assert len(set(known)) == len(values)
    assert known[0] == before[0]
    assert codes.of(to_column(same[::-1], data_type)).tolist() == known[: len(values)][::-1]
    column = codes.column(np.array(known))
    assert column.type == arrow_type(data_type)
    assert repr(to_values(column, data_type)) == repr(values + values)
    frozen = codes.as_of_now()
    kept, again = codes.kept(np.array(known[1:2]))
    assert repr(to_values(kept.column(again), data_type)) == repr(values[1:2])
    assert kept.of(to_column(values[1:2], data_type)).tolist() == again.tolist()
    assert repr(to_values(frozen.column(np.array(known)), data_type)) == repr(values + values)


@given(
    values=st.lists(st.binary(max_size=20) | st.binary(min_size=250, max_size=270), max_size=20),
    begin=st.integers(0, 5),
)
def test_a_hash_depends_on_the_value_alone(values: list[bytes], begin: int) -> None:
    """Not on where it lies; and short values that differ have different hashes."""
    column = pa.array(values, pa.binary())
    hashes = pairs._hash(column)
    assert pairs._hash(column.slice(begin)).tolist() == hashes[begin:].tolist()
    assert pairs._hash(column.take(pa.array(range(len(values))[::-1], pa.int64()))).tolist() == hashes[::-1].tolist()
    assert len(set(hashes.tolist())) == len(set(values))


def test_hashes_of_similar_values_differ() -> None:
    texts = [f"{'x' * length}{number}" for length in (0, 7, 8, 300) for number in range(3000)]
    texts += ["\x00" * length for length in range(40)]
    assert len(set(pairs._hash(pa.array(texts)).tolist())) == len(texts)
    decimals = [Decimal(number).scaleb(-2) for number in range(-3000, 3000)]
    assert len(set(pairs._hash(pa.array(decimals, pa.decimal128(38, 2)))[1:].tolist())) == len(decimals) - 1


def test_values_that_contain_others_have_no_codes() -> None:
    row = types.RowType([types.RowField("x", types.IntType())])
    for data_type in (types.ArrayType(types.IntType()), row, types.MultisetType(types.IntType()), types.VariantType()):
        assert not is_coded(data_type)


@given(numbers=st.lists(st.lists(st.sampled_from([*ENDS, 127, 128, -128, 1 << 31]), max_size=40), max_size=4))
def test_packed_numbers_are_the_same_numbers(numbers: list[list[int]]) -> None:
    ends = np.cumsum(list(map(len, numbers))).tolist()
    column = pa.array([number for group in numbers for number in group], pa.int64())
    packed = packed_values(column, types.BigIntType(), ends)
    assert [unpacked_values(values)[0] for values in packed] == numbers
    assert [unpacked_values((values, [2])) for values in packed] == [(group, [2]) for group in numbers]
