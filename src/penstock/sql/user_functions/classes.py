"""The base classes of user-defined functions, the context that they run in, and the views in accumulators.

An accumulator is an aggregate function's state for the rows of a group: a list, a `Row`, a view, or any other object
that is mutable and picklable. `accumulate` and `retract` change it in place.

`ListView` and `MapView` are for lists and maps in accumulators that may grow large. Without windows, each view of a
group has its own keyed state, so that a change does not read and write the rest of the accumulator. Elsewhere it is a
plain list or map inside the accumulator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from penstock.base.errors import UnsupportedError
from penstock.base.metrics import MetricGroup


class FunctionContext:
    """A function's view of the subtask that runs it. Flink: "User-defined Functions", runtime integration.

    Examples:
        >>> from penstock.table import EnvironmentSettings, ScalarFunction, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udf
        >>> class InShop(ScalarFunction):
        ...     def open(self, function_context):
        ...         self.shop = function_context.get_job_parameter("shop", "any shop")
        ...     def eval(self, drink):
        ...         return f"{drink} in {self.shop}"
        >>> in_shop = udf(InShop(), result_type="STRING")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> list(t_env.from_elements([("tea",)], ["drink"]).select(in_shop(col("drink"))).execute().collect())
        [<Row('tea in any shop')>]
    """

    def __init__(
        self,
        base_metric_group: MetricGroup,
        job_parameters: Mapping[str, str],
        task_name: str | None = None,
        task_name_with_subtasks: str | None = None,
        number_of_parallel_subtasks: int | None = None,
        max_number_of_parallel_subtasks: int | None = None,
        index_of_this_subtask: int | None = None,
        attempt_number: int | None = None,
    ) -> None:
        self._metric_group = base_metric_group
        self._job_parameters = job_parameters
        self._task_name = task_name
        self._task_name_with_subtasks = task_name_with_subtasks
        self._number_of_parallel_subtasks = number_of_parallel_subtasks
        self._max_number_of_parallel_subtasks = max_number_of_parallel_subtasks
        self._index_of_this_subtask = index_of_this_subtask
        self._attempt_number = attempt_number

    def get_metric_group(self) -> MetricGroup:
        """Return the group in which the function registers its metrics."""
        return self._metric_group

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return one of the program's own settings (`pipeline.global-job-parameters`), or the default."""
        return self._job_parameters.get(key, default_value)

    def get_task_name(self) -> str | None:
        """Return the name of the task."""
        return self._task_name

    def get_task_name_with_subtasks(self) -> str | None:
        """Return the task's name with the subtask's number from 1, as in `Calc (2/4)`."""
        return self._task_name_with_subtasks

    def get_number_of_parallel_subtasks(self) -> int | None:
        """Return the parallelism of the operator that runs the function."""
        return self._number_of_parallel_subtasks

    def get_max_number_of_parallel_subtasks(self) -> int | None:
        """Return the maximum parallelism: the number of key groups."""
        return self._max_number_of_parallel_subtasks

    def get_index_of_this_subtask(self) -> int | None:
        """Return the index of this subtask, from 0."""
        return self._index_of_this_subtask

    def get_attempt_number(self) -> int | None:
        """Return how many times this subtask was started before."""
        return self._attempt_number


class UserDefinedFunction:
    """The base class of all user-defined functions. Each subtask has its own copy."""

    def open(self, function_context: FunctionContext) -> None:
        """Called once in each subtask, before the first row."""

    def close(self) -> None:
        """Called once in each subtask where `open` was called, after the last row or a failure."""

    def is_deterministic(self) -> bool:
        """Return whether the same operands always give the same result, so that calls may be skipped.

        True by default.
        """
        return True


class ScalarFunction(UserDefinedFunction, ABC):
    """Returns one value for each row. Flink: "Scalar Functions".

    Examples:
        >>> from penstock.table import EnvironmentSettings, ScalarFunction, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udf
        >>> class Shout(ScalarFunction):
        ...     def eval(self, word):
        ...         return word.upper() + "!"
        >>> shout = udf(Shout(), result_type="STRING")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> list(t_env.from_elements([("tea",)], ["word"]).select(shout(col("word"))).execute().collect())
        [<Row('TEA!')>]
    """

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """Return the value for these operands; NULL is None."""


