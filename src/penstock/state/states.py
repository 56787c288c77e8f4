"""Keyed state for user code (D1): descriptors; value, list, map, reducing and aggregating state; access latency.

`StateDescriptor` has the name and type of a keyed state, as declared by user code (PyFlink's state descriptors).

`State`: each object looks up the backend's current key on every access, so only that key's state is accessible. User
code may keep and change objects that it has read; only `update`, `add` and `put` are guaranteed to store changes.

`ListState.get` returns a list; the `keys`, `items` and `values` of a map return views. Both show the contents at the
time of the call, not later changes of the state, and can be read any number of times. Their values are the state's own
objects, not copies. The order of a map's entries differs between backends.

`StateLatency` measures how long a function's accesses to its keyed state take (Flink's `state.latency-track.*`). An
access is a call of a method of a state that a function holds: `value()`, `add(…)`, `put(…)`. Operators process their
own state, such as a window's contents, in whole batches, which are not accesses. Only one of several calls is timed. A
tracked state has a class of its own, made when it is opened; other states are not affected.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.metrics import HistogramFigures, SlidingHistogram
from penstock.base.typeinfo import TypeInformation
from penstock.state.errors import StateError
from penstock.state.ttl_config import StateTtlConfig


class StateDescriptor:
    """The name of an operator's state in a snapshot, and the declared type of its values.

    Attributes:
        kind: value, list, map, reducing or aggregating.
        ttl_config: when entries expire; None if they never do.

    Examples:
        >>> from penstock.common import Time, Types
        >>> from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
        >>> descriptor = ValueStateDescriptor("count", Types.LONG())
        >>> descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        >>> descriptor.get_name(), descriptor.get_type_info(), descriptor.ttl_config.get_ttl()
        ('count', Types.LONG(), Time(3600000))
    """

    kind = "value"
    ttl_config: StateTtlConfig | None = None

    def __init__(self, name: str, type_info: TypeInformation | None = None) -> None:
        if not name or not isinstance(name, str):
            raise WrongValueError(f"a state needs a name, not {name!r}")
        if name.startswith("_penstock"):
            raise WrongValueError(
                f"state name {name!r}: names that begin with '_penstock' are reserved for the runtime"
            )
        self.name = name
        self.type_info = type_info

    def get_name(self) -> str:
        """Return the state's name."""
        return self.name

    def get_type_info(self) -> TypeInformation | None:
        """Return the declared type, or None if values are pickled."""
        return self.type_info

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let entries expire as `ttl_config` says; call it before the state is requested.

        Raises:
            TypeError: if it is not a `StateTtlConfig`.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise WrongTypeError(f"expected a StateTtlConfig, not {ttl_config!r}")
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ValueStateDescriptor(StateDescriptor):
    """One value for each key.

    Examples:
        >>> from penstock.common import Types
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> ValueStateDescriptor("count", Types.LONG()).get_name()
        'count'
    """

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """A list for each key.

    Examples:
        >>> from penstock.common import Types
        >>> from penstock.datastream.state import ListStateDescriptor
        >>> ListStateDescriptor("words", Types.STRING()).get_type_info()
        Types.STRING()
    """

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """A map for each key.

    Examples:
        >>> from penstock.common import Types
        >>> from penstock.datastream.state import MapStateDescriptor
        >>> MapStateDescriptor("cups", Types.STRING(), Types.INT()).get_type_info()
        Types.INT()
    """

    kind = "map"

    def __init__(
        self, name: str, key_type_info: TypeInformation | None = None, value_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = key_type_info


class ReducingStateDescriptor(StateDescriptor):
    """One value for each key, into which a reduce function folds added values.

    Examples:
        >>> from penstock.common import Types
        >>> from penstock.datastream.state import ReducingStateDescriptor
        >>> total = ReducingStateDescriptor("total", lambda one, other: one + other, Types.LONG())
        >>> total.get_reduce_function()(1, 2)
        3
    """

    kind = "reducing"

    def __init__(self, name: str, reduce_function: Any, type_info: TypeInformation | None = None) -> None:
        super().__init__(name, type_info)
        self.reduce_function: Callable[[Any, Any], Any] = getattr(reduce_function, "reduce", reduce_function)
        self._declared_function = reduce_function

    def get_reduce_function(self) -> Any:
        """Return the function that folds, as declared: a `ReduceFunction` or a plain callable."""
        return self._declared_function


class AggregatingStateDescriptor(StateDescriptor):
    """One accumulator for each key, to which an aggregate function adds values.

    Examples:
        >>> from penstock.datastream import AggregateFunction
        >>> from penstock.datastream.state import AggregatingStateDescriptor
        >>> class Total(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return 0
        ...     def add(self, value, accumulator):
        ...         return accumulator + value
        ...     def get_result(self, accumulator):
        ...         return accumulator
        >>> AggregatingStateDescriptor("total", Total()).get_agg_function().add(2, 3)
        5
    """

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Any, state_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, state_type_info)
        self.agg_function = agg_function

    def get_agg_function(self) -> Any:
        """Return the function that aggregates."""
        return self.agg_function


