"""Stateless operators: map, filter, flat map, and assigning timestamps and watermarks.

`run_pass` runs successive maps and filters in one pass over a batch. Alone, each of them would make a list of its
results, which lives until the last one is done. In one pass a record goes through all of them before the next record,
so it is still in the processor's cache, and dropped records are in no list. The pass is the loop that one would write
by hand: a Python function with one line for each operator. It is compiled once for each sequence of kinds.

`HandOverOperator` is the end of a stream that passes its records to the task's driver, such as the rows of a data
frame.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from itertools import compress, repeat
from types import CodeType, GeneratorType
from typing import Any, ClassVar, Final

from penstock.base.errors import UnsupportedError
from penstock.base.types import Row
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.runtime.operators.base import FunctionOperator, Output, StreamOperator, UserCodeError, call_all
from penstock.runtime.operators.emitting import NO_VALUES, check_items, wrong_value
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.results import Results, holds_objects, with_copies
from penstock.runtime.operators.watermarks import AssignerError, WatermarkGenerator
from penstock.runtime.records import MAX_WATERMARK, Batch

MAP: Final = "map"
FILTER: Final = "filter"
#: The line of the first operator in the code of a pass.
_FIRST_LINE: Final = 3


class FusedError(Exception):
    """A function of a pass raised. Carries its place in the pass and the record; the cause is the error raised."""

    def __init__(self, index: int, record: Any) -> None:
        super().__init__(index, record)
        self.place = index
        self.record = record


def run_pass(
    kinds: tuple[str, ...], functions: tuple[Callable[[Any], Any], ...], values: list[Any], times: list[int] | None
) -> tuple[list[Any], list[int] | None]:
    """Run the operators on a batch; returns the results, with the timestamps of the records that they came from.

    Raises:
        FusedError: if a function raises.
    """
    results: list[Any] = []
    kept_times: list[int] | None = None
    run = _make(kinds, times is not None)
    try:
        if times is None:
            run(values, results.append, *functions)
        else:
            kept_times = []
            run(values, times, results.append, kept_times.append, *functions)
    except Exception as error:
        raise _told(error, run.__code__) from error
    return results, kept_times


@cache
def _make(kinds: tuple[str, ...], is_timed: bool) -> Callable[..., None]:
    """Compile the pass for a sequence of kinds: one line per function, so that the line shows which one has raised."""
    names = [f"f{i}" for i in range(len(kinds))]
    extra, times = ("times, ", "add_time, ") if is_timed else ("", "")
    lines = [f"def run(values, {extra}add, {times}{', '.join(names)}):"]
    lines.append("    for v, t in zip(values, times):" if is_timed else "    for v in values:")
    for index, kind in enumerate(kinds):
        lines.append(f"        v = f{index}(v)" if kind == MAP else f"        if not f{index}(v): continue")
    lines.append("        add(v)")
    if is_timed:
        lines.append("        add_time(t)")
    scope: dict[str, Any] = {}
    # The file name lies within the package, so that tracebacks of user functions leave it out.
    exec(compile("\n".join(lines), f"{__file__}<{' + '.join(kinds)}>", "exec"), scope)
    run: Callable[..., None] = scope["run"]
    return run


def _told(error: BaseException, code: CodeType) -> BaseException:
    """Return the error with the function's place, from the traceback: the pass itself records nothing as it runs."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is code:
            return FusedError(trace.tb_lineno - _FIRST_LINE, trace.tb_frame.f_locals["v"])
        trace = trace.tb_next
    return error


def method(function: Any, name: str) -> Any:
    """Return `function.name`, or the function itself if it is a plain callable."""
    return getattr(function, name, function)


class PassOnOperator(StreamOperator):
    """Passes records on without any change: a place in the plan."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Pass the records on."""
        self.output.collect(batch)


