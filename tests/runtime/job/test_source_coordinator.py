"""The job master's half of a source: what its enumerator asks for belongs to one attempt (E1, G8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime.connector import Boundedness, Source
from penstock.runtime.job.sources import SourceCoordinator


class Listing(Source):
    """Its enumerator lists what there is in the background, now and later, and deals out what it hears."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        return ListingEnumerator(context, restored)

    def create_reader(self, context: Any) -> Any:
        raise NotImplementedError


class ListingEnumerator:
    def __init__(self, context: Any, restored: Any) -> None:
        self.context, self.heard = context, list(restored or [])

    def start(self) -> None:
        self.context.call_async(lambda: "at once", self.hear)
        self.context.call_async(lambda: "later", self.hear, 50)

    def hear(self, found: str | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self.heard.append(found)
        self.context.assign_split(found, 0)

    def handle_split_request(self, subtask: int) -> None:
        self.context.signal_no_more_splits(subtask)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return self.heard

    def close(self) -> None: ...


class Stage:
    """Plays the job master and its background."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.timers: list[Callable[[], None]] = []
        self.dealt: list[bool] = []
        self.errors: list[BaseException] = []
        self.source = SourceCoordinator(
            "source",
            Listing(),
            1,
            self,  # type: ignore[arg-type]
            lambda subtask, operator_id, splits, no_more: self.dealt.append(no_more),
            lambda delay_ms, call: self.timers.append(call),
            self.errors.append,
        )

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.calls.append((work, done))

    def heard(self) -> list[str]:
        enumerator: Any = self.source._enumerator
        return list(enumerator.heard)


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.source.reset(None)
    return stage


def test_what_it_asked_for_comes_to_it(stage: Stage) -> None:
    """E1: the call is made in the background, its result handed over in the master's turn, later ones after a time."""
    (work, done), (timer,) = stage.calls.pop(), stage.timers
    done(work(), None)
    timer()
    ((work, done),) = stage.calls
    done(work(), None)
    assert stage.heard() == ["at once", "later"]
    assert stage.dealt == [False, False]


def test_an_answer_to_the_enumerator_of_a_former_attempt_is_dropped(stage: Stage) -> None:
    """G8: the enumerator of now was restored from a checkpoint; what it did not ask for, it would deal out twice."""
    work, done = stage.calls.pop()
    stage.source.reset(None)
    done(work(), None)
    assert (stage.heard(), stage.dealt) == ([], [])
    done(None, OSError("listing failed"))
    assert stage.errors == [], "nor does its failure concern this attempt"


def test_a_call_that_a_former_attempt_planned_is_not_made(stage: Stage) -> None:
    """G8: nor is it answered."""
    (timer,) = stage.timers
    stage.calls.clear()
    stage.source.reset(None)
    stage.calls.clear()
    timer()
    assert stage.calls == []


def test_a_closed_source_hears_nothing(stage: Stage) -> None:
    """E1, G8: the job has ended, or waits for its next attempt."""
    (work, done), (timer,) = stage.calls.pop(), stage.timers
    stage.source.close()
    done(work(), None)
    timer()
    assert (stage.calls, stage.dealt, stage.errors) == ([], [], [])


def test_an_error_is_the_job_s(stage: Stage) -> None:
    """E1: of the call, or of the enumerator that hears of it."""
    _, done = stage.calls.pop()
    done(None, OSError("listing failed"))
    assert [str(error) for error in stage.errors] == ["listing failed"]


def test_a_reader_that_was_told_of_the_end_gets_no_split(stage: Stage) -> None:
    """E1: the source breaks its promise, and the job fails; after a restart the readers have been told nothing."""
    stage.source.handle_request(0)
    work, done = stage.calls.pop()
    done(work(), None)
    (error,) = stage.errors
    assert "Listing" in str(error)
    stage.source.reset(None)
    stage.errors.clear()
    work, done = stage.calls.pop()
    done(work(), None)
    assert stage.errors == []
