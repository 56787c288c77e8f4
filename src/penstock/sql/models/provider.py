"""Providers of models, and `PredictFunction`, the base class of a user's own model in Python.

The option `provider` of a model names a provider. It is created while a statement is planned, checks the options, and
travels to the workers. There it creates a predictor, which answers for columns of rows: `Predictor` at once,
`AsyncPredictor` later, while other calls are in flight.

`python` is the provider of Python classes. A class that a model names is created once for each worker process and used
by all of its subtasks, because models are large. Calls of such an object are made one at a time.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import partial
from pkgutil import resolve_name
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.base.config_options import INTEGER, STRING, ConfigOption
from penstock.base.errors import MisuseError, WrongTypeError, did_you_mean, short_repr
from penstock.base.types import Row
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.connector import TableOptions, missing
from penstock.sql.tables.tables import column_names
from penstock.sql.user_functions.calls import Results, iterate_rows, seen_values, unpack_row
from penstock.sql.user_functions.classes import FunctionContext

PROVIDER: Final = "provider"
#: the entry points by which a package adds providers
ENTRY_POINTS: Final = "penstock.model_providers"


class ModelOptions(TableOptions):
    """The options of a model as text, which `read` converts to typed values."""

    what: ClassVar[str] = "model"


@dataclass(frozen=True)
class ModelContext:
    """What a provider is created for.

    Attributes:
        path: the catalog, database and name of the model.
        inputs: the columns that the model takes.
        outputs: the columns of a prediction.
        options: the options of the model, without `provider`.
        zone: the session's time zone.
        source: the object that a program has given for the model, if any.
    """

    path: tuple[str, str, str]
    inputs: RowSchema
    outputs: RowSchema
    options: ModelOptions
    zone: tzinfo = UTC
    source: Any = None

    def check(self, required: Iterable[ConfigOption[Any]], optional: Iterable[ConfigOption[Any]]) -> None:
        """Raise `ValidationError` for options that are not declared, missing or have a wrong value."""
        required, optional = list(required), list(optional)
        known = {option.key() for option in (*required, *optional)}
        unknown = sorted(self.options.keys() - known)
        if unknown:
            raise ValidationError(
                f"Unsupported options found for model {self.options.title}: {', '.join(unknown)}. Supported options: "
                f"{', '.join(sorted({PROVIDER, *known}))}"
            )
        absent = [option.key() for option in required if option.key() not in self.options]
        if absent:
            raise missing(self.options.title, absent, "model")
        for option in (*required, *optional):
            self.options.read(option)


class Predictions(NamedTuple):
    """Predicted rows: a column for each column of the output, and for each row the number of its input row.

    `parents` is an array of 64-bit integers that never decrease. An input row may have any number of predictions.
    """

    columns: Sequence[pa.Array]
    parents: Any


class Predictor(ABC):
    """Answers at once. Created where it is used."""

    def open(self, context: FunctionContext) -> None:  # noqa: B027 - many have nothing to open
        """Prepare for calls."""

    @abstractmethod
    def predict(self, inputs: pa.RecordBatch) -> Predictions:
        """Return the predictions for rows of the model's input columns, named c0, c1 and so on."""

    def close(self) -> None:  # noqa: B027 - many have nothing to close
        """Release all resources; called on every path."""


class AsyncPredictor(ABC):
    """Answers later, with several calls in flight. Runs in one event loop."""

    async def open(self, context: FunctionContext) -> None:  # noqa: B027 - many have nothing to open
        """Prepare for calls; awaited before the first one."""

    @abstractmethod
    async def predict(self, inputs: pa.RecordBatch) -> Predictions:
        """See `Predictor.predict`."""

    async def close(self) -> None:  # noqa: B027 - many have nothing to close
        """Release all resources; awaited on every path."""


class ModelProvider:
    """What answers for a model; see the module docstring. A provider has a predictor of one kind at least."""

    #: the number of rows that a call takes at most
    batch_rows: int = 1

    def predictor(self) -> Predictor | None:
        """Return a predictor that answers at once; None if the provider has none."""
        return None

    def async_predictor(self) -> AsyncPredictor | None:
        """Return a predictor that answers later; None if the provider has none."""
        return None

    @property
    def is_async(self) -> bool:
        """Whether calls are asynchronous unless a statement says otherwise."""
        return self.predictor() is None