class AsyncScalarFunction(UserDefinedFunction, ABC):
    """Returns one value for each row asynchronously; the calls of a batch run concurrently.

    Flink: "Asynchronous Scalar Functions". The options `table.exec.async-scalar.*` set the number of concurrent calls,
    the timeout of a call, and the number of retries. `open` and `close` may also be `async def`.

    Examples:
        >>> from penstock.table import AsyncScalarFunction, EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udf
        >>> class Price(AsyncScalarFunction):
        ...     async def eval(self, drink):
        ...         return len(drink)
        >>> price = udf(Price(), result_type="INT")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> list(t_env.from_elements([("tea",)], ["drink"]).select(price(col("drink"))).execute().collect())
        [<Row(3)>]
    """

    @abstractmethod
    async def eval(self, *args: Any) -> Any:
        """Return the value for these operands; NULL is None."""


class TableFunction(UserDefinedFunction, ABC):
    """Returns any number of rows for each row. Flink: "Table Functions".

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment, TableFunction
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udtf
        >>> class Words(TableFunction):
        ...     def eval(self, line):
        ...         yield from line.split()
        >>> words = udtf(Words(), result_types="STRING")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> lines = t_env.from_elements([("hot tea",)], ["line"])
        >>> lines.join_lateral(words(col("line")).alias("word")).to_pandas()["word"].tolist()
        ['hot', 'tea']
    """

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """Return a list, range or iterator of rows, one row, or None. A row is a tuple, a `Row` or the value of its
        column.
        """


class AsyncTableFunction(UserDefinedFunction, ABC):
    """Returns any number of rows for each row asynchronously; the calls of a batch run concurrently.

    Flink: "Asynchronous Table Functions". The rows keep the order of the rows that they are for. The options
    `table.exec.async-table.*` set the number of concurrent calls, the timeout of a call, and the number of retries.
    `open` and `close` may also be `async def`.

    Examples:
        >>> from penstock.table import AsyncTableFunction, EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udtf
        >>> class Sizes(AsyncTableFunction):
        ...     async def eval(self, drink):
        ...         for size in ("small", "large"):
        ...             yield f"{size} {drink}"
        >>> sizes = udtf(Sizes(), result_types="STRING")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> drinks = t_env.from_elements([("tea",)], ["drink"])
        >>> drinks.join_lateral(sizes(col("drink")).alias("order")).to_pandas()["order"].tolist()
        ['small tea', 'large tea']
    """

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """An `async def` that returns what `TableFunction.eval` returns, or yields rows."""


class Delegating:
    """Wraps a plain function as an object with `eval`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.eval = function


T = TypeVar("T")
ACC = TypeVar("ACC")


class ImperativeAggregateFunction(UserDefinedFunction, ABC, Generic[T, ACC]):
    """The base class of functions over all rows of a group."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Create the accumulator of a group without rows; it must not be None."""

    @abstractmethod
    def accumulate(self, accumulator: ACC, *args: Any) -> None:
        """Add a row. `args`: its operands; NULL is None."""

    def retract(self, accumulator: ACC, *args: Any) -> None:
        """Retract a row. Required for inputs with updates or deletes, and for bounded OVER windows."""
        raise UnsupportedError(f"{type(self).__name__} does not implement retract")

    def merge(self, accumulator: ACC, accumulators: Iterable[ACC]) -> None:
        """Merge other accumulators into one. Never called: sessions are known before their rows are aggregated."""
        raise UnsupportedError(f"{type(self).__name__} does not implement merge")

    def get_result_type(self) -> Any:
        """Return the result type, one of `DataTypes` or its text, if neither `udaf` nor an annotation declares it."""
        raise UnsupportedError(f"{type(self).__name__} does not implement get_result_type")

    def get_accumulator_type(self) -> Any:
        """Return the type of an accumulator. Optional: accumulators are pickled."""
        raise UnsupportedError(f"{type(self).__name__} does not implement get_accumulator_type")


