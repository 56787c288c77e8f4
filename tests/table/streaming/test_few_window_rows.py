"""Windows give the same results and count the same late rows, whether kernels take each batch or the rows wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from decimal import Decimal
from functools import partial
from random import Random, SystemRandom
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from tests.state.rocks import CanonicalRocks

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MAX_WATERMARK, Batch
from penstock.sql.data import types
from penstock.sql.data.arrow import to_values
from penstock.sql.data.row_data import FewRows, RowData, RowLayout
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.rows.rows import RowKeys
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.windows import columnar
from penstock.sql.stream.windows.columnar import (
    ColumnSessionAggregateOperator,
    ColumnWindowAggregateOperator,
    ColumnWindows,
)
from penstock.sql.stream.windows.window_aggregate import WindowTime
from penstock.sql.typed import Field
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.testing import OneInputOperatorHarness, operator_harness

BIGINT, TEXT, COUNT = types.BigIntType(), types.VarCharType(9), types.BigIntType(False)
MONEY, FLAG, EDGE = types.DecimalType(10, 2), types.BooleanType(), types.TimestampType(3, False)
#: the columns of a row: two keys, what is aggregated, a FILTER, and the event time
KEY, NAME, VALUE, PRICE, IS_COUNTED, TIME = range(6)
NAMES = [f"c{index}" for index in range(6)]
_VALUE = Field(BIGINT, VALUE, "v")
CALLS = (
    AggregateCall("COUNT", (), COUNT),
    AggregateCall("COUNT", (_VALUE,), COUNT, condition=Field(FLAG, IS_COUNTED, "b")),
    AggregateCall("SUM", (_VALUE,), BIGINT, condition=Field(FLAG, IS_COUNTED, "b")),
    AggregateCall("AVG", (_VALUE,), BIGINT),
    AggregateCall("SUM", (Field(MONEY, PRICE, "d"),), types.DecimalType(38, 2)),
    AggregateCall("MAX", (Field(TEXT, NAME, "s"),), TEXT),
)
DISTINCT = AggregateCall("COUNT", (_VALUE,), COUNT, is_distinct=True)
BERLIN = ZoneInfo("Europe/Berlin")
#: 2021-10-31 01:00 UTC, at which Berlin's clock goes back by an hour
SET_BACK = 1_635_642_000_000
#: kinds and sizes of windows: time goes by in steps of `_STEP_MS`; the last two leave times out or touch
WINDOWS: Final = (
    ("TUMBLE", (4,), 0),
    ("TUMBLE", (3,), 1),
    ("HOP", (2, 6), 0),
    ("HOP", (4, 6), 1),
    ("CUMULATE", (2, 6), 0),
    ("SESSION", (2,), 0),
    ("SESSION", (1,), 0),
    ("HOP", (5, 2), 0),
)
_STEP_MS = 600_000
_HISTORIES: Final = 12
#: the limits of batches of a few rows, and of how many rows wait
FORMS = {"kernels": (0, 1), "few rows": (99, 99), "few and many rows": (2, 5)}

Row = tuple[Any, ...]


class Step(NamedTuple):
    """What happens next: rows, in columns or as tuples; a watermark; a restore; or time goes by."""

    what: str
    value: Any
    as_tuples: bool = False


class Windows:
    """The subtasks of an operator, and what they sent."""

    def __init__(self, operator: Any, key: Sequence[int], kinds: Sequence[types.DataType]) -> None:
        self._operator = operator
        self._row_keys = RowKeys(key)
        self._kinds = kinds
        self._snapshots = 0
        self._watermark: int | None = None
        self._now_ms = 0
        self.sent: list[Row] = []
        self.late = 0
        self._open(1)

    def _open(self, parallelism: int, *snapshots: bytes) -> None:
        numbers = range(parallelism)
        self._harnesses = [OneInputOperatorHarness(self._operator, parallelism, number) for number in numbers]
        for harness in self._harnesses:
            harness.restore(*snapshots)
            harness.open()
            harness.operator.output.collect = self._collect  # type: ignore[method-assign]
            # Processing time is the same, whatever came before.
            harness.advance_processing_time(self._now_ms - harness.clock.now_ms() % _STEP_MS)

    def _collect(self, batch: Batch) -> None:
        assert isinstance(batch, ColumnBatch)
        columns = [to_values(*pair) for pair in zip(batch.columns.columns, self._kinds, strict=True)]
        self.sent += zip(*columns, strict=True)

    def rows(self, batch: ColumnBatch) -> None:
        """A batch, to each subtask the rows of its keys."""
        parallelism = len(self._harnesses)
        groups = [assign_key_group(key, 128) for key in self._row_keys.of(batch.columns)]
        subtasks = np.array([subtask_of_key_group(group, 128, parallelism) for group in groups])
        for number, harness in enumerate(self._harnesses):
            mine = (subtasks == number).nonzero()[0]
            if len(mine):
                harness.operator.process_batch(batch if len(mine) == len(batch) else batch.take(mine))

    def watermark(self, timestamp: int) -> None:
        """Event time goes on."""
        self._watermark = timestamp
        for harness in self._harnesses:
            harness.watermark(timestamp)

    def wait(self, by_ms: int) -> None:
        """Processing time goes on."""
        self._now_ms += by_ms
        for harness in self._harnesses:
            harness.advance_processing_time(by_ms)

    def restore(self, parallelism: int) -> None:
        """Go on from a snapshot."""
        self._snapshots += 1
        self._count_late()
        snapshots = [harness.snapshot(self._snapshots) for harness in self._harnesses]
        self._open(parallelism if self._row_keys.places else 1, *snapshots)
        if self._watermark is not None:
            self.watermark(self._watermark)

    def checkpoint(self) -> None:
        """Take a snapshot that nothing is restored from."""
        self._snapshots += 1
        for harness in self._harnesses:
            harness.snapshot(self._snapshots)

    def _count_late(self) -> None:
        self.late += sum(harness.counters.get(LATE_RECORDS, 0) for harness in self._harnesses)

    def finish(self) -> tuple[list[Row], int]:
        """Everything that was sent, and how many rows were late."""
        self.watermark(MAX_WATERMARK)
        self._count_late()
        return self.sent, self.late


def kinds_of(is_moment: bool) -> list[types.DataType]:
    time = types.LocalZonedTimestampType(3) if is_moment else types.TimestampType(3)
    return [BIGINT, TEXT, BIGINT, MONEY, FLAG, time]


def run(
    form: str, window: tuple[str, tuple[int, ...], int], key: tuple[int, ...], time: WindowTime, steps: Sequence[Step]
) -> tuple[list[list[Row]], int]:
    """Return the rows that were sent at each step, sorted, and the number of late rows."""
    kind, sizes, offset = window
    zone: tzinfo = BERLIN if time.is_moment else UTC
    calls = CALLS if kind == "SESSION" else (*CALLS, DISTINCT)
    row_kinds = kinds_of(time.is_moment)
    results = [*[row_kinds[index] for index in key], EDGE, EDGE, *[call.type for call in calls]]
    names = tuple(f"r{index}" for index in range(len(results)))
    windows = ColumnWindows((*key, -1, -2), time, calls, tuple(results), names, StreamSession(zone))
    sizes_ms = [size * _STEP_MS for size in sizes]
    operator = (
        partial(ColumnSessionAggregateOperator, windows, sizes_ms[0])
        if kind == "SESSION"
        else partial(ColumnWindowAggregateOperator, windows, kind, sizes_ms, offset * _STEP_MS)
    )
    layouts = [RowLayout(NAMES, row_kinds) for _ in range(2)]
    rows_max, waiting_max = FORMS[form]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "FEW_ROWS", rows_max)
        patch.setattr(columnar, "_WAITING_MAX", waiting_max)
        under = Windows(operator, key, results)
        by_step = []
        for number, step in enumerate(steps):
            if step.what == "rows":
                data = RowData(layouts[number % 2], list(step.value))
                under.rows(ColumnBatch(data if step.as_tuples else data.columns))
            else:
                getattr(under, step.what)(*step.value)
            by_step.append(under.sent[:])
            under.sent.clear()
        last, late = under.finish()
    return [sorted(rows, key=repr) for rows in [*by_step, last]], late


#: how far event time goes on, and how far rows are from the watermark, mostly to the edges of windows
ADVANCES: Final = (1, _STEP_MS - 1, _STEP_MS, 2 * _STEP_MS, 9 * _STEP_MS)
DISTANCES: Final = tuple(step * _STEP_MS + more for step in range(-8, 8) for more in (0, 0, 1, 70_000))
VALUES: Final = (
    (None, 0, 1, 2, 7),
    (None, "", "a", "b"),
    (None, 0, 1, 2**40),
    (None, Decimal("1.50"), Decimal("-0.25")),
    (None, False, True),
)


def draw_history(random: Random) -> list[Step]:
    """Batches around the border of the forms. Their rows are near the watermark, some behind it."""
    steps: list[Step] = []
    watermark = SET_BACK - random.randint(0, 12) * _STEP_MS

    def draw_row() -> Row:
        time = None if random.random() < 0.1 else (watermark + random.choice(DISTANCES)) * 1_000_000
        return (*map(random.choice, VALUES), time)

    for _ in range(random.randint(4, 20)):
        what = random.choices(("rows", "watermark", "wait", "restore", "checkpoint"), (10, 4, 1, 1, 1))[0]
        if what == "rows":
            rows = [draw_row() for _ in range(random.choice((1, 1, 1, 2, 3, 6)))]
            steps.append(Step(what, rows, random.random() < 0.7))
        elif what == "watermark":
            watermark += random.choice(ADVANCES)
            steps.append(Step(what, (watermark,)))
        elif what == "wait":
            steps.append(Step(what, (random.choice(ADVANCES),)))
        else:
            steps.append(Step(what, (random.randint(1, 3),) if what == "restore" else ()))
    return steps


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_results_do_not_depend_on_the_sizes_of_batches(
    window: tuple[str, tuple[int, ...], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SystemRandom().getrandbits(48)
    for seed in range(first, first + _HISTORIES):
        random = Random(seed)
        backend = random.choice((HeapKeyedStateBackend, CanonicalRocks))
        monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", backend)
        steps = draw_history(random)
        key = random.choice(((), (KEY,), (KEY, NAME)))
        time = WindowTime(TIME, *random.choice(((False, False), (True, False), (True, False), (True, True))))
        runs = [run(form, window, key, time, steps) for form in FORMS]
        assert runs[1:] == [runs[0]] * 2, f"seed {seed}"


def test_rows_wait_for_others_of_the_same_form() -> None:
    layout, other = (RowLayout(["c0"], [kind]) for kind in (BIGINT, types.IntType()))
    few = FewRows()
    assert few.add(RowData(layout, [(1,), (2,)]))
    assert few.add(RowData(layout, [(None,)]))
    assert not few.add(RowData(other, [(4,)]))
    assert not few.add(RowData(RowLayout(["c0"], [BIGINT]), [(4,)]))
    taken = few.take()
    assert isinstance(taken, RowData)
    assert taken.tuples == [(1,), (2,), (None,)]
    columns = ColumnBatch(RowData(layout, [(5,), (6,)]).columns).data
    assert few.add(columns)
    assert few.add(columns[1:])
    assert not few.add(ColumnBatch(RowData(other, [(7,)]).columns).data)
    assert few.take().columns.column(0).to_pylist() == [5, 6, 6]
    assert not few.rows
