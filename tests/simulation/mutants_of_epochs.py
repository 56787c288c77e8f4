"""Planted bugs of masters that work step by step, and of what lies between two epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from unittest import mock

import msgspec
from tests.simulation.planting import Mutant, around

from penstock.base.errors import JobExecutionError
from penstock.drivers.simulation import connectors as connectors_module
from penstock.drivers.simulation.crash_points import JOBS
from penstock.drivers.simulation.simulation import History
from penstock.drivers.simulation.stepwise_history import (
    DIES,
    FAILS_FOR_GOOD,
    StepwiseCrash,
    run_batch_seed,
    run_stepwise_seed,
)
from penstock.drivers.stepwise.flow import BatchCommits
from penstock.runtime.checkpoint.savepoints import Choice, Forerunners, choose_latest
from penstock.runtime.epochs.coordinator import EpochCoordinator
from penstock.runtime.master import epochs as epochs_module
from penstock.runtime.master import master as begin_module
from penstock.runtime.master.epochs import BackFillMaster, EpochMaster
from penstock.runtime.master.master import BatchMaster, Latest
from penstock.runtime.master.master import begin_from_latest as real_begin_from_latest
from penstock.runtime.master.steps import (
    Answer,
    Cancelled,
    Complete,
    DeleteGarbage,
    Deliver,
    Join,
    MarkJob,
    OpenSources,
    Step,
)
from penstock.storage.leadership import BEGUN, LeftByJobs

#: Histories that are looked at, from the one on that is known to find a mutant.
SEEDS_MAX: Final = 60


def _changed(owner: Any, name: str, change: Callable[[Any, Step], Step | None]) -> Any:
    """Let a part of a master's work take other steps: None leaves one out."""

    def part(original: Any, master: Any, *args: Any, **kwargs: Any) -> Any:
        work = original(master, *args, **kwargs)
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = work.send(result) if error is None else work.throw(error)
            except StopIteration as ended:
                return ended.value
            result = error = None
            changed = change(master, step)
            if changed is not None:
                try:
                    result = yield changed
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as raised:  # noqa: BLE001 - the master decides
                    error = raised

    return around(owner, name, part)


def deliver_before_the_checkpoint() -> Any:
    def run_epoch(original: Any, master: Any, *args: Any, **kwargs: Any) -> Any:
        epoch = yield from original(master, *args, **kwargs)
        yield Deliver(epoch.last)
        return epoch

    return around(EpochMaster, "run_epoch", run_epoch)


def forget_what_the_job_of_before_has_not_delivered() -> Any:
    def owed(original: Any, coordinator: Any, state: Any) -> Any:
        coordinator._is_delivered = True
        return original(coordinator, state)

    return around(EpochCoordinator, "_owed", owed)


def go_on_after_a_stop_whose_output_is_not_committed() -> Any:
    def savepoint(original: Any, master: Any, *args: Any) -> Any:
        try:
            return (yield from original(master, *args))
        except Cancelled:
            raise
        except Exception:  # noqa: BLE001 - that is the bug
            return False

    return around(EpochMaster, "_savepoint", savepoint)


def commit_once_and_never_mind() -> Any:
    def deliver(original: Any, master: Any, last: Any) -> Any:
        with suppress(OSError):
            yield Deliver(last)

    return around(EpochMaster, "deliver", deliver)


def keep_the_last_savepoint_from_the_job() -> Any:
    def unnamed(master: Any, step: Step) -> Step:
        if isinstance(step, Complete) and step.savepoint_path:
            return Complete(msgspec.structs.replace(step.metadata, ends_job=False), step.savepoint_path)
        return step

    return _changed(EpochMaster, "_savepoint", unnamed)


def deal_on_where_a_failed_epoch_was() -> Any:
    return _changed(EpochMaster, "go_back", lambda master, step: None if isinstance(step, OpenSources) else step)


def take_answers_of_mixed_runs() -> Any:
    return mock.patch.object(epochs_module, "_check_answers", return_value=None)


def give_an_epoch_the_number_of_the_one_that_failed() -> Any:
    def roll_back(original: Any, coordinator: Any) -> None:
        original(coordinator)
        coordinator._epoch -= 1

    return around(EpochCoordinator, "roll_back", roll_back)


def read_for_a_savepoint() -> Any:
    def run_epoch(original: Any, master: Any, ends: bool, records_max: Any, path: Any = None, reads: Any = None) -> Any:
        is_savepoint = path is not None and reads is None
        return original(master, ends, 3 if is_savepoint else records_max, path, True if is_savepoint else reads)

    return around(EpochMaster, "run_epoch", run_epoch)


