"""A4: random queries over random changes: what a stream has told in the end is what DuckDB says of the last rows."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import Phase, given, settings
from tests.table.differential.modes import in_batch
from tests.table.differential.oracle import answer_of
from tests.table.differential.worlds import World, worlds

pytestmark = pytest.mark.one_in(3)


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_a_stream_tells_what_a_batch_says(world: World) -> None:
    assert Counter(world.streamed().rows()) == answer_of(world)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_so_do_several_subtasks(world: World) -> None:
    assert world.streamed(parallelism=2).net() == answer_of(world)


@settings(max_examples=40, deadline=None)
@given(worlds(is_timed=True))
def test_so_do_windows_and_other_steps_by_event_time(world: World) -> None:
    assert Counter(world.streamed().rows()) == answer_of(world)


@settings(max_examples=30, deadline=None)
@given(worlds(2, has_versions=True))
def test_so_does_what_finds_the_version_of_a_time(world: World) -> None:
    assert Counter(world.streamed().rows()) == answer_of(world)


@settings(max_examples=25, deadline=None)
@given(worlds())
def test_so_do_epochs(world: World) -> None:
    """I1: MICRO_BATCH gives what STREAMING gives, however few rows an epoch reads."""
    assert Counter(world.in_epochs().rows()) == answer_of(world)


@settings(max_examples=25, deadline=None)
@given(worlds(is_timed=True))
def test_event_time_goes_on_from_epoch_to_epoch(world: World) -> None:
    """I1: also where windows and other steps wait for it."""
    assert Counter(world.in_epochs().rows()) == answer_of(world)


@pytest.mark.spark
@settings(max_examples=2, deadline=None, phases=[Phase.generate])
@given(worlds(is_timed=True))
def test_spark_says_the_same(world: World) -> None:
    assert in_batch(world) == answer_of(world)
