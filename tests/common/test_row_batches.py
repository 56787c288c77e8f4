"""Many rows at once are the rows that one by one would have been."""

import pickle

import hypothesis.strategies as st
from hypothesis import given

from penstock.base.types import Row, RowKind
from penstock.codecs.pickling import dumps_each, loads_each, make_rows, take_apart

VALUES = st.integers() | st.text(max_size=3) | st.none()
ROWS = st.lists(VALUES, max_size=3).map(lambda values: Row(*values)) | st.dictionaries(
    st.sampled_from("abc"), VALUES, min_size=1
).map(lambda fields: Row(**fields))
KINDS = ROWS.map(lambda row: Row.of_kind(RowKind.DELETE, *row))


@given(st.lists(ROWS) | st.lists(ROWS | KINDS | VALUES))
def test_values_come_back_as_they_were(values: list) -> None:
    """Rows with and without names, of other kinds, and values that are no rows."""
    found, kinds = loads_each(dumps_each(values))
    assert found == values
    assert kinds is None
    assert list(map(type, found)) == list(map(type, values))


def is_insert(value: object) -> bool:
    return isinstance(value, Row) and value.get_row_kind() is RowKind.INSERT


@given(st.lists(ROWS | KINDS | VALUES, max_size=4))
def test_rows_of_the_same_names_are_taken_apart(values: list) -> None:
    """Anything else is left as it is."""
    apart = take_apart(values)
    if apart is not None:
        assert make_rows(*pickle.loads(pickle.dumps(apart))) == values
    else:
        alike = all(map(is_insert, values)) and len({value._fields for value in values}) == 1
        assert not alike
