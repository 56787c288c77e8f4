"""The conformance kit finds what is wrong with a source, and calls it by the name of the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.testing.connectors import planted_sources as planted

from penstock.base.errors import WrongValueError
from penstock.runtime.connector import Source
from penstock.testing import Record
from penstock.testing.connectors import (
    SOURCE_CASES,
    SOURCE_RULES,
    ConformanceError,
    SourceRun,
    SourceUnderTest,
    check_source,
)


def checked(make: Callable[[], Source[Any, Any]], *cases: str, **arguments: Any) -> Any:
    def prepare() -> SourceUnderTest:
        return SourceUnderTest(make(), range(40), order_of=lambda value: value // 10, silence_max=20)

    return check_source(prepare, *cases, **arguments)


@pytest.mark.parametrize("case", SOURCE_CASES)
@pytest.mark.parametrize("reader", [planted.Reader, planted.Interleaving])
def test_a_source_that_keeps_the_rules_passes(reader: type[planted.Reader], case: str) -> None:
    report = checked(lambda: planted.numbers(reader), case)
    assert report.runs > 0
    assert not [remark for remark in report.remarks if "took" not in remark] or reader is planted.Reader


READERS = {
    planted.TooEarly: "position",
    planted.TooLate: "position",
    planted.Locked: "picklable",
    planted.OnlyItsOwn: "rescale",
    planted.EndsEarly: "end",
    planted.AsksAgain: "asks-once",
    planted.AsksInStartToo: "asks-once",
    planted.NeverEnds: "end",
    planted.TakesAll: "batch-size",
    planted.Empty: "batch-size",
    planted.OneSplitOnly: "dealt-ahead",
    planted.Backwards: "order",
    planted.KeepsWhatIsRead: "finished-split",
    planted.ClosesOnce: "close",
    planted.CannotCloseUnstarted: "close",
    planted.DoesNotPause: "paused",
    planted.DoesNotOpenRestored: "open-split",
    planted.ClosesTooSoon: "close-split",
    planted.Nameless: "open-split",
}
ENUMERATORS = {
    planted.ForgetsWhatComesBack: "splits-back",
    planted.LosesWhatComesBackInSnapshots: "splits-back",
    planted.RemembersWhoAsked: "splits-back",
    planted.KeepsWhatIsAssigned: "enumerator-state",
    planted.BeginsAnewFromNothing: "enumerator-state",
    planted.SpeaksAfterTheEnd: "late-split",
    planted.Silent: "end",
    planted.ShowsItsQueue: "snapshot-alias",
}


@pytest.mark.parametrize("reader", READERS, ids=lambda one: one.__name__)
def test_a_bug_of_a_reader_is_found_by_name(reader: type[planted.Reader]) -> None:
    with pytest.raises(ConformanceError) as caught:
        checked(lambda: planted.numbers(reader))
    assert caught.value.rule == READERS[reader], caught.value


@pytest.mark.parametrize("enumerator", ENUMERATORS, ids=lambda one: one.__name__)
def test_a_bug_of_an_enumerator_is_found_by_name(enumerator: type[planted.Queue]) -> None:
    with pytest.raises(ConformanceError) as caught:
        checked(lambda: planted.numbers(enumerator=enumerator))
    assert caught.value.rule == ENUMERATORS[enumerator], caught.value


def test_other_bugs_are_found_by_name() -> None:
    with pytest.raises(ConformanceError) as caught:
        checked(planted.WithHandle)
    assert caught.value.rule == "picklable"
    with pytest.raises(ConformanceError) as caught:
        checked(planted.MutableNumbers)
    assert caught.value.rule == "snapshot-alias"
    planted.READ_SO_FAR[0] = 0
    with pytest.raises(ConformanceError) as caught:
        checked(lambda: planted.numbers(planted.Different), "replay")
    assert caught.value.rule == "replay"
    with pytest.raises(ConformanceError) as caught:
        check_source(lambda: SourceUnderTest(planted.numbers(), range(41)))
    assert caught.value.rule == "complete"
    assert caught.value.seen == "40 records; missing: 40"


def test_an_error_says_rule_step_and_difference() -> None:
    with pytest.raises(ConformanceError) as caught:
        checked(lambda: planted.numbers(planted.TooEarly), "restart", parallelisms=[1], batch_sizes=[3])
    assert str(caught.value).splitlines()[:2] == [
        "Numbers breaks the rule 'position': a reader's snapshot is its splits, each just after the last record that "
        "poll_next returned",
        "  case: restart, parallelism 1, batches of 3",
    ]
    assert caught.value.expected == "40 records, each once"
    assert caught.value.seen == "43 records; too often: 0, 1, 2"
    assert "polled for 3: END_OF_INPUT" in caught.value.steps[-1]


def test_what_a_connector_raises_is_told_with_the_step() -> None:
    class Fails(planted.Reader):
        def no_more_splits(self) -> None:
            raise KeyError("splits")

    with pytest.raises(ConformanceError) as caught:
        checked(lambda: planted.numbers(Fails), "undisturbed")
    assert (caught.value.rule, caught.value.seen) == ("raises", "KeyError: 'splits'")
    assert "is told that no split will follow" in caught.value.steps[-1]


def test_slow_polls_are_remarked_on_and_are_no_error() -> None:
    ticks = iter(range(10_000))
    report = checked(planted.Numbers, "undisturbed", stopwatch=lambda: next(ticks))
    assert report.remarks[0].endswith("is polled for 1: [0]: took 1.000 s") or "took 1.000 s" in report.remarks[0]


def test_a_source_that_cannot_be_restarted_by_reader_or_replayed_is_held_to_less() -> None:
    class Less(planted.Numbers):
        restarts_by_reader = replayable = False
        enumerator = planted.ForgetsWhatComesBack

    assert checked(Less).runs > 0


def test_timestamps_may_be_expected() -> None:
    from penstock.connectors.collection import CollectionSource

    def prepare() -> SourceUnderTest:
        return SourceUnderTest(CollectionSource("ab", [5, 3]), [Record("a", 5), Record("b", 3)])

    check_source(prepare)
    with pytest.raises(ConformanceError, match=r"missing: Record\('b', 4\); never expected: Record\('b', 3\)"):
        check_source(lambda: SourceUnderTest(CollectionSource("ab", [5, 3]), [Record("a", 5), Record("b", 4)]))


def test_unknown_cases_are_refused() -> None:
    with pytest.raises(WrongValueError, match="there is no case 'restarts'; there are undisturbed"):
        checked(planted.Numbers, "restarts")


def test_each_rule_has_a_sentence_and_each_bug_a_rule() -> None:
    assert set(READERS.values()) | set(ENUMERATORS.values()) <= set(SOURCE_RULES)


def test_a_run_may_be_driven_by_hand() -> None:
    run = SourceRun(planted.Numbers())
    while not run.all_values:
        run.advance(4)
    snapshot = run.snapshot()
    run.advance(4)
    assert run.all_values == [*range(8)]
    run.restart(snapshot)
    assert run.all_values == [*range(4)]
    run.advance(4)
    assert run.all_values == [*range(8)]
    run.close()