class AggregateFunction(ImperativeAggregateFunction[T, ACC]):
    """Returns one value for all rows of a group. Flink: "Aggregate Functions".

    Examples:
        >>> from penstock.table import AggregateFunction, EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udaf
        >>> class Longest(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return [""]
        ...     def accumulate(self, accumulator, word):
        ...         accumulator[0] = max(accumulator[0], word, key=len)
        ...     def get_value(self, accumulator):
        ...         return accumulator[0]
        >>> longest = udaf(Longest(), result_type="STRING", accumulator_type="ARRAY<STRING>")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> words = t_env.from_elements([("tea",), ("milk",)], ["word"])
        >>> words.select(longest(col("word")).alias("longest")).to_pandas()["longest"].tolist()
        ['milk']
    """

    @abstractmethod
    def get_value(self, accumulator: ACC) -> T:
        """Return the value for the rows so far."""


class TableAggregateFunction(ImperativeAggregateFunction[T, ACC]):
    """Returns any number of rows for all rows of a group. Flink: "Table Aggregate Functions".

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableAggregateFunction, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udtaf
        >>> class Top2(TableAggregateFunction):
        ...     def create_accumulator(self):
        ...         return []
        ...     def accumulate(self, accumulator, cups):
        ...         accumulator[:] = sorted([*accumulator, cups], reverse=True)[:2]
        ...     def emit_value(self, accumulator):
        ...         yield from accumulator
        >>> top_2 = udtaf(Top2(), result_type="ROW<n BIGINT>", accumulator_type="ARRAY<BIGINT>")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> numbers = t_env.from_elements([(1,), (3,), (2,)], ["cups"])
        >>> top = numbers.flat_aggregate(top_2(col("cups")).alias("n")).select(col("n"))
        >>> sorted(top.to_pandas()["n"])
        [2, 3]
    """

    @abstractmethod
    def emit_value(self, accumulator: ACC) -> Iterable[T]:
        """Return the output for the rows so far, as an iterator or a list. A row is a tuple, a `Row`, or its only
        column.
        """


def implements(function: object, method: str) -> bool:
    """Return whether an aggregate function overrides a method of the base class."""
    if not isinstance(function, ImperativeAggregateFunction):
        return False
    return getattr(type(function), method) is not getattr(ImperativeAggregateFunction, method)


K = TypeVar("K")
V = TypeVar("V")


class DataView(ABC):
    """A collection inside an accumulator. Flink: "User-defined Functions", ListView and MapView.

    Examples:
        >>> from penstock.table import DataView, ListView, MapView
        >>> issubclass(ListView, DataView), issubclass(MapView, DataView)
        (True, True)
    """

    @abstractmethod
    def clear(self) -> None:
        """Remove all elements."""


class ListView(DataView, Generic[T]):
    """A list that values are appended to.

    Examples:
        >>> from penstock.table import ListView
        >>> words = ListView()
        >>> words.add("tea")
        >>> words.add_all(["milk", "rum"])
        >>> words.get()
        ['tea', 'milk', 'rum']
    """

    def __init__(self) -> None:
        self._list: list[T] = []

    def get(self) -> list[T]:
        """Return all values in a new list, oldest first."""
        return list(self._list)

    def add(self, value: T) -> None:
        """Append a value."""
        self._list.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Append several values."""
        self._list += list(values)

    def clear(self) -> None:
        """Remove all elements."""
        self._list = []

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListView) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ListView({list(self)})"


class MapView(DataView, Generic[K, V]):
    """A map. A missing key has the value None.

    Examples:
        >>> from penstock.table import MapView
        >>> cups = MapView()
        >>> cups.put("tea", 2)
        >>> cups.get("tea"), cups.get("rum"), list(cups.items())
        (2, None, [('tea', 2)])
    """

    def __init__(self) -> None:
        self._map: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        return self._map.get(key)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        self._map[key] = value

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of several keys."""
        self._map.update(dict_value)

    def remove(self, key: K) -> None:
        """Remove a key if it exists."""
        self._map.pop(key, None)

    def contains(self, key: K) -> bool:
        """Return whether a key exists."""
        return key in self._map

    def items(self) -> Iterable[tuple[K, V]]:
        """Return a snapshot of all keys with their values; the map may be modified during iteration."""
        return list(self._map.items())

    def keys(self) -> Iterable[K]:
        """Return all keys."""
        return list(self._map)

    def values(self) -> Iterable[V]:
        """Return all values."""
        return list(self._map.values())

    def is_empty(self) -> bool:
        """Return whether the map is empty."""
        return not self._map

    def clear(self) -> None:
        """Remove all keys."""
        self._map = {}

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapView) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MapView({dict(self.items())})"