class RecordOperator(FunctionOperator):
    """A map or a filter: calls its function with each record, and with nothing else.

    The first of several successive ones does the work of all in one pass over a batch.
    """

    kind: ClassVar[str]
    #: the next operator, if its work is done here
    _behind: RecordOperator | None = None
    #: this operator and the ones fused with it
    _run: tuple[RecordOperator, ...] = ()

    def open(self) -> None:
        """Open the function."""
        super().open()
        self.call: Callable[[Any], Any] = method(self.function, self.kind)
        self.code = getattr(self.call, "__code__", None)

    def fuse(self, behind: StreamOperator) -> None:
        """Take over the work of the next operator if it is a map or a filter."""
        if isinstance(behind, RecordOperator):
            self._behind = behind

    def at_work(self, codes: Collection[CodeType]) -> OperatorContext:
        """Return the context of the operator whose function runs."""
        for operator in self._run:
            if operator.code in codes:
                return operator.context
        return self.context

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the function with every record."""
        if self._behind is None:
            self.process_alone(batch)
        else:
            self._process_fused(batch)

    def check_value(self, records: list[Any], results: list[Any]) -> None:
        """Raise if the function returned a generator; checks only a batch's last record, at next to no cost."""
        if results and type(results[-1]) in NO_VALUES:
            raise self.failed(records[-1]) from wrong_value(results[-1], f"{self.kind}()")

    def process_alone(self, batch: Batch) -> None:
        """Call the function with every record, and emit the results."""
        raise NotImplementedError

    def _process_fused(self, batch: Batch) -> None:
        if not self._run:
            run: list[RecordOperator] = [self]
            while (behind := run[-1]._behind) is not None:
                run.append(behind)
            self._run = tuple(run)
            self._kinds = tuple(operator.kind for operator in run)
            self._calls = tuple(operator.call for operator in run)
        try:
            results, times = run_pass(self._kinds, self._calls, batch.values, batch.timestamps)
        except FusedError as error:
            if error.place and type(error.record) in NO_VALUES:
                maker = self._run[error.place - 1]
                raise maker.failed(None) from wrong_value(error.record, f"{maker.kind}()")
            raise self._run[error.place].failed(error.record) from error.__cause__
        self._count_fused(len(batch), len(results))
        if results:
            if type(results[-1]) in NO_VALUES:
                raise self._run[-1].failed(None) from wrong_value(results[-1], "map()")
            self._run[-1].output.collect(Batch(results, times))

    def _count_fused(self, taken: int, left: int) -> None:
        """Count the records that each operator but the last passed on: all until the first filter, then the rest.

        The count between two filters is too low, because nothing counts there.
        """
        handed = taken
        for operator in self._run[:-1]:
            if operator.kind == FILTER:
                handed = left
            operator.context.fused_records += handed


class MapOperator(RecordOperator):
    """One record in, one record out."""

    kind = MAP

    def open(self) -> None:
        """Open the function."""
        super().open()
        if holds_objects(self.call):
            self.call = with_copies(self.call)

    def process_alone(self, batch: Batch) -> None:
        """Map every record."""
        results: list[Any] = []
        try:
            call_all(self.call, batch.values, results)
        except Exception as error:
            raise self.failed(batch.values[len(results)]) from error
        self.check_value(batch.values, results)
        self.output.collect(Batch(results, batch.timestamps))


class FilterOperator(RecordOperator):
    """Keeps the records that satisfy the function."""

    kind = FILTER

    def process_alone(self, batch: Batch) -> None:
        """Test every record."""
        keep: list[Any] = []
        try:
            call_all(self.call, batch.values, keep)
        except Exception as error:
            raise self.failed(batch.values[len(keep)]) from error
        self.check_value(batch.values, keep)
        values = list(compress(batch.values, keep))
        if values:
            times = batch.timestamps
            self.output.collect(Batch(values, None if times is None else list(compress(times, keep))))


class FlatMapOperator(FunctionOperator):
    """One record in, any number out."""

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._flat_map = method(self.function, "flat_map")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Expand every record; each result has its record's timestamp."""
        flat_map, timestamps, results = self._flat_map, batch.timestamps, Results()
        value: Any = None
        try:
            for value, timestamp in zip(batch.values, timestamps or repeat(None)):  # noqa: B905 - repeat has no end
                expanded = flat_map(value)
                if expanded is None:
                    continue
                if expanded.__class__ is not GeneratorType and expanded.__class__ is not list:
                    expanded = check_items(expanded, flat_map)
                results.take(expanded)
                if timestamp is not None:
                    results.add_times(timestamp)
        except Exception as error:
            raise self.failed(value) from error
        results.emit(self.output, timestamps is not None)


