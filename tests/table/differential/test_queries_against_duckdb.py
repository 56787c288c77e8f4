"""Random queries over random changes: what a stream has told in the end is what DuckDB says of the last rows."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from tests.table.differential.oracle import answer_of
from tests.table.differential.worlds import World, worlds


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_a_stream_tells_what_a_batch_says(world: World) -> None:
    assert Counter(world.streamed().rows()) == answer_of(world)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_so_do_several_subtasks(world: World) -> None:
    assert world.streamed(parallelism=2).net() == answer_of(world)
