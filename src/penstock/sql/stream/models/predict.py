"""ML_PREDICT in streams: `MLPredictRule`, and an operator for each kind of predictor.

`AsyncPredictOperator` is an async wait operator (`AsyncWaitOperator`) whose records are calls: each takes a few rows,
as many as the provider takes at once, and several are in flight. Snapshots include the rows of unanswered calls, and a
restored task asks for them again. So a model may be asked more than once for a row, but each row is emitted exactly
once. With output mode ORDERED the rows keep their order; with ALLOW_UNORDERED each call goes out as it is answered, but
never across a watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.config_options import DURATION_MS, INTEGER, ConfigOption, choice
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.calls import AsyncWaitOperator, Call
from penstock.runtime.records import Batch
from penstock.sql.analyzer.models import ASYNC, CONCURRENT, OUTPUT_MODE, OUTPUT_MODES, TIMEOUT
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.nodes import INSERTS, Changes, MLPredictTableFunction
from penstock.sql.models.provider import AsyncPredictor, ModelProvider, Predictions, Predictor, named_inputs
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, name_columns
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.typed import Typed

_PREFIX: Final = "table.exec.async-ml-predict."
CONCURRENT_MAX: Final = ConfigOption(f"{_PREFIX}{CONCURRENT}", INTEGER, 10)
TIMEOUT_MS: Final = ConfigOption(f"{_PREFIX}{TIMEOUT}", DURATION_MS, 180_000)
OUTPUT_ORDER: Final = ConfigOption(f"{_PREFIX}{OUTPUT_MODE}", choice(*OUTPUT_MODES), OUTPUT_MODES[0])


@dataclass(frozen=True, slots=True)
class PredictSettings:
    """How a model is called.

    Attributes:
        is_ordered: whether rows are emitted in input order.
        capacity: how many asynchronous calls are in flight at most.
        timeout_ms: how long a call takes at most, with the provider's own retries.
    """

    is_ordered: bool = True
    capacity: int = 10
    timeout_ms: int = 180_000


def predict_settings(session: Mapping[str, str], call: Mapping[str, str]) -> PredictSettings:
    """Return the settings from the session's options and those of the call, which take precedence."""
    options = {key: value for key, value in session.items() if key.startswith(_PREFIX)}
    for key in (CONCURRENT, TIMEOUT, OUTPUT_MODE):
        if key in call:
            options[_PREFIX + key] = call[key]
    read = Configuration.from_dict(options).read
    capacity = read(CONCURRENT_MAX)
    if capacity < 1:
        raise ConfigurationError(f"{CONCURRENT_MAX.key()} must be at least 1, not {capacity}")
    return PredictSettings(read(OUTPUT_ORDER) == OUTPUT_MODES[0], capacity, read(TIMEOUT_MS))


def is_asynchronous(provider: ModelProvider, call: Mapping[str, str], path: Sequence[str]) -> bool:
    """Return whether a call is asynchronous. Raises `ValidationError` if the provider does not support what it asks."""
    wanted = call.get(ASYNC)
    if wanted is None:
        return provider.is_async
    is_async = wanted.lower() == "true"
    if (provider.async_predictor() if is_async else provider.predictor()) is None:
        mode = "async" if is_async else "sync"
        raise ValidationError(
            f"Require {mode} mode, but model provider {type(provider).__name__} of model {'.'.join(path)} doesn't "
            f"support {mode} mode."
        )
    return is_async


@dataclass(frozen=True, slots=True)
class PredictSpec:
    """What an operator predicts: the provider, the columns of the model's input, and the names of the output."""

    provider: ModelProvider
    arguments: tuple[Typed, ...]
    names: tuple[str, ...]
    title: str


