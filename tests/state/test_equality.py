"""K1: one equality and one total order for values: NaN, zeros, and entries of maps in any order, nested too."""

from __future__ import annotations

import math
import pickle
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from penstock.state.equality import (
    build_canonicalizer,
    canonical_column,
    canonical_values,
    hashable_elements,
    needs_canonical,
    same_objects,
    to_sort_key,
)
from penstock.state.keys import NAN

NUMBER = pa.float64()
MAP = pa.map_(pa.string(), NUMBER)
ROW = pa.struct([("x", NUMBER), ("m", MAP)])

#: for each type, values as Python holds them: two forms of one value, and another value
FORMS: list[tuple[pa.DataType, Any, Any, Any]] = [
    (NUMBER, math.nan, float("nan"), math.inf),
    (NUMBER, 0.0, -0.0, 1.0),
    (pa.float32(), math.nan, -math.nan, 0.0),
    (pa.list_(NUMBER), [math.nan, -0.0, None], [float("nan"), 0.0, None], [math.nan, 0.0]),
    (pa.list_(pa.list_(NUMBER)), [[math.nan], None, []], [[float("nan")], None, []], [[], None, []]),
    (MAP, [("a", 1.0), ("b", math.nan)], [("b", float("nan")), ("a", 1.0)], [("a", math.nan), ("b", 1.0)]),
    (pa.map_(NUMBER, pa.int32()), [(math.nan, 1), (-0.0, 2)], [(0.0, 2), (float("nan"), 1)], [(math.nan, 2), (0.0, 1)]),
    (pa.map_(pa.list_(NUMBER), MAP), [([math.nan], []), ([], [])], [([], []), ([float("nan")], [])], [([], [])]),
    (ROW, (math.nan, [("z", 1.0), ("y", 2.0)]), (float("nan"), [("y", 2.0), ("z", 1.0)]), (math.nan, None)),
    (pa.list_(ROW), [(0.0, None), None], [(-0.0, None), None], [(0.0, [])]),
]


def column(data_type: pa.DataType, *values: Any) -> pa.Array:
    """A column with values around it that are sliced off, so that its offsets do not begin at 0."""
    return pa.array([values[-1], *values, values[0]], data_type).slice(1, len(values))


@pytest.mark.parametrize(("data_type", "value", "same", "other"), FORMS, ids=lambda one: str(one)[:30])
def test_equal_values_have_one_canonical_form(data_type: pa.DataType, value: Any, same: Any, other: Any) -> None:
    """As columns and as Python values."""
    canonical = canonical_column(column(data_type, value, same, other, None))
    canonical.validate(full=True)
    assert canonical.type == data_type
    assert repr(canonical[0].as_py()) == repr(canonical[1].as_py())
    assert repr(canonical[0].as_py()) != repr(canonical[2].as_py())
    assert not canonical[3].is_valid
    key, of_same, of_other, null = canonical_values([value, same, other, None], data_type)
    assert (key == of_same, hash(key) == hash(of_same), key == of_other, null) == (True, True, False, None)
    assert pickle.loads(pickle.dumps(key)) == key


@pytest.mark.parametrize(("data_type", "value", "same", "other"), FORMS, ids=lambda one: str(one)[:30])
def test_both_ways_lead_to_the_same_form(data_type: pa.DataType, value: Any, same: Any, other: Any) -> None:
    """A column of canonical Python values is the canonical column, and canonical forms stay as they are."""
    canonicalize = build_canonicalizer(data_type, zeros="merged")
    assert canonicalize is not None
    values = [value, same, other, None]
    by_column = canonical_column(column(data_type, *values))
    by_value = pa.array(list(map(canonicalize, values)), data_type)
    assert repr(by_column.to_pylist()) == repr(by_value.to_pylist())
    assert repr(canonical_column(by_column).to_pylist()) == repr(by_column.to_pylist())
    assert list(map(canonicalize, map(canonicalize, values))) == list(map(canonicalize, values))


@pytest.mark.parametrize(
    "data_type",
    [pa.int64(), pa.string(), pa.decimal128(10, 2), pa.timestamp("ns"), pa.bool_(), pa.binary(), pa.date32()],
    ids=str,
)
def test_types_of_one_form_cost_nothing(data_type: pa.DataType) -> None:
    """Also within arrays and rows of columns; as dictionary keys arrays and rows become tuples."""
    assert not needs_canonical(data_type)
    assert build_canonicalizer(data_type) is None
    for nested in (data_type, pa.list_(data_type), pa.struct([("a", data_type)])):
        values = pa.nulls(3, nested)
        assert canonical_column(values) is values


def test_chunks_and_empty_columns() -> None:
    chunked = pa.chunked_array([[[("b", 1.0), ("a", -0.0)]], [[("a", 0.0), ("b", 1.0)]]], MAP)
    assert canonical_column(chunked).to_pylist() == [[("a", 0.0), ("b", 1.0)]] * 2
    for empty in (pa.array([], MAP), pa.chunked_array([], MAP), column(ROW, None).slice(1)):
        assert len(canonical_column(empty)) == 0


def test_the_order_has_null_first_and_nan_last() -> None:
    values: list[Any] = [NAN, 1.0, None, -math.inf, math.inf]
    assert sorted(values, key=to_sort_key) == [None, -math.inf, 1.0, math.inf, NAN]
    rows = [(1, NAN), (1, None), (0, NAN), (1, 2.0)]
    assert sorted(rows, key=to_sort_key) == [(0, NAN), (1, None), (1, 2.0), (1, NAN)]


def test_elements_of_canonical_columns_are_dictionary_keys() -> None:
    columns = canonical_column(column(ROW, (math.nan, [("b", 1.0), ("a", 2.0)]), (math.nan, [("a", 2.0), ("b", 1.0)])))
    first, second = hashable_elements(columns)
    assert first == second == (NAN, (("a", 2.0), ("b", 1.0)))


@pytest.mark.parametrize(
    ("value", "other", "wanted"),
    [
        ([math.nan, {"a": (float("nan"),)}], [float("nan"), {"a": (math.nan,)}], True),
        ((math.nan, 1), (math.nan, 2), False),
        ([1], (1,), False),
        (math.nan, None, False),
        ({"a": math.nan}, {"b": math.nan}, False),
    ],
)
def test_objects_are_the_same_if_nan_equals_nan(value: Any, other: Any, wanted: bool) -> None:
    assert same_objects(value, other) is wanted


floats = st.sampled_from([math.nan, 0.0, -0.0, 1.0, math.inf]) | st.none()
maps = st.dictionaries(st.sampled_from("abc"), floats).map(lambda entries: list(entries.items()))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.none() | st.tuples(floats, st.lists(maps, max_size=3)), max_size=6))
def test_columns_and_values_agree(rows: list[Any]) -> None:
    """Two elements of a column have one form if and only if their Python keys are equal."""
    data_type = pa.struct([("x", NUMBER), ("l", pa.list_(MAP))])
    keys = canonical_values(rows, data_type)
    forms = list(map(repr, canonical_column(pa.array(rows, data_type)).to_pylist()))
    assert [[key == other for other in keys] for key in keys] == [[one == other for other in forms] for one in forms]
