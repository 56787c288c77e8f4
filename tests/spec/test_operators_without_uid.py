"""Operators without uid have ids of their places: state is not taken by another operator that came there (H3, H4).

Each case runs a program to a savepoint, and begins the next one from it. Time is virtual.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, Timed, VirtualJob, clear_ledger, environment, records

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Types
from penstock.datastream.data_stream import DataStream, KeyedStream
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

RECORDS = 50
Build = Callable[[DataStream], DataStream]


class Count(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.state.update((self.state.value() or 0) + 1)
        yield (*value, self.state.value())


class Twice(Count):
    """The same state by name and type, used otherwise."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.state.update((self.state.value() or 0) + 2)
        yield value


@pytest.fixture(autouse=True)
def nothing_so_far() -> None:
    clear_ledger()


def by_user(stream: DataStream, **more: Any) -> KeyedStream:
    return stream.key_by(lambda value: value[0], **more)


def counted(stream: DataStream) -> DataStream:
    return by_user(stream).process(Count())


def job(build: Build, begin_from: str | None = None, **options: Any) -> VirtualJob:
    env = environment(1, **{"execution.state-recovery.path": begin_from, **options})
    period_ms = 100 if begin_from is None else 0
    source = env.from_source(Timed(period_ms, (RECORDS,)), WatermarkStrategy.no_watermarks(), "timed").uid("timed")
    build(source).sink_to(LedgerSink("out")).uid("sink")
    return VirtualJob(env)


def resumed(store_directory: Path, before: Build, after: Build, **options: Any) -> VirtualJob:
    first = job(before)
    first.at(2_050, lambda: first.stop_with_savepoint(False, str(store_directory / "savepoints")))
    assert first.run() is JobStatus.FINISHED
    (path,) = (store_directory / "savepoints").iterdir()
    second = job(after, str(path), **options)
    second.run()
    return second


def check_that_it_went_on(second: VirtualJob) -> None:
    assert second.status() is JobStatus.FINISHED, second.failure()
    assert sorted(LEDGER["out"]) == [(*record, record[1] + 1) for record in records(RECORDS)]


def check_that_it_was_refused(second: VirtualJob, *words: str) -> None:
    assert second.status() is JobStatus.FAILED
    assert all(word in second.failure() for word in words), second.failure()
    assert "RUNNING" not in second.listener.statuses


def test_nothing_has_changed(store_directory: Path) -> None:
    """H3: the same program finds its state by place."""
    check_that_it_went_on(resumed(store_directory, counted, counted))


def test_one_is_put_in_front_of_another(store_directory: Path) -> None:
    """H4: the new operator would take the state of the old one, which would begin empty; both are named."""
    second = resumed(store_directory, counted, lambda s: counted(by_user(s).process(Twice())))
    check_that_it_was_refused(
        second, "operator 'Keyed Process' (Twice) has no uid and stands at the place of 'Keyed Process' (Count)",
        "set_uid_hash(",
    )  # fmt: skip


def test_two_of_one_function_cannot_be_told_apart(store_directory: Path) -> None:
    """H4: whichever of them is the new one, the other one is refused too."""
    second = resumed(store_directory, counted, lambda s: by_user(counted(s).map(lambda v: v[:2])).process(Count()))
    check_that_it_was_refused(second, "nothing distinguishes the two", "'Keyed Process' (Count) was added")


def test_one_is_put_behind_another(store_directory: Path) -> None:
    """H4: the class of the function tells that the state is still that of the same operator."""
    second = resumed(store_directory, counted, lambda s: by_user(counted(s)).process(Twice()))
    check_that_it_went_on(second)


def test_a_name_tells_as_well(store_directory: Path) -> None:
    """H4: a name that the program gave is the operator's, wherever others of the kind are."""
    named: Build = lambda s: counted(s).name("the counter")  # noqa: E731
    second = resumed(store_directory, named, lambda s: by_user(named(s)).process(Count()).map(lambda v: v[:3]))
    check_that_it_went_on(second)


def test_another_name_is_another_operator(store_directory: Path) -> None:
    """H4: two names that differ, both given by the program."""
    second = resumed(store_directory, lambda s: counted(s).name("one"), lambda s: counted(s).name("other"))
    check_that_it_was_refused(second, "'other' (Count)", "'one' (Count)", "their names differ")


def test_a_stateless_operator_takes_the_place(store_directory: Path) -> None:
    """H4: what a map would take, and never look at, would be lost."""
    second = resumed(store_directory, counted, lambda s: counted(s.map(lambda value: value)))
    check_that_it_was_refused(second, "operator 'Map'", "of different kinds")


def test_another_type_of_keys(store_directory: Path) -> None:
    """H4: declared ones are compared."""
    second = resumed(
        store_directory,
        lambda s: by_user(s, key_type=Types.LONG()).process(Count()),
        lambda s: s.key_by(lambda value: str(value[0]), Types.STRING()).process(Count()),
    )
    check_that_it_was_refused(second, "their keys are declared as Long and String")


def test_two_that_have_changed_places(store_directory: Path) -> None:
    """H4: nothing was added or taken away, and yet each would take the other's state."""
    second = resumed(
        store_directory,
        lambda s: by_user(counted(s).map(lambda v: v[:2])).process(Twice()),
        lambda s: by_user(by_user(s).process(Twice()).map(lambda v: v[:2])).process(Count()),
    )
    check_that_it_was_refused(second, "'Keyed Process' (Count) was moved")


def test_one_is_taken_away_in_front_of_another(store_directory: Path) -> None:
    """H4: leave to drop state is no leave to take another one's."""
    ignores = {"execution.state-recovery.ignore-unclaimed-state": "true"}
    second = resumed(store_directory, lambda s: counted(by_user(s).process(Twice())), counted, **ignores)
    check_that_it_was_refused(second, "'Keyed Process' (Count) was removed")


def test_a_changed_function_where_nothing_was_added(store_directory: Path) -> None:
    """H4: a function may be another one, and a name may be given, where no other operator is in question."""

    class Counted(Count):
        pass

    second = resumed(store_directory, counted, lambda s: by_user(s).process(Counted()).name("counter").map(lambda v: v))
    check_that_it_went_on(second)


def test_the_remedies(store_directory: Path) -> None:
    """H4: the hash of the id that the error names, on the operator that the state is for; or leave to go by place."""
    refused = resumed(store_directory / "1", counted, lambda s: counted(by_user(s).process(Twice())))
    uid_hash = refused.failure().split("set_uid_hash('")[1].split("'")[0]
    clear_ledger()
    second = resumed(store_directory / "2", counted, lambda s: by_user(s).process(Twice()).uid("twice").key_by(
        lambda v: v[0]).process(Count()).set_uid_hash(uid_hash))  # fmt: skip
    check_that_it_went_on(second)
    allowed = {"penstock.recovery.match-by-place": "true"}
    third = resumed(store_directory / "3", counted, lambda s: counted(by_user(s).process(Twice())), **allowed)
    assert third.status() is JobStatus.FINISHED