class MLPredictRule(Rule[MLPredictTableFunction]):
    """Each row with the predictions of a model."""

    nodes = (MLPredictTableFunction,)

    def changes(self, node: MLPredictTableFunction, planning: Planning) -> Changes:
        """Accept inserts alone, as in Flink: a model may predict something else for the retraction of a row."""
        planning.accept("MLPredictTableFunction", node.input, INSERTS)
        is_asynchronous(node.model.provider, dict(node.model.settings), node.model.path)
        return INSERTS

    def stream(self, node: MLPredictTableFunction, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        model, call = node.model, dict(node.model.settings)
        provider: ModelProvider = model.provider
        is_async = is_asynchronous(provider, call, model.path)
        settings = predict_settings(planning.lookups.options, call)
        spec = PredictSpec(provider, node.arguments, tuple(name_columns(node.schema)), ".".join(model.path))
        operator: Factory = partial(PredictOperator, spec, planning.session)
        if is_async:
            operator = partial(AsyncPredictOperator, spec, settings, planning.session)
        inner = planning.stream(node.input, False)
        upstreams = planning.step("ML Predict", operator, inner.upstreams, is_stateful=is_async)
        return Stream(upstreams, node.schema, INSERTS, False)


def with_predictions(batch: ColumnBatch, predictions: Predictions, names: Sequence[str]) -> ColumnBatch:
    """Return the rows of a batch with their predictions."""
    parents = predictions.parents
    rows = batch
    if len(parents) != len(batch) or not np.array_equal(parents, np.arange(len(batch))):
        rows = batch.take(parents)
    columns = pa.RecordBatch.from_arrays([*rows.columns.columns, *predictions.columns], list(names))
    return ColumnBatch(columns, rows.rowtimes, rows.kinds)


class PredictOperator(EvaluatingOperator):
    """Asks a predictor that answers at once. The operator is stateless."""

    def __init__(self, spec: PredictSpec, session: StreamSession) -> None:
        self._spec = spec
        self._session = session
        self._predictor: Predictor | None = None

    def open(self) -> None:
        """Open the predictor."""
        self._arguments = Evaluator(self._spec.arguments, self.running(self._session))
        self._predictor = self._spec.provider.predictor()
        assert self._predictor is not None
        try:
            self._predictor.open(self._function_context())
        except Exception as error:
            raise UserCodeError(self.context.operator_name, None, f"open() of model {self._spec.title}") from error

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Predict for a batch, in calls of as many rows as the provider takes at once."""
        records = as_columns(batch, self.context.operator_name)
        size = self._spec.provider.batch_rows
        for start in range(0, len(records), size):
            rows = records.slice(start, min(start + size, len(records)))
            predicted = with_predictions(rows, self._predict(rows), self._spec.names)
            if len(predicted):
                self.output.collect(predicted)

    def _predict(self, rows: ColumnBatch) -> Predictions:
        assert self._predictor is not None
        try:
            return self._predictor.predict(named_inputs(self._arguments(Columns.of(rows.columns))))
        except Exception as error:
            raise _failed(self.context.operator_name, self._spec, len(rows)) from error

    def close(self) -> None:
        """Close the predictor."""
        predictor, self._predictor = self._predictor, None
        try:
            if predictor is not None:
                predictor.close()
        finally:
            super().close()


class AsyncPredictOperator(EvaluatingOperator, AsyncWaitOperator):
    """See the module docstring."""

    def __init__(self, spec: PredictSpec, settings: PredictSettings, session: StreamSession) -> None:
        super().__init__(None, settings.is_ordered, settings.timeout_ms, settings.capacity)
        self._spec = spec
        self._session = session
        self._predictor: AsyncPredictor | None = None
        self._is_ready = False
        self._connected: list[BaseException | None] = []

    def user_functions(self) -> tuple[Any, ...]:
        """Return no functions, because the predictor replaces the async function."""
        return ()

    def open(self) -> None:
        """Start to open the predictor. Calls begin when it is open."""
        super().open()
        self._arguments = Evaluator(self._spec.arguments, self.running(self._session))
        self._predictor = self._spec.provider.async_predictor()
        assert self._predictor is not None
        begin = partial(self._predictor.open, self._function_context())
        self._coroutines.start(begin, lambda _, error: self._connected.append(error))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Queue the rows, a few to a call, and start as many calls as the capacity allows."""
        records = as_columns(batch, self.context.operator_name)
        size = self._spec.provider.batch_rows
        for start in range(0, len(records), size):
            self._add(Call(records.slice(start, min(start + size, len(records))).content(), None))
        self._start_some()

    def process_completions(self) -> bool:
        """See `AsyncWaitOperator`."""
        worked = bool(self._connected)
        if worked:
            error = self._connected.pop()
            if error is not None:
                reason = f"open() of model {self._spec.title}"
                raise UserCodeError(self.context.operator_name, None, reason) from error
            self._is_ready = True
        return super().process_completions() or worked

    def _start_some(self) -> bool:
        return self._is_ready and super()._start_some()

    async def _call_function(self, value: Any) -> Any:
        assert self._predictor is not None
        return await self._predictor.predict(value)

    def _attempt(self, call: Call) -> None:
        rows = ColumnBatch(*call.value)
        try:
            inputs = named_inputs(self._arguments(Columns.of(rows.columns)))
        except TableRuntimeError as error:
            raise self.failed(call.value) from error
        call.attempt += 1
        returned = partial(self._on_return, call, call.attempt)
        call.cancel = self._coroutines.start(partial(self._call_function, inputs), returned)

    def _complete(self, call: Call, results: Any, callee: str) -> None:
        predicted = with_predictions(ColumnBatch(*call.value), results, self._spec.names)
        super()._complete(call, [predicted] if len(predicted) else [], callee)

    def _emit(self, values: list[Any], times: list[int] | None) -> None:
        if values:
            self.output.collect(_united(values))

    def failed(self, record: Any) -> UserCodeError:
        """Return the error for the rows of a call."""
        return _failed(self.context.operator_name, self._spec, len(record[0]))

    def close(self) -> None:
        """Cancel the calls in flight, and close the predictor."""
        super().close()
        predictor, self._predictor = self._predictor, None
        if predictor is not None:
            self._coroutines.start(predictor.close, lambda _, error: None)


def _united(batches: Sequence[ColumnBatch]) -> ColumnBatch:
    """Return the rows of several batches as one."""
    if len(batches) == 1:
        return batches[0]
    columns = pa.Table.from_batches([batch.columns for batch in batches]).combine_chunks().to_batches()[0]
    rowtimes = [batch.rowtimes for batch in batches]
    has_times = all(times is not None for times in rowtimes)
    kinds = [batch.kinds for batch in batches if batch.kinds is not None]
    joined = b"".join(kinds) if len(kinds) == len(batches) else None
    return ColumnBatch(columns, np.concatenate(rowtimes) if has_times else None, joined)


def _failed(operator_name: str, spec: PredictSpec, rows: int) -> UserCodeError:
    return UserCodeError(operator_name, f"a call of model {spec.title} for {rows} rows")
