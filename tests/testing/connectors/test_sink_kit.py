"""The conformance kit finds what is wrong with a sink, and calls it by the name of the rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.testing.connectors import planted_sinks as planted
from tests.testing.connectors.planted_sinks import STORES, Globally, HalfLogged, Logged, Staging, Straight, staging

from penstock.base.errors import WrongValueError
from penstock.testing.connectors import (
    SINK_CASES,
    SINK_RULES,
    ConformanceError,
    SinkUnderTest,
    check_sink,
    last_of_each,
)


@pytest.fixture(autouse=True)
def _empty_stores() -> Iterator[None]:
    yield
    STORES.clear()


def subject_of(sink: Staging, **arguments: Any) -> SinkUnderTest:
    store = STORES[sink.number]
    arguments.setdefault("key", lambda record: record % 4)
    arguments.setdefault("ordered", True)
    return SinkUnderTest(
        sink,
        range(24),
        lambda: list(store.rows),
        commits=lambda: store.versions,
        leftovers=lambda: [name for name, rows in store.staged.items() if rows],
        **arguments,
    )


def found(writer: Any = planted.Writer, commits: Any = planted.Commits, kind: type[Staging] = Staging) -> str:
    """The rule that is broken by a sink of these parts."""
    with pytest.raises(ConformanceError) as caught:
        check_sink(lambda: subject_of(staging(writer, commits, kind)))
    return caught.value.rule


@pytest.mark.parametrize("case", SINK_CASES)
@pytest.mark.parametrize("kind", [Staging, Globally, Logged])
def test_a_sink_that_keeps_the_rules_passes(kind: type[Staging], case: str) -> None:
    assert check_sink(lambda: subject_of(staging(kind=kind)), case).runs > 0


WRITERS = {
    planted.WritesThrough: "visible-early",
    planted.ShowsWhatIsPrepared: "visible-early",
    planted.CloseCommits: "close",
    planted.CloseDiscardsAll: "prepared-lost",
    planted.ClosesOnce: "close",
    planted.NamesWithoutRun: "names",
    planted.CountsAnew: "restart",
    planted.HoldsAHandle: "picklable",
    planted.StateOfItsOwn: "rescale",
    planted.PreparesTwice: "prepared-once",
    planted.OneSlot: "subsumed",
    planted.EmptyIsAnError: "raises",
    planted.MarksEmptyCheckpoints: "empty-checkpoint",
    planted.SharesItsPlace: "zombie",
    planted.SweepsAtStart: "savepoint",
}
COMMITS = {
    planted.CommitsAgain: "commit-twice",
    planted.RemembersInMemory: "commit-twice",
    planted.SecondTimeIsAnError: "commit-twice",
    planted.AllOrKnown: "commit-partly",
    planted.NewerIsNewer: "savepoint",
    planted.Reversed: "order",
    planted.LeavesAll: "leftovers",
    planted.LeavesThoseOfOtherSubtasks: "leftovers",
    planted.ClosesWithAnError: "close",
}


@pytest.mark.parametrize("writer", WRITERS, ids=lambda one: one.__name__)
def test_a_bug_of_a_writer_is_found_by_name(writer: Any) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_sink(lambda: subject_of(staging(writer)))
    assert caught.value.rule == WRITERS[writer], caught.value


@pytest.mark.parametrize("commits", COMMITS, ids=lambda one: one.__name__)
def test_a_bug_of_a_committer_is_found_by_name(commits: Any) -> None:
    assert found(commits=commits) == COMMITS[commits]


def test_leftovers_are_found_after_a_rescale() -> None:
    with pytest.raises(ConformanceError) as caught:
        check_sink(lambda: subject_of(staging(commits=planted.LeavesThoseOfOtherSubtasks)), "rescale")
    assert caught.value.rule == "leftovers"


def test_other_bugs_are_found_by_name() -> None:
    assert found(kind=planted.WithHandle) == "picklable"
    assert found(commits=planted.EachIsAVersion, kind=Globally) == "one-commit"
    assert found(kind=HalfLogged) == "commit-log"


def test_at_least_once_loses_nothing() -> None:
    with pytest.raises(ConformanceError) as caught:
        check_sink(lambda: subject_of(staging(planted.ForgetsToFlush, kind=Straight), key=None, ordered=False))
    assert caught.value.rule == "nothing-lost"
    report = check_sink(lambda: subject_of(staging(planted.Flushes, kind=Straight), key=None, ordered=False))
    assert report.runs > 20


def test_a_table_shows_the_last_record_of_each_key() -> None:
    class Table(planted.Commits):
        def commit(self, committables: Any) -> None:
            super().commit(committables)
            self.store.rows[:] = last_of_each(lambda record: record % 4)(self.store.rows)

    def prepare() -> SinkUnderTest:
        return subject_of(staging(commits=Table), ordered=False, shown=last_of_each(lambda record: record % 4))

    assert check_sink(prepare).runs > 20


def test_a_savepoint_that_a_failure_ends_must_be_an_error() -> None:
    def check(outlives: bool) -> None:
        sink = staging(planted.SweepsForGood, planted.TellsOfTheLost)
        check_sink(lambda: subject_of(sink, savepoints_outlive_failures=outlives), "savepoint")

    check(False)
    with pytest.raises(ConformanceError, match="was aborted") as caught:
        check(True)
    assert caught.value.rule == "savepoint"


def test_an_error_says_rule_step_and_difference() -> None:
    with pytest.raises(ConformanceError) as caught:
        check_sink(lambda: subject_of(staging(planted.CloseCommits)), "close")
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        f"Staging breaks the rule 'close': {SINK_RULES['close']}",
        "  case: close, parallelism 3, at step 5",
    ]
    assert lines[-2] == "  expected: 24 records, each once"
    assert "too often: 0" in lines[-1]


def test_unknown_cases_are_refused() -> None:
    with pytest.raises(WrongValueError, match="there is no case 'never'; there are undisturbed"):
        check_sink(lambda: subject_of(staging()), "never")


def test_each_bug_has_a_rule() -> None:
    assert set(WRITERS.values()) | set(COMMITS.values()) <= set(SINK_RULES)
