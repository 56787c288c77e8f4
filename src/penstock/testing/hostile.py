"""The hostile run: checks that an operator's output depends on its input alone, whatever else is done to it.

The same input is run through the operator in many ways, in batches of one record, of two, and so on. The operator is
left alone, or snapshotted between every two inputs, or replaced between every two inputs by a fresh instance restored
from the snapshot. All runs must emit the same records with the same timestamps, in the same order.

Each instance is created from a pickled copy of the factory, which exposes functions that keep in `self` what belongs in
state. As after a real recovery, a fresh instance receives the watermark again before its next record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import cloudpickle

from penstock.base.errors import WrongTypeError
from penstock.base.output_tag import OutputTag
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Watermark
from penstock.testing.operator_harness import OneInputOperatorHarness, ProcessingTime, Record, VirtualClock

BATCH_SIZES: Final = (1, 2, 3, 1000)
LEAVE, SNAPSHOT, REPLACE = "left alone", "snapshotted", "snapshotted and replaced"

Outputs: TypeAlias = dict[str | None, list[Record]]
_Input: TypeAlias = list[Record] | Watermark | ProcessingTime


def run_hostile(
    operator_factory: Callable[[], StreamOperator],
    inputs: Sequence[object],
    expected: Sequence[Any],
    expected_sides: Mapping[OutputTag, Sequence[Any]] | None = None,
    *,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    end: bool = True,
    **arguments: Any,
) -> None:
    """Run an operator in every hostile way and compare its output.

    Args:
        operator_factory: creates the operator; is pickled.
        inputs: records, watermarks, and advances of processing time.
        expected: the main output, in order: values, or `Record`s where timestamps matter.
        expected_sides: side outputs, in the same form.
        batch_sizes: the maximum sizes of the batches into which adjacent records are grouped.
        end: whether the input ends (MAX_WATERMARK, end of input, finish) after the last element.
        **arguments: arguments of `OneInputOperatorHarness`.

    Raises:
        AssertionError: if the output differs; the message names the run.

    Examples:
        >>> from penstock.testing import Record, operator_factory_for, run_hostile
        >>> run_hostile(operator_factory_for(str.upper), [Record("tea", 1), Record("milk", 2)], ["TEA", "MILK"])
    """
    expected_by_tag: dict[str | None, Sequence[Any]] = {None: expected}
    expected_by_tag.update({tag.tag_id: values for tag, values in (expected_sides or {}).items()})
    pickled = cloudpickle.dumps(operator_factory)
    reference: Outputs | None = None
    for treatment in (LEAVE, SNAPSHOT, REPLACE):
        for batch_size in batch_sizes:
            way = f"in batches of {batch_size}, {treatment} between every two"
            run = _Run(pickled, treatment, arguments)
            outputs = run.run(list(_batches(inputs, batch_size)), end)
            for tag, values in expected_by_tag.items():
                _compare(outputs.get(tag, []), values, tag, way)
            if reference is None:
                reference = outputs
            assert outputs == reference, f"{way}: {outputs} instead of {reference}"


def _compare(got: list[Record], wanted: Sequence[Any], tag: str | None, way: str) -> None:
    actual = [r if isinstance(w, Record) else r.value for r, w in zip(got, wanted, strict=False)]
    actual += got[len(actual) :]
    where = "main output" if tag is None else f"side output {tag!r}"
    assert actual == list(wanted), f"{where}, {way}: {actual} instead of {list(wanted)}"


def _batches(inputs: Sequence[object], batch_size: int) -> Iterator[_Input]:
    """Group adjacent records that can share a batch, up to `batch_size` at a time; yield other elements unchanged."""
    waiting: list[Record] = []
    for element in inputs:
        if waiting and (
            len(waiting) == batch_size
            or not isinstance(element, Record)
            or (element.timestamp is None) != (waiting[0].timestamp is None)
        ):
            yield waiting
            waiting = []
        if isinstance(element, Record):
            waiting.append(element)
        elif isinstance(element, Watermark | ProcessingTime):
            yield element
        else:
            raise WrongTypeError(f"not an element of a stream: {element!r}")
    if waiting:
        yield waiting


class _Run:
    def __init__(self, pickled_factory: bytes, treatment: str, arguments: dict[str, Any]) -> None:
        self._pickled = pickled_factory
        self._treatment = treatment
        self._arguments = arguments
        self._clock = VirtualClock()
        self._outputs: Outputs = {None: []}
        self._checkpoint_id = 0
        self._harness = self._fresh()
        self._harness.open()

    def _fresh(self) -> OneInputOperatorHarness:
        factory = cloudpickle.loads(self._pickled)
        return OneInputOperatorHarness(factory, clock=self._clock, attempt=self._checkpoint_id, **self._arguments)

    def run(self, inputs: list[_Input], end: bool) -> Outputs:
        for element in inputs:
            self._feed(element)
            self._treat()
        if end:
            self._harness.end()
        self._collect()
        self._harness.close()
        return self._outputs

    def _feed(self, element: _Input) -> None:
        harness = self._harness
        if isinstance(element, Watermark | ProcessingTime):
            harness.feed(element)
        elif element[0].timestamp is None:
            harness.process_batch([r.value for r in element])
        else:
            harness.process_batch([r.value for r in element], [r.timestamp or 0 for r in element])

    def _treat(self) -> None:
        if self._treatment == LEAVE:
            return
        self._checkpoint_id += 1
        snapshot = self._harness.snapshot(self._checkpoint_id)
        if self._treatment == SNAPSHOT:
            self._harness.notify_complete(self._checkpoint_id)
            return
        self._collect()
        self._harness.close()
        self._harness = self._fresh()
        self._harness.restore(snapshot)
        self._harness.open()

    def _collect(self) -> None:
        captured = self._harness.captured
        self._outputs.setdefault(None, []).extend(captured.records)
        for tag, records in captured.sides.items():
            self._outputs.setdefault(tag, []).extend(records)