class TimestampsAndWatermarksOperator(StreamOperator):
    """Assigns timestamps and makes watermarks in the middle of a stream; watermarks from upstream end here (C2)."""

    makes_watermarks = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        if strategy.alignment is not None:
            raise UnsupportedError("watermark alignment works only in sources: pass the strategy to from_source")
        self._strategy = strategy
        self._is_idle = False
        self._periodic_at_ms: int | None = None
        self._has_ended = False
        #: whether a record has arrived since the operator was opened
        self.has_records = False

    @property
    def tracks_idleness(self) -> bool:
        """Whether the strategy tracks idleness."""
        return self._generator.tracks_idleness

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Create the generator, here because errors of its factory need the operator's name."""
        super().setup(context, output)
        try:
            self._generator = WatermarkGenerator(self._strategy)
        except AssignerError as error:
            raise UserCodeError(context.operator_name, error.record, error.what) from error.__cause__

    def open(self) -> None:
        """Start the clocks: a stream without any record becomes idle as well, counted from now."""
        now = self.context.now_ms()
        if self._generator.tracks_idleness:
            self._generator.saw_records(now)
        if self._generator.is_periodic and self.context.auto_watermark_interval_ms and not self.context.is_batch:
            self._periodic_at_ms = now + self.context.auto_watermark_interval_ms

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Assign timestamps, emit records, and advance watermarks."""
        self.has_records = True
        generator = self._generator
        now = self.context.now_ms()
        if generator.tracks_idleness:
            generator.saw_records(now)
            self._emit_time(None)
        try:
            for part, watermark in generator.follow(generator.assign(batch, now)):
                self.output.collect(part)
                self._emit_time(watermark)
        except AssignerError as error:
            raise UserCodeError(self.context.operator_name, error.record, error.what) from error.__cause__

    def process_watermark(self, timestamp: int) -> None:
        """Pass on only the end of time."""
        if timestamp == MAX_WATERMARK:
            self._has_ended, self._periodic_at_ms = True, None
            if self._is_idle:
                self.output.emit_status(False)
                self._is_idle = False
            self.output.emit_watermark(timestamp)

    def process_status(self, idle: bool) -> None:
        """Ignore upstream idleness, because it is decided here."""

    def next_timer_ms(self) -> int | None:
        """Return when the stream becomes idle or the generator is due; None for neither."""
        times = [t for t in (self._generator.idle_deadline_ms(), self._periodic_at_ms) if t is not None]
        return min(times) if times else None

    def on_processing_time(self, now_ms: int) -> None:
        """Become idle if no record has come for long enough; query the generator."""
        self._generator.check_idle(now_ms)
        self._emit_time(None)
        if self._periodic_at_ms is not None and now_ms >= self._periodic_at_ms:
            self._periodic_at_ms = now_ms + self.context.auto_watermark_interval_ms
            try:
                watermark = self._generator.on_periodic(now_ms)
            except AssignerError as error:
                raise UserCodeError(self.context.operator_name, error.record, error.what) from error.__cause__
            self._emit_time(watermark)

    def _emit_time(self, watermark: int | None) -> None:
        """Emit a watermark, preceded by a change to active or followed by a change to idle."""
        is_idle = self._generator.idle
        if self._is_idle and not is_idle:
            self.output.emit_status(False)
        if watermark is not None and not self._has_ended:
            self.output.emit_watermark(watermark)
        if is_idle and not self._is_idle and not self._has_ended:
            self.output.emit_status(True)
        self._is_idle = is_idle


class Projection:
    """A map function that keeps some fields: of tuples and lists as a tuple, of rows as a row with their names."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def __call__(self, record: Any) -> Any:
        """Return the record with only these fields, in this order."""
        chosen = [record[index] for index in self._indexes]
        if not isinstance(record, Row):
            return tuple(chosen)
        row = Row(*chosen)
        names = record._fields
        if names is not None:
            row.set_field_names([names[index] for index in self._indexes])
        row.set_row_kind(record.get_row_kind())
        return row


class HandOverOperator(StreamOperator):
    """Keeps batches until `take` is called. For batch execution only: it adds nothing to a snapshot."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep the batch."""
        self._batches.append(batch)

    def take(self) -> list[Batch]:
        """Remove and return the batches since the last call."""
        batches, self._batches = self._batches, []
        return batches
