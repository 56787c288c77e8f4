"""The conformance kit for sources: `check_source` runs a source through every situation that it may meet.

    def numbers():
        return SourceUnderTest(NumberSequenceSource(0, 9), expected=range(10))

    @pytest.mark.parametrize("case", SOURCE_CASES)
    def test_number_sequences(case):
        check_source(numbers, case)

Every case reads the source many times, intervening at a different point each time, and compares the records with the
expected ones. An error names the broken rule and the last steps before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from time import perf_counter
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.codecs.pickling import loads_named
from penstock.runtime.batch.exchange import enumerate_splits
from penstock.runtime.connector import Boundedness, InputStatus, Source
from penstock.runtime.records import Batch
from penstock.testing.connectors import rules
from penstock.testing.connectors.source_run import SourceRun, SourceSnapshot
from penstock.testing.operator_harness import Record

#: The kit's test cases; each can be passed to `check_source`.
SOURCE_CASES: Final = (
    "undisturbed",
    "dealt-ahead",
    "restart",
    "restart-often",
    "late-barrier",
    "rescale",
    "reader-alone",
    "replay",
    "pause",
    "close",
)

#: The maximum number of restarts of a run; without a limit, a long run would never end.
RESTARTS_MAX: Final = 1_000


def _nothing() -> None:
    """Do nothing."""


@dataclass
class SourceUnderTest:
    """A source, and the records expected from it.

    Args:
        source: the source, reading from a system in its initial state.
        expected: the expected values, in any order; `Record`s where timestamps matter.
        extend: changes to the system, applied one at a time whenever the source has nothing more to read.
        order_of: extracts the part of a value that is ordered, such as its partition; None when no order is promised.
        result: maps the values read to the ones to compare with `expected`; by default they are compared directly. For
            a changelog it may compute the rows.
        real_time: whether the source waits for a server.
        silence_max: the number of consecutive poll rounds without records before the kit gives up.
        restarts_lose: whether a restart may lose records, as in a source that is not replayable.
        close: called after each use.
    """

    source: Source[Any, Any]
    expected: Sequence[Any]
    extend: Sequence[Callable[[], None]] = ()
    order_of: Callable[[Any], Any] | None = None
    result: Callable[[list[Any]], Sequence[Any]] = list
    real_time: bool = False
    silence_max: int = 200
    restarts_lose: bool = False
    close: Callable[[], None] = _nothing


@dataclass
class ConformanceReport:
    """The number of runs and steps, and remarks that are not errors."""

    runs: int = 0
    steps: int = 0
    #: for example slow polls
    remarks: list[str] = field(default_factory=list)


def check_source(
    prepare: Callable[[], SourceUnderTest],
    *cases: str,
    parallelisms: Sequence[int] = (1, 2, 3),
    batch_sizes: Sequence[int] = (1, 3, 1000),
    places: int = 25,
    stopwatch: Callable[[], float] = perf_counter,
) -> ConformanceReport:
    """Run a source through the cases of the kit.

    Args:
        prepare: creates the source on a fresh system; called for each run.
        *cases: some of `SOURCE_CASES`; all of them by default.
        parallelisms: the numbers of readers, as far as the source allows.
        batch_sizes: the numbers of records that a poll asks for.
        places: the number of points in a run, from its first step to its last, at which the kit intervenes.
        stopwatch: returns seconds. A slow poll causes a remark, not an error.

    Returns:
        the number of runs and steps, and remarks.

    Raises:
        ConformanceError: if the source breaks a rule.
    """
    rules.check_names(cases, SOURCE_CASES)
    report = ConformanceReport()
    limit = prepare_limit(prepare)
    fitting = [p for p in parallelisms if limit is None or p <= limit] or [1]
    kit = _Kit(prepare, fitting, list(batch_sizes), places, stopwatch, report)
    for case in cases or SOURCE_CASES:
        getattr(kit, case.replace("-", "_"))()
    return report


def prepare_limit(prepare: Callable[[], SourceUnderTest]) -> int | None:
    """Return the maximum parallelism that the source allows."""
    subject = prepare()
    try:
        return subject.source.max_parallelism()
    finally:
        subject.close()


class _Reading:
    """One run of the source under test, which continues until all expected records have arrived."""

    def __init__(self, subject: SourceUnderTest, run: SourceRun, batch_size: int) -> None:
        self.subject, self.run, self.batch_size = subject, run, batch_size
        self.is_bounded = subject.source.boundedness is Boundedness.BOUNDED
        self._extend = list(subject.extend)
        self._with_times = any(isinstance(value, Record) for value in subject.expected)
        self.last: Batch | InputStatus | None = None

    def step(self) -> Batch | InputStatus | None:
        """Make one call of the connector."""
        run = self.run
        if self._extend and run.silent_rounds >= 2:
            self._extend.pop(0)()
            run.silent_rounds = 0
        with run.steps.call():
            try:
                self.last = run.advance(self.batch_size)
            except Exception:
                if run.master.was_late:
                    raise run.steps.broken(
                        "late-split", "no split after signal_no_more_splits", "a split was assigned"
                    ) from None
                raise
        return self.last

    def go(self, steps: int) -> bool:
        """Make `steps` calls; return whether the source has then been read to its end."""
        for _ in range(steps):
            if self.is_over():
                break
            self.step()
        return self.is_over()

    def is_over(self) -> bool:
        """Return whether the source has ended, or will not return any more records."""
        run = self.run
        if len(run.ended) == run.parallelism:
            return True
        if self._extend or run.silent_rounds < 2:
            return False
        if run.silent_rounds > self.subject.silence_max:
            return True
        if self.is_bounded:
            return False
        missing, extra = rules.difference(self.result, self.subject.expected)
        return not missing and not extra

    @property
    def result(self) -> Sequence[Any]:
        """The values read so far, mapped by the subject's `result`."""
        subject, arrived = self.subject, self.run.arrived
        if self._with_times:
            return subject.result([Record(value, timestamp) for _, value, timestamp in arrived])
        return subject.result([value for _, value, _ in arrived])

    def read_on(self, rule: str) -> None:
        """Read to the end; any deviation then breaks the rule."""
        while not self.is_over():
            self.step()
        self.check(rule)

    def check(self, rule: str) -> None:
        """Check that every record was read once, in order."""
        subject, run, result = self.subject, self.run, self.result
        missing, extra = rules.difference(result, subject.expected)
        if subject.restarts_lose and rule != "complete":
            missing.clear()
        if missing or extra:
            count = len(subject.expected)
            summary = f"{len(result)} records; {rules.told_difference(missing, extra, subject.expected)}"
            raise run.steps.broken(rule, f"{count} records, each once", summary)
        if subject.order_of is not None and not subject.restarts_lose:
            wrong = rules.out_of_order(result, subject.expected, subject.order_of)
            if wrong is not None:
                raise run.steps.broken("order", "the order of the split", wrong)
        if self.is_bounded and len(run.ended) < run.parallelism:
            waiting = sorted(set(range(run.parallelism)) - run.ended)
            raise run.steps.broken(
                "end" if rule == "complete" else rule, "END_OF_INPUT of every reader", f"subtasks {waiting} do not end"
            )