ProviderFactory = Callable[[ModelContext], ModelProvider]


# --- a user's class ---------------------------------------------------------------------------------------------------


class PredictFunction:
    """The base class of a model in Python.

    `predict` gets a list of rows and returns a list with one result for each of them: a tuple or `Row` of the output
    columns, or a value if there is one column; a list for any number of such rows; None for no row. So an ARRAY is
    given as `(values,)`. Where `predict` is a coroutine function, the calls run at the same time.

    A class with `predict_arrow` gets the rows as an Arrow `RecordBatch` with the names of the model's input columns,
    and returns a `RecordBatch` with as many rows and the output columns in their order.

    Examples:
        >>> from penstock.table import EnvironmentSettings, ModelDescriptor, PredictFunction, Schema, TableEnvironment
        >>> class Length(PredictFunction):
        ...     def predict(self, rows):
        ...         return [len(row.word) for row in rows]
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> words = Schema.new_builder().column("word", "STRING").build()
        >>> lengths = Schema.new_builder().column("length", "INT").build()
        >>> model = ModelDescriptor.for_provider(Length).input_schema(words).output_schema(lengths).build()
        >>> t_env.create_temporary_model("lengths", model)
        >>> t_env.create_temporary_view("drinks", t_env.from_elements([("tea",), ("coffee",)], ["drink"]))
        >>> query = "SELECT * FROM ML_PREDICT(TABLE drinks, MODEL lengths, DESCRIPTOR(drink))"
        >>> list(t_env.sql_query(query).execute().collect())
        [<Row('tea', 3)>, <Row('coffee', 6)>]
    """

    #: the options of the model, set before `open`
    options: Mapping[str, str] = {}

    def open(self, context: FunctionContext) -> None:
        """Load the model; called once, before the first rows."""

    def predict(self, rows: list[Row]) -> Any:
        """Return one result for each row."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what `open` has taken."""


_CLASS: Final = ConfigOption("class", STRING, "")
_BATCH_SIZE: Final = ConfigOption("batch-size", INTEGER, 1_000)
_PLAIN_METHODS: Final = ("predict", "predict_arrow")


@dataclass
class _Loaded:
    """An object of a class that a model names, and how many predictors use it."""

    function: Any
    lock: Any = field(default_factory=threading.Lock)
    users: int = 0


_LOADED: dict[tuple[Any, ...], _Loaded] = {}
_LOADING: Final = threading.Lock()


