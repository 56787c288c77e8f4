"""Columns as NumPy sees them, and back, wherever in Arrow's memory they begin."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given

from penstock.sql.data.arrow import apply_validity, as_answers, as_mask, drop_masked_nulls, flat_values, truths

ANSWERS = st.lists(st.sampled_from([True, False, None]), max_size=40)
START = st.integers(0, 20)


@given(st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=40), START)
def test_values_keep_their_nulls(numbers: list[int | None], start: int) -> None:
    column = pa.array(numbers, pa.int64())[start:]
    shown = [None if one is None else one + 1 for one in numbers[start:]]
    assert apply_validity(column, flat_values(column) + 1, pa.int32()).to_pylist() == shown


def test_points_in_time_are_numbers() -> None:
    assert flat_values(pa.array([1, 2], pa.timestamp("ms", "UTC"))).tolist() == [1, 2]
    assert flat_values(pa.array([3], pa.date32())).dtype == np.int32


@given(ANSWERS, START)
def test_answers_are_masks_and_masks_are_answers(answers: list[bool | None], start: int) -> None:
    mask = as_mask(truths(pa.array(answers, pa.bool_())[start:]))
    assert mask.tolist() == [one is True for one in answers[start:]]
    assert as_answers(mask).to_pylist() == mask.tolist()


@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.booleans()), max_size=40))
def test_a_filter_gives_the_same_without_nulls_that_it_leaves_out(rows: list[tuple[str | None, bool]]) -> None:
    texts, mask = pa.array([text for text, _ in rows], pa.string()), pa.array([one for _, one in rows], pa.bool_())
    found = drop_masked_nulls(texts, mask)
    assert found.filter(mask).to_pylist() == [text for text, is_chosen in rows if is_chosen]
    assert (found.null_count == 0) == all(text is not None for text, is_chosen in rows if is_chosen)


def test_a_part_of_a_column_is_left_as_it_is() -> None:
    column = pa.array([None, 1, None, 3])[1:]
    assert drop_masked_nulls(column, pa.array([True, False, True])) is column