T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN", contravariant=True)
OUT = TypeVar("OUT", covariant=True)
ITEM = TypeVar("ITEM", covariant=True)
_MISSING: Any = object()
#: The maximum number of items in the repr of a view.
_SHOWN_MAX: Final = 20


class _NoKey:
    def __repr__(self) -> str:
        return "NO_KEY"

    def __hash__(self) -> int:
        raise StateError(
            "keyed state was used while no key is current: use it in process_element or on_timer of a keyed stream "
            "(after key_by), not in open(), close() or on a stream without keys"
        )


#: The current key when none is set; looking something up with it raises `StateError`.
NO_KEY: Any = _NoKey()


class KeyHolder(Protocol):
    """Provides the current key: a keyed state backend."""

    @property
    def current_key(self) -> Any: ...


class Sampled(Protocol):
    """A state of user code that provides a sample value."""

    def sample(self) -> Iterable[Any]: ...


class EntryTable(Protocol):
    """The part of a table that a state uses to access its entries; see `state.backend`."""

    @property
    def is_next_whole(self) -> bool: ...

    def entries(self, namespace: Any) -> dict[Any, Any]: ...

    def changed(self, namespace: Any) -> set[Any]: ...


class StateView(Collection[ITEM]):
    """The keys, values or pairs of a map at the time of the call; readable any number of times.

    Supports `len` and `in`. On RocksDB, a large map stays on disk, and each pass and each `len` reads it. All passes
    have the same, otherwise unspecified order.

    Examples:
        >>> from penstock.datastream.state import StateView
        >>> view = StateView(["tea", "rum"])
        >>> len(view), "tea" in view, list(view)
        (2, True, ['tea', 'rum'])
    """

    __slots__ = ("_items",)

    def __init__(self, items: Collection[ITEM]) -> None:
        #: in an unspecified order; never modified
        self._items = items

    def __iter__(self) -> Iterator[ITEM]:
        return iter(self._items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return next(iter(self._items), _MISSING) is not _MISSING

    def __repr__(self) -> str:
        texts = list(map(repr, islice(self._items, _SHOWN_MAX + 1)))
        if len(texts) > _SHOWN_MAX:
            texts[_SHOWN_MAX] = "..."
        return f"StateView([{', '.join(texts)}])"


class State:
    """Base class of keyed states.

    Examples:
        >>> from penstock.datastream.state import MapState, State, ValueState
        >>> issubclass(ValueState, State), issubclass(MapState, State)
        (True, True)
    """

    __slots__ = ("_backend", "_changed", "_entries", "_table")

    def __init__(self, backend: KeyHolder, table: EntryTable) -> None:
        self._backend = backend
        self._table = table
        self._entries = table.entries(None)
        self._changed = table.changed(None)

    def clear(self) -> None:
        """Remove the current key's state."""
        key = self._backend.current_key
        self._entries.pop(key, None)
        self._changed.add(key)  # raises if no key is current, unlike `pop` on an empty dictionary

    def sample(self) -> Iterable[Any]:
        """Return a value of some key, if one is in memory, for the runtime: all values of a state have the same type.

        Takes the last key, because a dictionary keeps the slots of removed keys until it grows.
        """
        return islice(reversed(dict.values(self._entries)), 1)


class ValueState(State, Generic[T]):
    """One value per key.

    Examples:
        >>> from penstock.datastream import KeyedProcessFunction
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> from penstock.testing import harness_for
        >>> class Count(KeyedProcessFunction):
        ...     def open(self, runtime_context):
        ...         self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        ...     def process_element(self, value, ctx):
        ...         self.count.update((self.count.value() or 0) + 1)
        ...         yield ctx.get_current_key(), self.count.value()
        >>> with harness_for(Count(), lambda word: word) as harness:
        ...     harness.process_batch(["tea", "rum", "tea"])
        ...     harness.values
        [('tea', 1), ('rum', 1), ('tea', 2)]
    """

    __slots__ = ()

    def value(self) -> T | None:
        """Return the current key's value, or None.

        Examples:
            >>> class IsFirst(Count):
            ...     def process_element(self, value, ctx):
            ...         yield self.count.value() is None
            ...         self.count.update(1)
            >>> with harness_for(IsFirst(), lambda word: word) as harness:
            ...     harness.process_batch(["tea", "rum", "tea"])
            ...     harness.values
            [True, True, False]
        """
        return self._entries.get(self._backend.current_key)

    def update(self, value: T | None) -> None:
        """Store the current key's value; None clears it.

        Examples:
            >>> class Reset(Count):
            ...     def process_element(self, value, ctx):
            ...         self.count.update(len(value))
            ...         self.count.update(None)
            ...         yield self.count.value()
            >>> with harness_for(Reset(), lambda word: word) as harness:
            ...     harness.process("tea")
            ...     harness.values
            [None]
        """
        if value is None:
            self.clear()
            return
        key = self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(key)
        self._entries[key] = value


class AppendingState(State, ABC, Generic[IN, OUT]):
    """A state that collects added values and returns a result: list, reducing and aggregating state.

    Examples:
        >>> from penstock.datastream.state import AppendingState, ListState, ReducingState, ValueState
        >>> issubclass(ListState, AppendingState), issubclass(ReducingState, AppendingState)
        (True, True)
        >>> issubclass(ValueState, AppendingState)
        False
    """

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT:
        """Return the result of the current key's state."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value to the current key's state."""


class MergingState(AppendingState[IN, OUT]):
    """A state whose contents for two keys, or of two windows, can be merged.

    Examples:
        >>> from penstock.datastream.state import ListState, MapState, MergingState
        >>> issubclass(ListState, MergingState), issubclass(MapState, MergingState)
        (True, False)
    """

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """A list per key.

    Examples:
        >>> from penstock.datastream import KeyedProcessFunction
        >>> from penstock.datastream.state import ListStateDescriptor
        >>> from penstock.testing import harness_for
        >>> class Words(KeyedProcessFunction):
        ...     def open(self, runtime_context):
        ...         self.words = runtime_context.get_list_state(ListStateDescriptor("words"))
        ...     def process_element(self, value, ctx):
        ...         self.words.add(value)
        ...         yield self.words.get()
        >>> with harness_for(Words(), len) as harness:
        ...     harness.process_batch(["tea", "milk", "rum"])
        ...     harness.values
        [['tea'], ['milk'], ['tea', 'rum']]
    """

    __slots__ = ()

    def get(self) -> list[T]:
        """Return the current key's items, oldest first, in a new list that the caller owns.

        Examples:
            >>> class Pairs(Words):
            ...     def process_element(self, value, ctx):
            ...         yield from ((word, value) for word in self.words.get())
            ...         self.words.add(value)
            >>> with harness_for(Pairs(), len) as harness:
            ...     harness.process_batch(["tea", "rum"])
            ...     harness.values
            [('tea', 'rum')]
        """
        return list(self._entries.get(self._backend.current_key, ()))

    def add(self, value: T) -> None:
        """Append an item."""
        entries, key = self._entries, self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(key)
        items = entries.get(key)
        if items is None:
            entries[key] = [value]
        else:
            items.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Append several items."""
        values = list(values)
        if values:
            key = self._backend.current_key
            if not self._table.is_next_whole:
                self._changed.add(key)
            self._entries.setdefault(key, []).extend(values)

    def update(self, values: Iterable[T]) -> None:
        """Replace the items; an empty list clears the state.

        Examples:
            >>> class LastTwo(Words):
            ...     def process_element(self, value, ctx):
            ...         self.words.update([*self.words.get(), value][-2:])
            ...         yield self.words.get()
            >>> with harness_for(LastTwo(), len) as harness:
            ...     harness.process_batch(["tea", "rum", "gin"])
            ...     harness.values[-1]
            ['rum', 'gin']
        """
        values = list(values)
        if values:
            key = self._backend.current_key
            if not self._table.is_next_whole:
                self._changed.add(key)
            self._entries[key] = values
        else:
            self.clear()

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def sample(self) -> Iterable[Any]:
        return [item for items in super().sample() for item in items[-1:]]


class MapState(State, Generic[K, V]):
    """A map per key.

    Examples:
        >>> from penstock.datastream import KeyedProcessFunction
        >>> from penstock.datastream.state import MapStateDescriptor
        >>> from penstock.testing import harness_for
        >>> class Cups(KeyedProcessFunction):
        ...     def open(self, runtime_context):
        ...         self.cups = runtime_context.get_map_state(MapStateDescriptor("cups"))
        ...     def process_element(self, value, ctx):
        ...         drink, count = value
        ...         self.cups.put(drink, (self.cups.get(drink) or 0) + count)
        ...         yield dict(self.cups.items())
        >>> with harness_for(Cups(), lambda cup: "the one key") as harness:
        ...     harness.process_batch([("tea", 2), ("rum", 1), ("tea", 3)])
        ...     harness.values[-1]
        {'tea': 5, 'rum': 1}
    """

    __slots__ = ()

    def _map(self) -> dict[K, V]:
        mapping: dict[K, V] = self._entries.get(self._backend.current_key, {})
        return mapping

    def get(self, key: K) -> V | None:
        """Return the value under `key`, or None.

        Examples:
            >>> class Before(Cups):
            ...     def process_element(self, value, ctx):
            ...         yield self.cups.get(value[0])
            ...         self.cups.put(*value)
            >>> with harness_for(Before(), lambda cup: "the one key") as harness:
            ...     harness.process_batch([("tea", 2), ("tea", 3)])
            ...     harness.values
            [None, 2]
        """
        return self._map().get(key)

    def put(self, key: K, value: V) -> None:
        """Store a value under `key`."""
        entries, current = self._entries, self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(current)
        mapping = entries.get(current)
        if mapping is None:
            entries[current] = {key: value}
        else:
            mapping[key] = value

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Store several values."""
        if dict_value:
            current = self._backend.current_key
            if not self._table.is_next_whole:
                self._changed.add(current)
            self._entries.setdefault(current, {}).update(dict_value)

    def remove(self, key: K) -> None:
        """Remove the value under `key`, if any."""
        mapping = self._map()
        mapping.pop(key, None)
        if not self._table.is_next_whole:
            self._changed.add(self._backend.current_key)
        if not mapping:
            self.clear()

    def contains(self, key: K) -> bool:
        """Return whether `key` has a value."""
        return key in self._map()

    def items(self) -> StateView[tuple[K, V]]:
        """Return all pairs as of now; the map may change while they are read.

        Examples:
            >>> class Most(Cups):
            ...     def process_element(self, value, ctx):
            ...         self.cups.put(*value)
            ...         yield max(self.cups.items(), key=lambda pair: pair[1])
            >>> with harness_for(Most(), lambda cup: "the one key") as harness:
            ...     harness.process_batch([("tea", 2), ("rum", 1)])
            ...     harness.values
            [('tea', 2), ('tea', 2)]
        """
        return StateView(list(self._map().items()))

    def keys(self) -> StateView[K]:
        """Return all keys as of now; see `items`."""
        return StateView(list(self._map()))

    def values(self) -> StateView[V]:
        """Return all values as of now; see `items`."""
        return StateView(list(self._map().values()))

    def is_empty(self) -> bool:
        """Return whether the map is empty."""
        return not self._map()

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __getitem__(self, key: K) -> V:
        return self._map()[key]

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        if key not in self._map():
            raise KeyError(key)
        self.remove(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._map())

    def sample(self) -> Iterable[Any]:
        return [value for entries in super().sample() for value in islice(entries.values(), 1)]


class ReducingState(MergingState[T, T | None]):
    """One value per key, into which added values are folded.

    Examples:
        >>> from penstock.datastream import KeyedProcessFunction
        >>> from penstock.datastream.state import ReducingStateDescriptor
        >>> from penstock.testing import harness_for
        >>> class Total(KeyedProcessFunction):
        ...     def open(self, runtime_context):
        ...         descriptor = ReducingStateDescriptor("total", lambda one, other: one + other)
        ...         self.total = runtime_context.get_reducing_state(descriptor)
        ...     def process_element(self, value, ctx):
        ...         self.total.add(value)
        ...         yield self.total.get()
        >>> with harness_for(Total(), lambda number: "the one key") as harness:
        ...     harness.process_batch([1, 2, 3])
        ...     harness.values
        [1, 3, 6]
    """

    __slots__ = ("_reduce",)

    def __init__(self, backend: KeyHolder, table: EntryTable, reduce_function: Callable[[T, T], T]) -> None:
        super().__init__(backend, table)
        self._reduce = reduce_function

    def get(self) -> T | None:
        """Return the folded value, or None if nothing was added."""
        return self._entries.get(self._backend.current_key)

    def add(self, value: T) -> None:
        """Fold a value in."""
        entries, key = self._entries, self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(key)
        folded = entries.get(key, _MISSING)
        entries[key] = value if folded is _MISSING else self._reduce(folded, value)


class AggregatingState(MergingState[T, V | None], Generic[T, V]):
    """One accumulator per key; `get` returns the aggregate function's result.

    Examples:
        >>> from penstock.datastream import AggregateFunction, KeyedProcessFunction
        >>> from penstock.datastream.state import AggregatingStateDescriptor
        >>> from penstock.testing import harness_for
        >>> class Mean(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return 0, 0
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        >>> class RunningMean(KeyedProcessFunction):
        ...     def open(self, runtime_context):
        ...         descriptor = AggregatingStateDescriptor("mean", Mean())
        ...         self.mean = runtime_context.get_aggregating_state(descriptor)
        ...     def process_element(self, value, ctx):
        ...         self.mean.add(value)
        ...         yield self.mean.get()
        >>> with harness_for(RunningMean(), lambda number: "the one key") as harness:
        ...     harness.process_batch([1, 2])
        ...     harness.values
        [1.0, 1.5]
    """

    __slots__ = ("_function",)

    def __init__(self, backend: KeyHolder, table: EntryTable, function: Any) -> None:
        super().__init__(backend, table)
        self._function = function

    def get(self) -> V | None:
        """Return the result for the added values, or None if nothing was added."""
        key = self._backend.current_key
        accumulator = self._entries.get(key, _MISSING)
        return None if accumulator is _MISSING else self._function.get_result(accumulator)

    def add(self, value: T) -> None:
        """Add a value."""
        entries, key = self._entries, self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(key)
        accumulator = entries.get(key, _MISSING)
        if accumulator is _MISSING:
            accumulator = self._function.create_accumulator()
        entries[key] = self._function.add(value, accumulator)

    def sample(self) -> Iterable[Any]:
        """Return nothing: the function computes the results from the accumulator."""
        return ()


S = TypeVar("S", bound=State)

_APPENDING: Final = {"get": "Get", "add": "Add"}
#: by kind of state, its name in metrics, and that of each method
_NAMES: Final[dict[type[State], tuple[str, dict[str, str]]]] = {
    ValueState: ("valueState", {"value": "Get", "update": "Update"}),
    ListState: ("listState", {**_APPENDING, "add_all": "AddAll", "update": "Update"}),
    MapState: (
        "mapState",
        {
            "get": "Get",
            "__getitem__": "Get",
            "put": "Put",
            "put_all": "PutAll",
            "remove": "Remove",
            "contains": "Contains",
            "is_empty": "IsEmpty",
            "items": "EntriesInit",
            "keys": "KeysInit",
            "values": "ValuesInit",
        },
    ),
    ReducingState: ("reducingState", _APPENDING),
    AggregatingState: ("aggregatingState", _APPENDING),
}
_CLEAR: Final = "stateClearLatency"


class StateLatency:
    """Tracks the states of one operator in one subtask; see the module docstring.

    Args:
        sample_interval: of this many calls of a kind one is timed, starting with the first.
        history_size: how many durations of a kind to remember.
        steady_ns: a clock (ns) that never goes back.
    """

    def __init__(self, sample_interval: int, history_size: int, steady_ns: Callable[[], int]) -> None:
        self._sample_interval = sample_interval
        self._history_size = history_size
        self._steady_ns = steady_ns
        self._histograms: dict[str, SlidingHistogram] = {}

    def follow(self, name: str, state: S) -> S:
        """Track a state from now on, and return it."""
        kind, methods = next(names for of, names in _NAMES.items() if isinstance(state, of))
        metrics = {method: f"{kind}{operation}Latency" for method, operation in methods.items()} | {"clear": _CLEAR}
        cls = type(state)
        timed = {method: self._timed(getattr(cls, method), f"{name}.{metric}") for method, metric in metrics.items()}
        followed = types.new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(timed, __slots__=()))
        state.__class__ = followed
        return state

    def figures(self) -> dict[str, HistogramFigures]:
        """Return the durations (ns) of the calls so far, by `<state>.<metric>`."""
        return {name: histogram.figures() for name, histogram in self._histograms.items() if histogram.count}

    def _timed(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        histogram = self._histograms.setdefault(name, SlidingHistogram(self._history_size))
        steady_ns, interval, passed = self._steady_ns, self._sample_interval, 0

        def call(state: State, *args: Any) -> Any:
            nonlocal passed
            if passed:
                passed = (passed + 1) % interval
                return method(state, *args)
            passed = 1 % interval
            begun_ns = steady_ns()
            try:
                return method(state, *args)
            finally:
                histogram.update(steady_ns() - begun_ns)

        return call