class _Kit:
    """The cases; each is a method of the same name."""

    def __init__(
        self,
        prepare: Callable[[], SourceUnderTest],
        parallelisms: list[int],
        batch_sizes: list[int],
        points: int,
        stopwatch: Callable[[], float],
        report: ConformanceReport,
    ) -> None:
        self._prepare, self._parallelisms, self._batch_sizes = prepare, parallelisms, batch_sizes
        self._places, self._stopwatch, self._report = points, stopwatch, report

    @contextmanager
    def _reading(self, case: str, parallelism: int, batch_size: int, patience: int = 0) -> Iterator[_Reading]:
        subject = self._prepare()
        text = f"{case}, parallelism {parallelism}, batches of {batch_size}"
        text += f", {patience} polls ahead of each message" if patience else ""
        run: SourceRun | None = None
        try:
            run = SourceRun(
                subject.source,
                parallelism,
                real_time=subject.real_time,
                stopwatch=self._stopwatch,
                case=text,
                patience=patience,
            )
            yield _Reading(subject, run, batch_size)
        finally:
            if run is not None:
                run.close_if_open()
                self._report.runs += 1
                self._report.steps += run.steps.count
                self._report.remarks += [f"{step}: took {took_s:.3f} s" for step, took_s in run.slow_polls]
            subject.close()

    def _ways(self) -> Iterator[tuple[int, int]]:
        """Iterate over pairs of parallelism and batch size, with each value of both at least once."""
        for index in range(max(len(self._parallelisms), len(self._batch_sizes))):
            yield (
                self._parallelisms[index % len(self._parallelisms)],
                self._batch_sizes[index % len(self._batch_sizes)],
            )

    def _small_ways(self) -> Iterator[tuple[int, int]]:
        """Iterate over pairs with small batches, for many steps: with the fewest readers and with the most."""
        small = sorted(self._batch_sizes)[: 2 if len(self._batch_sizes) > 1 else 1]
        for parallelism in dict.fromkeys((min(self._parallelisms), max(self._parallelisms))):
            yield parallelism, small[-1]

    def _each_place(self, case: str, parallelism: int, batch_size: int) -> Iterator[_Reading]:
        """Iterate over runs that have advanced by 0, 1, 2 steps and so on, then increasingly far apart."""
        for step_count in (0, *rules.spread(self._places)):
            with self._reading(case, parallelism, batch_size) as reading:
                is_last = reading.go(step_count)
                yield reading
            if is_last:
                return

    # --- the cases ---------------------------------------------------------------------------------------------------

    def undisturbed(self) -> None:
        """Read to the end."""
        for turn, (parallelism, batch_size) in enumerate(self._ways()):
            with self._reading("undisturbed", parallelism, batch_size, 2 * parallelism * (turn % 2)) as reading:
                reading.read_on("complete")
                run = reading.run
                for index in sorted(run.ended):
                    left = run.readers[index].snapshot_state(1)
                    if left:
                        raise run.steps.broken("finished-split", "no split at the end", f"{left}")

    def dealt_ahead(self) -> None:
        """Assign all splits before the readers start."""
        for parallelism, batch_size in self._ways():
            with self._reading("dealt-ahead", parallelism, batch_size) as reading:
                if not reading.is_bounded:
                    return
                run = reading.run
                run.close()
                with run.steps.call("dealt-ahead"):
                    dealt = enumerate_splits(run.source, parallelism)
                description = "a split"
                run.begin_dealt([[loads_named(data, description) for data in splits] for splits in dealt])
                reading.read_on("dealt-ahead")

    def restart(self) -> None:
        """Restart everything from a snapshot, after each step of a run."""
        for parallelism, batch_size in self._small_ways():
            before = -1
            for step_count in (0, *rules.spread(self._places)):
                try:
                    is_last = self._run_with_restart(parallelism, batch_size, step_count)
                except rules.ConformanceError:
                    # The first place that fails is the most informative.
                    for earlier in range(before + 1, step_count):
                        self._run_with_restart(parallelism, batch_size, earlier)
                    raise
                if is_last:
                    break
                before = step_count

    def _run_with_restart(self, parallelism: int, batch_size: int, step_count: int) -> bool:
        """Restart everything after `step_count` steps and read to the end; return whether the run had ended by then."""
        with self._reading("restart", parallelism, batch_size) as reading:
            is_last = reading.go(step_count)
            rule = "position" if isinstance(reading.last, Batch) else "enumerator-state"
            reading.run.steps.mark("everything begins again from a snapshot")
            with reading.run.steps.call(rule):
                reading.run.restart()
            reading.read_on(rule)
        return is_last

    def restart_often(self) -> None:
        """Restart everything after every batch and every split."""
        self._often("restart-often", "position", late_barrier=False)

    def late_barrier(self) -> None:
        """Do the same as `restart_often`, while readers continue between the enumerator's snapshot and their own."""
        self._often("late-barrier", "late-barrier", late_barrier=True)

    def _often(self, case: str, rule: str, late_barrier: bool) -> None:
        for parallelism, batch_size in self._ways():
            with self._reading(case, parallelism, batch_size) as reading:
                run, restarts = reading.run, 0
                while not reading.is_over():
                    outcome = reading.step()
                    is_split = outcome is None and "gets the split" in run.steps.lines[-1]
                    if (isinstance(outcome, Batch) or is_split) and restarts < RESTARTS_MAX:
                        restarts += 1
                        run.steps.mark("everything begins again, the last time")
                        with run.steps.call(rule):
                            run.restart(run.snapshot(late_barrier, batch_size))
                reading.check(rule)

    def rescale(self) -> None:
        """Move splits to other readers, and change the number of readers, repeatedly."""
        numbers = self._parallelisms
        for start in range(len(numbers)):
            with self._reading("rescale", numbers[start], min(self._batch_sizes)) as reading:
                turn = start

                def change(run: SourceRun) -> None:
                    nonlocal turn
                    turn += 1
                    run.restart(run.snapshot(), numbers[turn % len(numbers)])

                self._change_readers(reading, change)
            if len(numbers) == 1:
                return

    def _change_readers(self, reading: _Reading, treat: Callable[[SourceRun], None]) -> None:
        """Change the readers after every third batch, so that the source makes progress although its splits move."""
        batches = 0
        order_of, reading.subject.order_of = reading.subject.order_of, None
        while not reading.is_over():
            if isinstance(reading.step(), Batch):
                batches += 1
                if batches % 3 == 0 and batches < 3 * RESTARTS_MAX:
                    reading.run.steps.mark("readers change, the last time")
                    with reading.run.steps.call("rescale"):
                        treat(reading.run)
        reading.check("rescale")
        reading.subject.order_of = order_of

    def reader_alone(self) -> None:
        """Restart a single reader after each step, from scratch or from a snapshot taken some steps before.

        Then the source continues, or everything restarts from a snapshot taken before the reader has asked for a split:
        the enumerator's state has to hold the splits that came back.
        """
        for parallelism, batch_size in self._small_ways():
            for with_snapshot, begins_again in product((False, True), repeat=2):
                for reading in self._each_place("reader-alone", parallelism, batch_size):
                    if not reading.subject.source.restarts_by_reader:
                        return
                    self._one_reader(reading, with_snapshot, begins_again)

    def _one_reader(self, reading: _Reading, with_snapshot: bool, begins_again: bool) -> None:
        run = reading.run
        snapshot: SourceSnapshot | None = None
        if with_snapshot:
            with run.steps.call():
                snapshot = run.snapshot()
                run.complete(snapshot)
            for _ in range(4):
                if not reading.is_over():
                    reading.step()
        index = run.steps.count % run.parallelism
        run.steps.mark(f"the reader of subtask {index} begins again alone")
        with run.steps.call("splits-back"):
            run.restart_reader(index, snapshot)
        if begins_again:
            run.steps.mark("everything begins again from a snapshot, before the reader asks for a split")
            with run.steps.call("splits-back"):
                run.restart()
        order_of, reading.subject.order_of = reading.subject.order_of, None
        reading.read_on("splits-back")
        reading.subject.order_of = order_of

    def replay(self) -> None:
        """Check that the source replays the same records from each of several snapshots, whatever it has read since."""
        parallelism, batch_size = max(self._parallelisms), min(self._batch_sizes)
        for reading in self._each_place("replay", parallelism, batch_size):
            if not reading.subject.source.replayable:
                return
            run = reading.run
            run.steps.mark("a snapshot is taken")
            with run.steps.call():
                snapshot = run.snapshot()
            reading.read_on("replay")
            for rule, again in (("replay", snapshot), ("snapshot-alias", snapshot.pickled_late())):
                try:
                    with run.steps.call(rule):
                        run.restart(again)
                    reading.read_on(rule)
                except rules.ConformanceError as error:
                    if rule == "replay":
                        raise
                    raise run.steps.broken(rule, error.expected, error.seen) from error

    def pause(self) -> None:
        """Pause and resume splits one by one, as watermark alignment does."""
        for parallelism, batch_size in self._small_ways():
            with self._reading("pause", parallelism, batch_size) as reading:
                run, turn = reading.run, 0
                while not reading.is_over():
                    turn += 1
                    try:
                        with run.steps.call("paused", UnsupportedError):
                            run.pause(turn)
                    except UnsupportedError as error:
                        self._report.remarks.append(str(error))
                        return
                    for _ in range(3):
                        if not reading.is_over():
                            reading.step()
                reading.check("paused")

    def close(self) -> None:
        """Close everything twice after each step, then continue from a snapshot."""
        parallelism, batch_size = max(self._parallelisms), sorted(self._batch_sizes)[len(self._batch_sizes) // 2]
        for reading in self._each_place("close", parallelism, batch_size):
            run = reading.run
            run.steps.mark("everything is closed")
            with run.steps.call("close"):
                snapshot = run.snapshot()
                run.make_and_close()
                run.close()
                run.close()
                run.finish_late_work()
                run.restart(snapshot)
            reading.read_on("close")