def delete_the_newest_checkpoint() -> Any:
    def older(master: Any, step: Step) -> Step:
        return replace(step, kept=step.kept[:-1]) if isinstance(step, DeleteGarbage) else step

    return _changed(EpochMaster, "_delete_garbage", older)


def begin_with_nothing_when_nothing_can_be_read() -> Any:
    def begin_from_latest(original: Any, *args: Any) -> Any:
        try:
            return (yield from original(*args))
        except Exception:  # noqa: BLE001 - that is the bug
            yield Join(args[0].name)
            return Latest(None, Forerunners())

    return mock.patch.object(epochs_module, "begin_from_latest", partial(begin_from_latest, real_begin_from_latest))


def say_nothing_of_a_beginning() -> Any:
    def silent(master: Any, step: Step) -> Step | None:
        return None if isinstance(step, MarkJob) and step.mark.status == BEGUN else step

    return _changed(EpochMaster, "_begin", silent)


def forget_where_the_job_began() -> Any:
    def choose(left: LeftByJobs) -> Choice:
        choice = choose_latest(left)
        is_begun = any(mark.status == BEGUN for mark in left.marks)
        return replace(choice, path=None) if is_begun else choice

    return mock.patch.object(begin_module, "choose_latest", choose)


def end_with_the_first_reader() -> Any:
    def has_ended(self: Any) -> bool:
        return bool(self._ended)

    return mock.patch.object(EpochCoordinator, "has_ended", property(has_ended))


def never_say_that_there_are_no_more_splits() -> Any:
    def works(original: Any, coordinator: Any, dealt: Any, *args: Any) -> Any:
        return original(
            coordinator, {k: d._replace(no_more=(False,) * len(d.no_more)) for k, d in dealt.items()}, *args
        )

    return around(EpochCoordinator, "works", works)


def read_on_after_a_drain() -> Any:
    def begin(original: Any, master: Any) -> Any:
        found = yield from original(master)
        master.is_drained = False
        return found

    return around(EpochMaster, "_begin", begin)


def answer_before_the_savepoint_is_complete() -> Any:
    def savepoint(original: Any, master: Any, request: Any, command: Any) -> Any:
        work = original(master, request, command)
        result: Any = None
        error: BaseException | None = None
        has_answered = False
        while True:
            try:
                step = work.send(result) if error is None else work.throw(error)
            except StopIteration as ended:
                return ended.value
            result = error = None
            if isinstance(step, Answer) and has_answered:
                continue
            if isinstance(step, Complete):
                has_answered = True
                yield Answer(request, step.savepoint_path)
            try:
                result = yield step
            except GeneratorExit:
                work.close()
                raise
            except BaseException as raised:  # noqa: BLE001 - the master decides
                error = raised

    return around(EpochMaster, "_savepoint", savepoint)


def keep_nothing_of_split_enumerators() -> Any:
    def metadata(original: Any, coordinator: Any, answers: Any, kept: Any, *args: Any) -> Any:
        return original(coordinator, answers, {}, *args)

    return around(EpochCoordinator, "metadata", metadata)


def keep_split_enumerators_as_they_were_before() -> Any:
    """The snapshot of the enumerators is the last epoch's, while readers hold what was dealt in this one."""

    def metadata(original: Any, coordinator: Any, answers: Any, kept: Any, *args: Any) -> Any:
        before = coordinator.__dict__.get("before", kept)
        coordinator.before = kept
        return original(coordinator, answers, before, *args)

    return around(EpochCoordinator, "metadata", metadata)


def deliver_a_back_fill_before_its_savepoint() -> Any:
    def attempt(original: Any, master: Any) -> Any:
        run_epoch = master.run_epoch

        def early(*args: Any, **kwargs: Any) -> Any:
            epoch = yield from run_epoch(*args, **kwargs)
            yield Deliver(epoch.last)
            return epoch

        with mock.patch.object(master, "run_epoch", early):
            return (yield from original(master))

    return around(BackFillMaster, "_pass", attempt)


def leave_a_request_without_an_answer_when_it_is_cancelled() -> Any:
    def silent(master: Any, step: Step) -> Step | None:
        is_cancelled = isinstance(step, Answer) and step.error is not None and "cancelled" in step.error
        return None if is_cancelled else step

    return _changed(EpochMaster, "_savepoint", silent)


def commit_a_batch_that_is_written_down_nowhere() -> Any:
    return mock.patch.object(BatchCommits, "_by_kind", return_value={})