class PythonProvider(ModelProvider):
    """The provider of Python classes and objects; see the module docstring."""

    def __init__(self, context: ModelContext) -> None:
        options = context.options
        self._inputs, self._outputs, self._zone = context.inputs, context.outputs, context.zone
        self._options = tuple(sorted(options.items()))
        self._target = options.read(_CLASS)
        self._source = context.source
        self._title = options.title
        self.batch_rows = options.read(_BATCH_SIZE)
        if self.batch_rows < 1:
            raise options.wrong(_BATCH_SIZE.key(), "it must be above 0")
        if self._source is None and not self._target:
            raise missing(options.title, [_CLASS.key()], "model")
        function = self._source if self._source is not None else _import_class(self._target, options.title)
        is_callable = callable(function) and not inspect.isclass(function)
        if not is_callable and not any(callable(getattr(function, name, None)) for name in _PLAIN_METHODS):
            raise ValidationError(f"model {options.title}: {short_repr(function)} has no method predict(rows)")
        method = function if _is_function(function) else getattr(function, "predict", None)
        self._is_coroutine = inspect.iscoroutinefunction(method)
        self._runs_beside = options.get("async", "false").lower() == "true"

    @property
    def is_async(self) -> bool:
        """See `ModelProvider`."""
        return self._is_coroutine or self._runs_beside

    def predictor(self) -> Predictor | None:
        """See `ModelProvider`."""
        return None if self._is_coroutine else _PythonPredictor(self)

    def async_predictor(self) -> AsyncPredictor | None:
        """See `ModelProvider`."""
        return _AsyncPythonPredictor(self)

    def load(self, context: FunctionContext) -> _Loaded:
        """Return the object that answers, opened. An object of a program belongs to one predictor."""
        if self._source is not None:
            return self._open(context)
        key = (self._target, self._options)
        with _LOADING:
            loaded = _LOADED.get(key)
            if loaded is None:
                loaded = _LOADED[key] = self._open(context)
            loaded.users += 1
        return loaded

    def _open(self, context: FunctionContext) -> _Loaded:
        source = _import_class(self._target, self._title) if self._source is None else self._source
        function: Any = source() if inspect.isclass(source) else source
        if not _is_function(function):
            function.options = dict(self._options)
            if callable(getattr(function, "open", None)):
                function.open(context)
        return _Loaded(function)

    def unload(self, loaded: _Loaded) -> None:
        """Close the object if no other predictor uses it."""
        with _LOADING:
            loaded.users -= 1
            if loaded.users > 0:
                return
            for key in [key for key, other in _LOADED.items() if other is loaded]:
                del _LOADED[key]
        if callable(getattr(loaded.function, "close", None)):
            loaded.function.close()

    def rows(self, inputs: pa.RecordBatch) -> list[Row]:
        """Return the rows that the object gets."""
        kinds = self._inputs.types
        columns = [
            seen_values(column, kind, self._zone, inputs.num_rows)
            for column, kind in zip(inputs.columns, kinds, strict=True)
        ]
        rows = [Row(*values) for values in zip(*columns, strict=True)]
        for row in rows:
            row.set_field_names(self._inputs.names)
        return rows

    def named(self, inputs: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns with the names of the model's input."""
        return pa.RecordBatch.from_arrays(inputs.columns, self._inputs.names)

    def predictions(self, results: Any, rows: int) -> Predictions:
        """Convert one result for each row."""
        results = list(results) if isinstance(results, Iterable) and not isinstance(results, str | bytes) else results
        if not isinstance(results, list) or len(results) != rows:
            count = f"{len(results)}" if isinstance(results, list) else short_repr(results)
            raise MisuseError(f"model {self._title}: predict must return a result for each of {rows} rows, not {count}")
        names = self._outputs.names
        parents: list[int] = []
        produced: list[Sequence[Any]] = []
        for parent, result in enumerate(results):
            for row in iterate_rows(result):
                produced.append(unpack_row(row, names))
                parents.append(parent)
        columns = []
        for index, column in enumerate(self._outputs):
            refuse = partial(self._refuse, column.name, column.type)
            columns.append(Results(column.type, self._zone).column([row[index] for row in produced], refuse))
        return Predictions(columns, np.array(parents, np.int64))

    def _refuse(self, name: str, kind: Any, row_index: int, value: object) -> None:
        raise WrongTypeError(
            f"model {self._title}: it predicted {short_repr(value)} ({type(value).__name__}), which is no {kind}, as "
            f"column {name} is. A list stands for several rows: give an ARRAY as a tuple of one value, (values,)"
        )

    def of_arrow(self, result: pa.RecordBatch, rows: int) -> Predictions:
        """Convert the result of `predict_arrow`."""
        if result.num_rows != rows or result.num_columns != len(self._outputs):
            raise MisuseError(
                f"model {self._title}: predict_arrow must return {rows} rows of {len(self._outputs)} columns, not "
                f"{result.num_rows} of {result.num_columns}"
            )
        kinds = map(arrow_type, self._outputs.types)
        columns = [column.cast(kind) for column, kind in zip(result.columns, kinds, strict=True)]
        return Predictions(columns, np.arange(rows))


class _PythonPredictor(Predictor):
    def __init__(self, provider: PythonProvider) -> None:
        self._provider = provider
        self._loaded: _Loaded | None = None

    def open(self, context: FunctionContext) -> None:
        """See `Predictor`."""
        self._loaded = self._provider.load(context)

    def predict(self, inputs: pa.RecordBatch) -> Predictions:
        """See `Predictor`."""
        assert self._loaded is not None
        function, provider = self._loaded.function, self._provider
        with self._loaded.lock:
            if callable(getattr(function, "predict_arrow", None)):
                return provider.of_arrow(function.predict_arrow(provider.named(inputs)), inputs.num_rows)
            predict = function if _is_function(function) else function.predict
            return provider.predictions(predict(provider.rows(inputs)), inputs.num_rows)

    def close(self) -> None:
        """See `Predictor`."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            self._provider.unload(loaded)


class _AsyncPythonPredictor(AsyncPredictor):
    """Awaits a coroutine function, or calls another function in a thread, one call at a time."""

    def __init__(self, provider: PythonProvider) -> None:
        self._provider = provider
        self._beside = _PythonPredictor(provider)

    async def open(self, context: FunctionContext) -> None:
        """See `AsyncPredictor`."""
        await asyncio.to_thread(self._beside.open, context)

    async def predict(self, inputs: pa.RecordBatch) -> Predictions:
        """See `AsyncPredictor`."""
        if not self._provider._is_coroutine:
            return await asyncio.to_thread(self._beside.predict, inputs)
        assert self._beside._loaded is not None
        function = self._beside._loaded.function
        predict = function if _is_function(function) else function.predict
        return self._provider.predictions(await predict(self._provider.rows(inputs)), inputs.num_rows)

    async def close(self) -> None:
        """See `AsyncPredictor`."""
        await asyncio.to_thread(self._beside.close)


def _is_function(function: Any) -> bool:
    return not inspect.isclass(function) and not hasattr(function, "predict") and not hasattr(function, "predict_arrow")


def _import_class(target: str, title: str) -> Any:
    module, _, attribute = target.replace(":", ".").rpartition(".")
    if not module:
        raise ValidationError(f"model {title}: the path of a class in Python is module.Class, not {target!r}")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ValidationError(
            f"model {title}: cannot import {target!r}: {error}; ship the module with add_python_file"
        ) from error
    except AttributeError as error:
        raise ValidationError(f"model {title}: there is no {attribute!r} in module {module!r}") from error


# --- the providers by name --------------------------------------------------------------------------------------------

_BUILT_IN: Final = {
    "python": PythonProvider,
    "openai": lambda context: resolve_name("penstock.sql.models.openai:OpenAIProvider")(context),
}


class ModelProviders:
    """The providers by name: the built-in ones, those of packages, and those that a program registers."""

    def __init__(self) -> None:
        self._factories: dict[str, ProviderFactory] = dict(_BUILT_IN)
        self._has_points = False

    def register(self, name: str, factory: ProviderFactory) -> None:
        """Add a provider, which replaces another of its name."""
        self._factories[name.lower()] = factory

    def names(self) -> list[str]:
        """Return the possible values of the option `provider`."""
        self._load()
        return sorted(self._factories)

    def _load(self) -> None:
        if not self._has_points:
            self._has_points = True
            for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
                self._factories.setdefault(point.name.lower(), point.load())

    def create(
        self,
        path: tuple[str, str, str],
        inputs: RowSchema,
        outputs: RowSchema,
        options: Mapping[str, str],
        zone: tzinfo,
        source: Any = None,
    ) -> ModelProvider:
        """Return the provider of a model. Raises `ValidationError` for a provider or options that do not exist."""
        title = ".".join(path)
        rest = {key: value for key, value in options.items() if key != PROVIDER}
        context = ModelContext(path, inputs, outputs, ModelOptions(title, rest, zone=zone), zone, source)
        if isinstance(source, ModelProvider):
            return source
        if source is not None:
            return PythonProvider(context)
        name = options.get(PROVIDER)
        if name is None:
            raise ValidationError(
                f"Model options of {title} do not contain an option key 'provider' for discovering a provider."
            )
        if name.lower() not in self._factories:
            self._load()
        factory = self._factories.get(name.lower())
        if factory is None:
            known = self.names()
            raise ValidationError(
                f"Could not find any provider '{name}' for model {title}{did_you_mean(name, known)}: there are "
                f"{', '.join(known)}"
            )
        return factory(context)


def empty_predictions(outputs: RowSchema) -> Predictions:
    """Return no predictions."""
    return Predictions([pa.array([], arrow_type(kind)) for kind in outputs.types], np.array([], np.int64))


def named_inputs(arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return input columns as predictors get them."""
    return pa.RecordBatch.from_arrays(list(arrays), column_names(len(arrays)))
