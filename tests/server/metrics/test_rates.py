"""What is per second is made of totals in two views (A1)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.server.metrics.views import BEGAN_MS, figures, subtask_view, view_at

from penstock.runtime.graph import ExecutionState
from penstock.runtime.job.view import JobView
from penstock.server.metrics.tasks import RATE_SPAN_MS, History, Rates, SubtaskRates, task_metrics


def of_first(view: JobView, base: JobView | None) -> SubtaskRates:
    return Rates(view, base).of_subtask(0, view.vertices[0].subtasks[0])


def test_a_rate_is_the_growth_between_two_views() -> None:
    rates = of_first(view_at(30, subtasks={0: (subtask_view(0, 0, 30, 200),)}), view_at(20))
    assert rates.elapsed_ms == 10_000
    assert rates.per_second(6_000, rates.earlier.records_in) == 400


def test_the_first_view_has_the_average_of_the_life_so_far() -> None:
    rates = of_first(view_at(30), None)
    assert rates.per_second(3_000, rates.earlier.records_in) == 100


def test_an_attempt_that_began_since_then_has_the_average_of_its_life() -> None:
    """G: after a restart totals begin at 0 again; no rate is negative, and none counts what was before."""
    since = ((ExecutionState.RUNNING, BEGAN_MS + 30_000),)
    again = replace(subtask_view(0, 0, 2, attempt=1), since_ms=since)
    rates = of_first(view_at(32, subtasks={0: (again,)}), view_at(30))
    assert rates.per_second(200, rates.earlier.records_in) == 100


@pytest.mark.parametrize("state", [ExecutionState.FINISHED, ExecutionState.CANCELED])
@pytest.mark.parametrize("bare", [False, True])
def test_a_task_that_has_ended_has_no_rate(state: ExecutionState, bare: bool) -> None:
    ended = subtask_view(0, 0, 20, state=state, more={"bare": bare})
    rates = of_first(view_at(40, subtasks={0: (ended,)}), view_at(30, subtasks={0: (ended,)}))
    assert rates.per_second(2_000, rates.earlier.records_in) == 0


def test_without_figures_the_views_clock_counts() -> None:
    views = [view_at(s, subtasks={0: (subtask_view(0, 0, s, more={"bare": True}),)}) for s in (20, 30)]
    rates = of_first(views[1], views[0])
    assert rates.per_second(3_000, rates.earlier.records_in) == 100


def test_a_vertex_at_another_parallelism_does_not_take_over_rates() -> None:
    lone = view_at(20, subtasks={0: (subtask_view(0, 0, 20),)})
    view = view_at(30)
    rates = Rates(view, lone).of_subtask(0, view.vertices[0].subtasks[1])
    assert rates.earlier.records_in == 0


def test_where_a_second_goes_adds_up() -> None:
    """Busy, back-pressured and idle are shares of the time by the task's clock, however late its report comes."""
    before = figures(20, busy_ms=1_000, back_pressured_ms=2_000, idle_ms=3_000)
    after = figures(20, busy_ms=1_100, back_pressured_ms=2_300, idle_ms=3_000)
    views = [view_at(s, subtasks={0: (subtask_view(0, 0, 20, measured=m),)}) for s, m in ((20, before), (21, after))]
    subtask = views[1].vertices[0].subtasks[0]
    assert subtask.metrics is not None
    values = task_metrics(subtask.metrics, of_first(views[1], views[0]), is_source=True)
    names = ("busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "idleTimeMsPerSecond")
    assert [values[name] for name in names] == [250, 750, 0]


@pytest.mark.parametrize(
    ("held_back", "name"), [(True, "backPressuredTimeMsPerSecond"), (False, "idleTimeMsPerSecond")]
)
def test_a_task_that_makes_no_step_waits_for_what_it_waits_for(held_back: bool, name: str) -> None:
    """Its totals are those of its last step, so they stand still."""
    measured = figures(20, is_back_pressured=held_back)
    views = [view_at(s, subtasks={0: (subtask_view(0, 0, 20, measured=measured),)}) for s in (20, 30)]
    subtask = views[1].vertices[0].subtasks[0]
    assert subtask.metrics is not None
    values = task_metrics(subtask.metrics, of_first(views[1], views[0]), is_source=True)
    assert values[name] == 1000
    assert values["busyTimeMsPerSecond"] == 0
    assert values["numRecordsInPerSecond"] == 0


def test_the_history_compares_over_its_span_and_stays_small() -> None:
    history, base = History(), None
    for half in range(200):
        base = history.add(view_at(half / 2))
    assert base is not None
    assert view_at(99.5).now_ms - base.now_ms == RATE_SPAN_MS + 500
    assert len(history) <= RATE_SPAN_MS / 1_000 + 3


def test_looks_that_are_far_apart_are_compared_with_each_other() -> None:
    history = History()
    views = [view_at(60 * minute) for minute in range(3)]
    assert [history.add(view) for view in views] == [None, views[0], views[1]]


def test_the_clock_may_go_back() -> None:
    view = view_at(10, subtasks={0: (subtask_view(0, 0, 10, more={"bare": True}),)})
    later = replace(view_at(11, subtasks={0: (subtask_view(0, 0, 11, more={"bare": True}),)}), now_ms=view.now_ms - 5)
    rates = of_first(later, view)
    assert rates.per_second(1_100, rates.earlier.records_in) == 0
