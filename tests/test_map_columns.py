"""Maps whose keys may be NULL, and plain ones."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.codecs.arrow_columns import (
    exact_cast,
    get_map_key_type,
    get_map_keys,
    has_nullable_keys,
    map_array,
    map_type,
    nullable_key_column,
    nullable_key_table,
    plain_column,
    plain_type,
)
from penstock.sql.data.arrow import arrow_type, logical_type
from penstock.sql.data.types import DoubleType, IntType, MapType, MultisetType, VarCharType
from penstock.state.equality import build_canonicalizer, canonical_column, hashable_elements
from penstock.state.key_columns import read_columns

PLAIN = pa.map_(pa.string(), pa.int32())
NULLABLE = map_type(pa.string(), pa.int32())
NESTED = pa.map_(pa.string(), pa.list_(pa.struct([("m", PLAIN), ("n", pa.large_list(pa.list_(PLAIN, 1)))])))
ENTRIES = st.dictionaries(st.text("ab", max_size=2), st.none() | st.integers(0, 9), max_size=2).map(
    lambda found: list(found.items())
)
INNER = st.fixed_dictionaries(
    {"m": st.none() | ENTRIES, "n": st.none() | st.lists(st.none() | st.tuples(ENTRIES), max_size=2)}
)
VALUES = st.none() | st.dictionaries(
    st.text("ab", max_size=2), st.none() | st.lists(st.none() | INNER, max_size=2), max_size=2
).map(lambda found: list(found.items()))


def column(values: list[Any]) -> pa.Array:
    """Maps of texts to numbers; keys may be None."""
    offsets: list[int | None] = [0]
    for value in values:
        offsets.append((offsets[-1] or 0) + len(value))
    pairs = [pair for value in values for pair in value]
    keys, items = pa.array([key for key, _ in pairs], pa.string()), pa.array([item for _, item in pairs], pa.int32())
    return map_array(pa.array(offsets, pa.int32()), keys, items, NULLABLE)


@given(st.lists(VALUES, max_size=5), st.data())
def test_plain_maps_come_back(values: list[Any], data: st.DataObject) -> None:
    """K2: nested, sliced, with rows that are NULL."""
    begin = data.draw(st.integers(0, len(values)))
    plain = pa.array(values, NESTED).slice(begin, data.draw(st.integers(0, len(values) - begin)))
    kept = nullable_key_column(plain)
    kept.validate(full=True)
    assert has_nullable_keys(kept.type)
    assert plain_type(kept.type) == NESTED
    back = plain_column(kept)
    back.validate(full=True)
    assert back.type == NESTED
    assert back.equals(plain)
    assert exact_cast(plain, kept.type).equals(kept)
    assert exact_cast(kept, NESTED).equals(plain)


def test_keys_may_be_null() -> None:
    found = column([[("a", 1), (None, 2)], []])
    assert get_map_keys(found).to_pylist() == ["a", None]
    assert get_map_key_type(found.type) == get_map_key_type(PLAIN) == pa.string()
    with pytest.raises(pa.ArrowInvalid, match="a key of a map is NULL"):
        plain_column(found)
    with pytest.raises(pa.ArrowInvalid, match="a key of a map is NULL"):
        exact_cast(pa.chunked_array([found]), pa.map_(pa.large_string(), pa.int64()))


def test_types_of_tables() -> None:
    """Maps and multisets; what comes from elsewhere has the same logical type either way."""
    kind = MapType(VarCharType(10), MultisetType(IntType()))
    assert arrow_type(kind) == map_type(pa.string(), map_type(pa.int32(), pa.int32()))
    known = MapType(VarCharType((1 << 31) - 1), IntType())
    assert logical_type(PLAIN) == logical_type(NULLABLE) == known
    assert arrow_type(MapType(DoubleType(), IntType())) != map_type(pa.string(), pa.int32())


def test_equality_of_keys_that_are_null() -> None:
    """Entries in any order; a column and Python's values give the same dictionary keys."""
    rows = [[("a", 1), (None, 2)], [(None, 2), ("a", 1)], [("a", 1)]]
    canonical = build_canonicalizer(NULLABLE)
    assert canonical is not None
    of_values = list(map(canonical, rows))
    assert of_values[0] == of_values[1] != of_values[2]
    sorted_column = canonical_column(column(rows))
    assert sorted_column.type == NULLABLE
    assert sorted_column[0] == sorted_column[1] != sorted_column[2]
    of_plain = canonical_column(pa.array([[("a", 1)]], PLAIN))
    assert hashable_elements(sorted_column)[2:] == hashable_elements(of_plain) == [canonical([("a", 1)])]


def test_rows_that_an_earlier_release_kept() -> None:
    """A history of files may begin with plain maps."""

    def file(maps: pa.Array, first: int) -> bytes:
        table = pa.table({"m": maps}).replace_schema_metadata({"penstock.first_row": str(first), "penstock.about": "x"})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    old, new = pa.array([[("a", 1)], None], PLAIN), column([[(None, 3)]])
    found = read_columns([file(old, 0), file(new, 2)])
    assert found.column("m").type == NULLABLE
    (maps,) = found.column("m").combine_chunks().slice(2).to_pylist()
    assert [item for _, item in maps] == [3]
    plain = read_columns([file(old, 0)])
    assert plain.column("m").type == PLAIN
    assert nullable_key_table(plain).column("m").combine_chunks().equals(nullable_key_column(old))
