"""The operator of asynchronous calls: order, capacity, snapshots and time-outs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.table.streaming.joined import create_batch

from penstock.base.errors import CallTimeoutError
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.types import IntType
from penstock.sql.models.provider import AsyncPredictor, ModelProvider, Predictions
from penstock.sql.stream.models.predict import AsyncPredictOperator, PredictSettings, PredictSpec, predict_settings
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.typed import Field
from penstock.testing import OneInputOperatorHarness

INT = IntType()


class Tens(AsyncPredictor):
    """Answers n with 10 n after n ms; above 100 with nothing, and an error for a negative number."""

    def __init__(self, asked: list[list[int]]) -> None:
        self._asked = asked
        self._is_open = False

    async def open(self, context: Any) -> None:
        """See `AsyncPredictor`."""
        await asyncio.sleep(0)
        self._is_open = True

    async def predict(self, inputs: pa.RecordBatch) -> Predictions:
        """See `AsyncPredictor`."""
        assert self._is_open
        numbers = inputs.column(0).to_pylist()
        self._asked.append(numbers)
        await asyncio.sleep(numbers[0] / 1000)
        if numbers[0] < 0:
            raise OSError("no answer")
        rows = [index for index, number in enumerate(numbers) if number <= 100]
        return Predictions([pa.array([numbers[row] * 10 for row in rows], pa.int32())], np.array(rows, np.int64))


class TensProvider(ModelProvider):
    """Provides them. `asked`: the numbers of each call."""

    def __init__(self, batch_rows: int = 1) -> None:
        self.batch_rows = batch_rows
        self.asked: list[list[int]] = []

    def async_predictor(self) -> AsyncPredictor:
        """See `ModelProvider`."""
        return Tens(self.asked)


class Predicting:
    """The operator in a harness."""

    def __init__(self, provider: TensProvider, settings: PredictSettings, *snapshots: bytes) -> None:
        spec = PredictSpec(provider, (Field(INT, 0),), ("c0", "c1"), "m")
        self.harness = OneInputOperatorHarness(partial(AsyncPredictOperator, spec, settings, StreamSession()))
        self.harness.restore(*snapshots)
        self.harness.open()
        self._batches: list[ColumnBatch] = []
        self.harness.captured.collect = self._batches.append  # type: ignore[assignment, method-assign]

    def send(self, *numbers: int) -> None:
        """A batch of these numbers."""
        self.harness.operator.process_batch(create_batch((INT,), [("+I", number) for number in numbers]))

    def wait(self, by_ms: int) -> list[tuple[int, int]]:
        """Let time pass; what comes out."""
        self.harness.advance_processing_time(by_ms)
        rows = [tuple(row) for batch in self._batches for row in zip(*batch.columns.to_pydict().values(), strict=True)]
        self._batches.clear()
        return rows


def test_ordered_calls_wait_for_the_ones_before_them() -> None:
    predicting = Predicting(TensProvider(), PredictSettings())
    predicting.send(30, 10, 20)
    assert predicting.wait(25) == []
    assert predicting.wait(10) == [(30, 300), (10, 100), (20, 200)]


def test_unordered_calls_go_out_as_they_are_answered() -> None:
    predicting = Predicting(TensProvider(), PredictSettings(is_ordered=False))
    predicting.send(30, 10, 20)
    assert predicting.wait(25) == [(10, 100), (20, 200)]
    assert predicting.wait(10) == [(30, 300)]


def test_capacity_and_rows_of_a_call() -> None:
    provider = TensProvider(batch_rows=2)
    predicting = Predicting(provider, PredictSettings(capacity=2))
    predicting.send(5, 6, 7, 8, 9)
    assert predicting.wait(0) == []
    assert provider.asked == [[5, 6], [7, 8]]
    assert not predicting.harness.operator.is_available()
    assert predicting.wait(100) == [(5, 50), (6, 60), (7, 70), (8, 80), (9, 90)]
    assert provider.asked == [[5, 6], [7, 8], [9]]


def test_rows_without_a_prediction_are_dropped() -> None:
    predicting = Predicting(TensProvider(batch_rows=10), PredictSettings())
    predicting.send(1, 101, 3)
    assert predicting.wait(10) == [(1, 10), (3, 30)]


def test_calls_without_an_answer_are_in_the_snapshot() -> None:
    provider = TensProvider()
    predicting = Predicting(provider, PredictSettings(capacity=2))
    predicting.send(5, 20, 7)
    assert predicting.wait(10) == [(5, 50)]
    snapshot = predicting.harness.snapshot(1)
    predicting.harness.close()
    restored = Predicting(provider, PredictSettings(capacity=2), snapshot)
    assert restored.wait(100) == [(20, 200), (7, 70)]
    assert provider.asked[-2:] == [[20], [7]]


def test_a_call_that_takes_too_long_fails_the_task() -> None:
    predicting = Predicting(TensProvider(), PredictSettings(timeout_ms=50))
    predicting.send(90)
    with pytest.raises(UserCodeError, match="a call of model m for 1 rows") as error:
        predicting.wait(60)
    assert isinstance(error.value.__cause__, CallTimeoutError)


def test_an_error_fails_the_task() -> None:
    predicting = Predicting(TensProvider(), PredictSettings())
    predicting.send(-1)
    with pytest.raises(UserCodeError, match="a call of model m for 1 rows"):
        predicting.wait(1)


def test_options_of_a_call_take_precedence() -> None:
    session = {
        "table.exec.async-ml-predict.max-concurrent-operations": "3",
        "table.exec.async-ml-predict.timeout": "5 s",
        "table.exec.async-ml-predict.output-mode": "ALLOW_UNORDERED",
    }
    assert predict_settings({}, {}) == PredictSettings(True, 10, 180_000)
    assert predict_settings(session, {}) == PredictSettings(False, 3, 5_000)
    call = {"max-concurrent-operations": "7", "timeout": "1 min", "output-mode": "ordered", "async": "true"}
    assert predict_settings(session, call) == PredictSettings(True, 7, 60_000)
