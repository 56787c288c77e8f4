"""The conformance kit for sinks: `check_sink` runs a sink through every situation that it may meet.

    def words(tmp_path):
        return SinkUnderTest(TableSink(...), records=ROWS, read=lambda: read_rows(...))

    @pytest.mark.parametrize("case", SINK_CASES)
    def test_table_sink(case, tmp_path):
        check_sink(lambda: words(tmp_path), case)

Readers of the external system must see exactly the committed records, each once. An error names the broken rule and the
last steps before it. A sink that promises only at-least-once must not lose records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from penstock.base.errors import PenstockError
from penstock.runtime.connector import Committer
from penstock.testing.connectors import rules
from penstock.testing.connectors.sink_run import SinkCheckpoint, SinkRun, SinkUnderTest
from penstock.testing.connectors.source_kit import ConformanceReport

#: The kit's test cases; each can be passed to `check_sink`.
SINK_CASES: Final = (
    "undisturbed",
    "commit",
    "close",
    "restart",
    "rescale",
    "zombie",
    "two-runs",
    "savepoint",
    "epochs",
    "batch",
)
#: Cases for exactly-once sinks only.
EXACTLY_ONCE_CASES: Final = ("commit", "zombie", "two-runs", "savepoint", "epochs", "batch")


class _Killed(Exception):
    """The job dies as if by kill -9."""


def check_sink(
    prepare: Callable[[], SinkUnderTest],
    *cases: str,
    parallelisms: Sequence[int] = (1, 2, 3),
    places: int = 12,
) -> ConformanceReport:
    """Run a sink through the cases of the kit.

    Args:
        prepare: creates the sink on a fresh system; called for each run.
        *cases: some of `SINK_CASES`; all of them by default. Exactly-once cases are skipped for at-least-once sinks.
        parallelisms: the numbers of writers.
        places: the number of points in a run, from its first step to its last, at which the job fails.

    Returns:
        the number of runs and steps, and remarks.

    Raises:
        ConformanceError: if the sink breaks a rule.
    """
    rules.check_names(cases, SINK_CASES)
    kit = _Kit(prepare, list(parallelisms), places, ConformanceReport())
    for case in cases or SINK_CASES:
        if case not in EXACTLY_ONCE_CASES or kit.is_exactly_once:
            getattr(kit, case.replace("-", "_"))()
    return kit.report


class _Writing:
    """One use of the sink under test."""

    def __init__(self, subject: SinkUnderTest, steps: rules.Steps, is_exactly_once: bool) -> None:
        self.subject, self.steps, self.is_exactly_once = subject, steps, is_exactly_once
        self.chunk = max(1, len(subject.records) // 6)
        self.runs: list[SinkRun] = []

    def run(self, parallelism: int, restored: SinkCheckpoint | None = None, **arguments: Any) -> SinkRun:
        """Create an attempt without starting it; it is closed at the end of the case."""
        return self.keep(SinkRun(self.subject, self.steps, parallelism, restored, **arguments))

    def keep(self, run: SinkRun) -> SinkRun:
        """Close the attempt at the end of the case."""
        self.runs.append(run)
        return run

    def committer(self, attempt: int) -> Committer[Any]:
        """Create a committer as another process would; it must not be None, because the sink is exactly-once."""
        run = SinkRun(self.subject, self.steps, 1, attempt=attempt)
        committer = run.sink.create_committer(run.new_host())
        if committer is None:
            raise self.steps.broken("complete", "a committer, as `shows_on_commit` is true", "None")
        return committer

    def sees(self, rule: str, written: Sequence[Any]) -> None:
        """Check that readers see all committed records, and nothing else if the sink is exactly-once."""
        subject = self.subject
        expected = subject.shown(list(written))
        with self.steps.call():
            actual = subject.read()
        missing, extra = rules.difference(actual, expected)
        if not self.is_exactly_once:
            rule, extra = "nothing-lost", extra - extra
        if missing or extra:
            text = f"{len(actual)} records; {rules.told_difference(missing, extra, expected)}"
            raise self.steps.broken(rule, f"{len(expected)} records, each once", text)
        if subject.ordered and subject.key is not None and self.is_exactly_once:
            wrong = rules.out_of_order(actual, expected, subject.key)
            if wrong is not None:
                raise self.steps.broken("order", "the order in which records were written", wrong)

    def sees_beside_others(self, rule: str, written: Sequence[Any]) -> None:
        """Do the same check as `sees`, while runs that do not count have uncommitted data open."""
        if not self.subject.held_back:
            self.sees(rule, written)
            return
        _, extra = rules.difference(self.subject.read(), self.subject.shown(list(written)))
        if extra:
            raise self.steps.broken(
                rule, "nothing but what was committed", rules.told_difference(extra - extra, extra, written)
            )

    def nothing_new(self, rule: str, written: Sequence[Any]) -> None:
        """Check as `sees` does if extra records are an error; a sink that writes straight through may show more."""
        if self.is_exactly_once:
            self.sees(rule, written)

    def no_leftovers(self) -> None:
        """Check that no data is left that readers do not see."""
        if self.subject.leftovers is not None:
            left = list(self.subject.leftovers())
            if left:
                raise self.steps.broken("leftovers", "nothing", f"{left[:5]}, {len(left)} in all")


class _Kit:
    """The cases; each is a method of the same name."""

    def __init__(
        self, prepare: Callable[[], SinkUnderTest], parallelisms: list[int], points: int, report: ConformanceReport
    ) -> None:
        self._prepare, self._parallelisms, self._places, self.report = prepare, parallelisms, points, report
        subject = prepare()
        self.is_exactly_once = (
            subject.sink.shows_on_commit if subject.exactly_once is None else bool(subject.exactly_once)
        )
        subject.close()

    @contextmanager
    def _writing(self, case: str) -> Iterator[_Writing]:
        subject = self._prepare()
        steps = rules.Steps(type(subject.sink).__name__, rules.SINK_RULES, case)
        writing = _Writing(subject, steps, self.is_exactly_once)
        try:
            yield writing
        finally:
            for run in writing.runs:
                run.abandon()
            self.report.runs += 1
            self.report.steps += steps.count
            subject.close()

    @property
    def _most(self) -> int:
        return max(self._parallelisms)

    # --- the cases ---------------------------------------------------------------------------------------------------

    def undisturbed(self) -> None:
        """Take checkpoints with and without records, one that does not complete, and finish."""
        for parallelism in self._parallelisms:
            with self._writing(f"undisturbed, parallelism {parallelism}") as writing:
                records, run = writing.subject.records, writing.run(parallelism).start()
                run.complete_one()
                writing.nothing_new("empty-checkpoint", [])
                while run.position < len(records) // 2:
                    before = run.position
                    run.write(writing.chunk)
                    run.write(writing.chunk)
                    writing.nothing_new("visible-early", records[:before])
                    checkpoint = run.checkpoint()
                    writing.nothing_new("visible-early", records[:before])
                    self._one_commit(writing, run, checkpoint)
                    writing.sees("complete", records[: run.position])
                    run.complete_one()
                    writing.nothing_new("prepared-once", records[: run.position])
                run.write(writing.chunk)
                run.checkpoint()
                run.write(writing.chunk)
                run.complete(run.checkpoint())
                writing.sees("subsumed", records[: run.position])
                run.write(len(records))
                run.finish()
                writing.sees("complete", records)

    def _one_commit(self, writing: _Writing, run: SinkRun, checkpoint: SinkCheckpoint) -> None:
        count = writing.subject.commits
        before = 0 if count is None else count()
        run.complete(checkpoint)
        if count is not None and run.sink.commits_globally and (commits := count() - before) != 1:
            raise writing.steps.broken("one-commit", "one commit", f"{commits} commits")

    def commit(self) -> None:
        """Commit after the writers are closed: partly, repeatedly, by other processes, and much later."""
        for rule in ("commit-twice", "commit-partly"):
            with self._writing(f"commit, parallelism {self._most}") as writing:
                records = writing.subject.records
                run = writing.run(self._most).start()
                run.write(3 * writing.chunk)
                first = run.checkpoint()
                run.write(writing.chunk)
                run.close()
                writing.sees("close", [])
                written = records[: first.position]
                if rule == "commit-twice":
                    self._commit_again(writing, first.all(), written)
                else:
                    self._commit(writing, first.all()[: len(first.all()) // 2], "commit", 1)
                    self._no_more_than(rule, writing, written)
                    self._commit(writing, first.all(), "recommit", 2, rule)
                    writing.sees(rule, written)
                again = writing.keep(run.after_failure(first)).start()
                again.write(len(records))
                last = again.complete_one()
                again.close()
                writing.sees("restart", records)
                for checkpoint in (first, last):
                    self._commit(writing, checkpoint.all(), "recommit", 7, "commit-twice")
                    if writing.subject.key is None or checkpoint is last:
                        writing.sees("commit-twice", records)

    def _commit_again(self, writing: _Writing, prepared: list[Any], written: Sequence[Any]) -> None:
        self._commit(writing, prepared, "commit", 1, "prepared-lost")
        writing.sees("prepared-lost", written)
        for attempt, method in enumerate(("commit", "recommit", "commit"), start=3):
            self._commit(writing, prepared, method, attempt, "commit-twice")
            writing.sees("commit-twice", written)
        writing.steps.note("commit of nothing, and of the same twice, by one committer")
        with writing.steps.call("commit-twice"):
            committer = writing.committer(6)
            committer.commit([])
            committer.commit(prepared)
            committer.commit(prepared)
            committer.close()
        writing.sees("commit-twice", written)

    def _commit(
        self, writing: _Writing, committables: list[Any], method: str, attempt: int, rule: str = "raises"
    ) -> None:
        writing.steps.note(f"{method} of {len(committables)} committables by another process")
        with writing.steps.call(rule):
            committer = writing.committer(attempt)
            getattr(committer, method)(committables)
            committer.close()

    def _no_more_than(self, rule: str, writing: _Writing, written: Sequence[Any]) -> None:
        actual = writing.subject.read()
        _, extra = rules.difference(actual, written)
        if extra:
            raise writing.steps.broken(
                rule, "some of the records", rules.told_difference(extra - extra, extra, written)
            )

    def close(self) -> None:
        """Fail the job at each step, and close everything, twice."""
        for step in rules.spread(self._places):
            with self._writing(f"close, parallelism {self._most}, at step {step}") as writing:
                if not self._with_deaths(writing, "close", {step}, [self._most], _close_twice):
                    return

    def restart(self) -> None:
        """Kill the job at each step, and again shortly after."""
        for parallelism in dict.fromkeys((min(self._parallelisms), self._most)):
            for step in rules.spread(self._places):
                with self._writing(f"restart, parallelism {parallelism}, killed at step {step}") as writing:
                    if not self._with_deaths(writing, "restart", {step, step + 7}, [parallelism], _leave):
                        break

    def rescale(self) -> None:
        """Do the same as `restart` with a different number of writers each time: first increasing, then decreasing."""
        for parallelisms in (self._parallelisms, self._parallelisms[::-1]):
            for step in rules.spread(self._places):
                with self._writing(f"rescale over {parallelisms}, killed at step {step}") as writing:
                    deaths = {step, step + 15, step + 34}
                    if not self._with_deaths(writing, "rescale", deaths, parallelisms, _leave):
                        break

    def zombie(self) -> None:
        """Keep abandoned writers running beside their successors."""
        for step in rules.spread(self._places):
            with self._writing(f"zombie, parallelism {self._most}, given up at step {step}") as writing:
                if not self._with_deaths(writing, "zombie", {step}, [self._most], SinkRun.live_on):
                    return

    def _with_deaths(
        self,
        writing: _Writing,
        rule: str,
        deaths: set[int],
        parallelisms: list[int],
        after: Callable[[SinkRun], None],
    ) -> bool:
        """Run a job that dies at the given steps and continues from its last checkpoint; return whether it died."""
        records, calls, attempt, died = writing.subject.records, 0, 0, False

        def step() -> None:
            nonlocal calls
            calls += 1
            if calls in deaths:
                raise _Killed

        last: SinkCheckpoint | None = None
        former: SinkRun | None = None
        while True:
            run = writing.run(parallelisms[attempt % len(parallelisms)], last, attempt=attempt, before_step=step)
            try:
                run.start()
                if last is not None:
                    self._sees_restored(rule, writing, records[: last.position])
                run.write(writing.chunk)
                if former is not None:
                    after(former)
                    former = None
                ends = False
                while not ends:
                    run.write(writing.chunk)
                    ends = run.position == len(records)
                    checkpoint = run.checkpoint(ends)
                    run.note("the checkpoint completes")
                    last = checkpoint
                    run.complete(checkpoint)
                run.close()
                break
            except _Killed:
                died, former, attempt = True, run, attempt + 1
                writing.steps.mark("the job fails")
                writing.steps.note("the job fails here")
                if after is _close_twice:
                    after(run)
                    former = None
        writing.sees(rule, records)
        if self.is_exactly_once and writing.subject.leftovers is not None:
            self._end_job(writing)
            writing.sees(rule, records)
            writing.no_leftovers()
        return died

    def _sees_restored(self, rule: str, writing: _Writing, written: Sequence[Any]) -> None:
        if self.is_exactly_once:
            writing.sees(rule, written)
        else:
            writing.sees("nothing-lost", [] if writing.subject.key is not None else written)

    def two_runs(self) -> None:
        """Run each task twice concurrently; only one of the two runs counts, the first or the second."""
        for counts in (0, 1):
            with self._writing(f"two-runs, parallelism {self._most}, run {'ab'[counts]} counts") as writing:
                records, restored = writing.subject.records, None
                while restored is None or restored.position < len(records):
                    attempt = 0 if restored is None else restored.checkpoint_id
                    pair = [writing.run(self._most, restored, attempt=attempt, run=tag) for tag in "ab"]
                    for run in pair:
                        run.start()
                    for share in (2, 1):
                        pair[0].write(writing.chunk * (share if counts else 2))
                        pair[1].write(writing.chunk * (2 if counts else share))
                    checkpoints = [run.checkpoint() for run in pair]
                    pair[1 - counts].close()
                    pair[counts].complete(checkpoints[counts])
                    restored = checkpoints[counts]
                    writing.sees_beside_others("names", records[: restored.position])
                    pair[counts].close()
                    restored = SinkCheckpoint(restored.checkpoint_id, restored.position, restored.states)
                self._end_job(writing)
                writing.sees("names", records)

    def savepoint(self) -> None:
        """Take a savepoint that the job itself never commits, and start a later job from it."""
        with self._writing(f"savepoint, parallelism {self._most}") as writing:
            subject, chunk = writing.subject, writing.chunk
            first = writing.run(self._most).start()
            first.write(chunk)
            completed = first.complete_one()
            first.write(chunk)
            saved = first.savepoint()
            first.write(chunk)
            second = writing.keep(first.after_failure(completed)).start()
            first.abandon()
            while second.position < len(subject.records):
                second.write(2 * chunk)
                second.complete_one()
            second.finish()
            writing.sees("savepoint", subject.records)
            between = subject.records[completed.position : saved.position]
            third = writing.run(self._most, saved, job_id="a later job")
            try:
                third.start()
            except rules.ConformanceError as error:
                if subject.savepoints_outlive_failures or not isinstance(error.__cause__, PenstockError):
                    raise writing.steps.broken(
                        "savepoint", "what the savepoint names is committed", error.seen
                    ) from error
                return
            written = [*subject.records, *between]
            writing.sees("savepoint", written)
            third.write(chunk)
            third.complete_one()
            third.finish()
            writing.sees("savepoint", [*written, *subject.records[saved.position : saved.position + chunk]])
        with self._writing("savepoint that the next checkpoint commits") as writing:
            run = writing.run(self._most).start()
            run.write(writing.chunk)
            saved = run.savepoint()
            run.write(writing.chunk)
            run.complete_one()
            run.finish()
            later = writing.run(1, saved, job_id="a later job").start()
            writing.sees("savepoint", run.subject.records[: run.position])
            later.close()

    def epochs(self) -> None:
        """Run in MICRO_BATCH: new writers for each epoch, some run twice, and a commit before the next epoch begins."""
        with self._writing(f"epochs, parallelism {self._most}") as writing:
            records, restored = writing.subject.records, SinkCheckpoint()
            while restored.position < len(records):
                epoch = restored.checkpoint_id + 1
                known = restored if epoch > 1 else None
                pair = [
                    writing.run(self._most, known, attempt=epoch, run=tag, owes_nothing=True).start() for tag in "ab"
                ]
                for run in pair:
                    run.write(2 * writing.chunk)
                checkpoint = [run.checkpoint() for run in pair][epoch % 2]
                pair[epoch % 2].close()
                writing.sees_beside_others("epochs", records[: restored.position])
                self._commit(writing, checkpoint.all(), "commit", 0)
                writing.sees_beside_others("epochs", records[: checkpoint.position])
                if epoch % 3:
                    pair[1 - epoch % 2].close()
                restored = SinkCheckpoint(epoch, checkpoint.position, checkpoint.states)
            self._end_job(writing)
            writing.sees("epochs", records)
            writing.no_leftovers()

    def batch(self) -> None:
        """Run in BATCH: after all tasks have ended, either everything is committed or nothing."""
        with self._writing(f"batch, parallelism {self._most}") as writing:
            subject = writing.subject
            for attempt, succeeds in enumerate((False, True)):
                run = writing.run(self._most, job_id=f"run-{attempt}")
                host = run.new_host()
                with writing.steps.call("commit-log"):
                    log = run.sink.create_commit_log(host, "job's name")
                    if log is None and not succeeds:
                        continue
                    if log is not None:
                        log.begin()
                run.start()
                run.write(len(subject.records))
                committables = run.checkpoint(end_of_input=True).all()
                run.close()
                writing.sees("commit-log", [])
                with writing.steps.call("commit-log"):
                    if log is not None:
                        log.write(committables)
                    committer = run.sink.create_committer(host)
                    assert committer is not None
                    if succeeds:
                        committer.commit(committables)
                        if log is not None:
                            log.close_commit()
                    elif log is not None:
                        writing.steps.note("half of the output is committed, and then taken back")
                        committer.commit(committables[: len(committables) // 2])
                        log.take_back()
                        writing.sees("commit-log", [])
                    if log is not None:
                        log.end()
                    committer.end_job()
                    committer.close()
            writing.sees("commit-log", subject.records)
            writing.no_leftovers()

    def _end_job(self, writing: _Writing) -> None:
        for run in writing.runs:
            run.abandon()
        writing.steps.note("the job ends")
        with writing.steps.call():
            committer = writing.committer(0)
            committer.end_job()
            committer.close()


def _leave(run: SinkRun) -> None:
    """Leave the run open, because its process was killed."""


def _close_twice(run: SinkRun) -> None:
    """Close everything after a failure of the task, the writers twice."""
    for part in (*run.writers, *run.writers, *run.committers):
        if part is not None:
            with run.steps.call("close"):
                part.close()