def leave_what_a_batch_could_not_finish_to_commit() -> Any:
    return mock.patch.object(BatchCommits, "_take_back", return_value="")


def begin_a_batch_without_a_look_at_dead_runs() -> Any:
    return mock.patch.object(connectors_module._CommitLog, "begin", return_value=[])


def finish_a_batch_whose_output_is_not_committed() -> Any:
    def work(original: Any, master: Any) -> Any:
        with suppress(JobExecutionError):
            yield from original(master)

    return around(BatchMaster, "work", work)


def begin_an_epoch_while_one_is_doubtful() -> Any:
    def settle(self: Any) -> Any:
        self._doubtful = None
        yield from ()

    return mock.patch.object(EpochMaster, "_settle", settle)


def forget_event_time_between_epochs() -> Any:
    def complete(original: Any, coordinator: Any, *args: Any) -> None:
        original(coordinator, *args)
        coordinator._watermarks = {}

    return around(EpochCoordinator, "complete", complete)


@dataclass(frozen=True)
class FoundBy:
    """The kinds of violation that give a mutant away, and where: in seeds from one on, or when a step goes wrong."""

    kinds: tuple[str, ...]
    seed: int = 1
    point: str | None = None
    how: str = DIES
    run: Callable[[int], History] = run_stepwise_seed

    def histories(self) -> Iterator[Callable[[], History]]:
        """The histories to look at."""
        if self.point is None:
            yield from (partial(self.run, seed) for seed in range(self.seed, self.seed + SEEDS_MAX))
            return
        for number in range(self.seed, self.seed + SEEDS_MAX):
            job = list(JOBS)[number % len(JOBS)]
            crash = StepwiseCrash(number, job, self.point, 1 + number % 2, self.how)
            yield partial(_history_of, crash)


def _history_of(crash: StepwiseCrash) -> History:
    return crash.run()[0]


MUTANTS_OF_EPOCHS: dict[Mutant, FoundBy] = {
    deliver_before_the_checkpoint: FoundBy(("outside", "output")),
    forget_what_the_job_of_before_has_not_delivered: FoundBy(("output",)),
    go_on_after_a_stop_whose_output_is_not_committed: FoundBy(
        ("output", "the master"), point="before Deliver of the savepoint that ends the job", how=FAILS_FOR_GOOD
    ),
    commit_once_and_never_mind: FoundBy(("output",)),
    keep_the_last_savepoint_from_the_job: FoundBy(("output",), 9),
    deal_on_where_a_failed_epoch_was: FoundBy(("output",)),
    take_answers_of_mixed_runs: FoundBy(("output",), 80),
    forget_event_time_between_epochs: FoundBy(("time",)),
    begin_an_epoch_while_one_is_doubtful: FoundBy(("output",), 438),
    give_an_epoch_the_number_of_the_one_that_failed: FoundBy(("outside",), 2),
    read_for_a_savepoint: FoundBy(("output",), point="after Complete of the savepoint"),
    delete_the_newest_checkpoint: FoundBy(("missing-file", "output")),
    begin_with_nothing_when_nothing_can_be_read: FoundBy(("output",), point="before TakeOver", how=FAILS_FOR_GOOD),
    say_nothing_of_a_beginning: FoundBy(("output",), 6),
    forget_where_the_job_began: FoundBy(("output",), point="after MarkJob BEGUN with a savepoint"),
    end_with_the_first_reader: FoundBy(("output",)),
    never_say_that_there_are_no_more_splits: FoundBy(("stalled",)),
    read_on_after_a_drain: FoundBy(("output",), point="after Complete of the savepoint that ends the job"),
    answer_before_the_savepoint_is_complete: FoundBy(("answer",), 174),
    keep_nothing_of_split_enumerators: FoundBy(("output",)),
    keep_split_enumerators_as_they_were_before: FoundBy(("output",), 40),
    deliver_a_back_fill_before_its_savepoint: FoundBy(("output", "outside"), 4),
    leave_a_request_without_an_answer_when_it_is_cancelled: FoundBy(("answer",), point="cancelled in a savepoint"),
    commit_a_batch_that_is_written_down_nowhere: FoundBy(("output",), point="within Deliver of a batch"),
    leave_what_a_batch_could_not_finish_to_commit: FoundBy(("atomic",), run=run_batch_seed),
    begin_a_batch_without_a_look_at_dead_runs: FoundBy(("output",), point="within Deliver of a batch"),
    finish_a_batch_whose_output_is_not_committed: FoundBy(("output", "stalled"), run=run_batch_seed),
}
