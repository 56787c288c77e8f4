"""Views around the states of a backend: keyed state whose values expire, or have a declared type (D1).

**Expiry.** Where a state without expiry holds a value, the inner state of a view holds `(value, time of the last access
in ms)`: a value or accumulator, each list item, each map value. Snapshots hold the same pairs, so a program that reads
one finds the value at [0].

**Rules.** A value has expired if `time of the last access + time to live <= now`, by the task's clock. Writing counts
as an access; reading does with `OnReadAndWrite`. Reading an expired value removes it, and returns it once more only
with `ReturnExpiredIfNotCleanedUp`.

`Expiry` has the expiry rules of one state, and the sweeper that every access notifies.

**Declared types** (`base.declared_values`). Rows with names get the type's field order, and a FLOAT has single
precision, with or without expiry. States of types that contain neither get no view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Generic, TypeVar, cast

from penstock.base.declared_values import Change, fitting
from penstock.state import states
from penstock.state.backend import KeyedStateBackend
from penstock.state.ttl_config import Cleaning, StateTtlConfig


class Expiry:
    """The expiry rules of one state, and its cleanup. `sweeper` is None if nothing sweeps its entries."""

    __slots__ = ("_now_ms", "_sweeper", "reading_counts", "shows_expired", "ttl_ms")

    def __init__(self, config: StateTtlConfig, now_ms: Callable[[], int], sweeper: Cleaning | None) -> None:
        self.ttl_ms = config.ttl_ms
        self.reading_counts = config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
        self.shows_expired = config.get_state_visibility() is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
        self._now_ms = now_ms
        self._sweeper = sweeper

    def access(self) -> int:
        """Clean up a little on an access to the state, and return the time (ms)."""
        if self._sweeper is not None:
            self._sweeper.on_access()
        return self._now_ms()


def build_expiry(keyed: KeyedStateBackend, descriptor: states.StateDescriptor, config: StateTtlConfig) -> Expiry:
    """Return the rules of a declared state. It has a single sweeper, however often this is called."""
    name = descriptor.name
    if name not in keyed.sweepers and (sweeper := keyed.build_sweeper(descriptor, config)) is not None:
        keyed.sweepers[name] = sweeper
    return Expiry(config, keyed.now_ms, keyed.sweepers.get(name))


T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class TtlValueState(states.ValueState[T]):
    """One value per key, which expires."""

    __slots__ = ("_expiry", "_inner")

    def __init__(self, inner: states.ValueState[Any], expiry: Expiry) -> None:
        self._inner = inner
        self._expiry = expiry

    def value(self) -> T | None:
        pair = _read(self._inner, self._expiry)
        return None if pair is None else cast("T", pair[0])

    def update(self, value: T | None) -> None:
        now = self._expiry.access()
        self._inner.update(None if value is None else (value, now))

    def clear(self) -> None:
        self._inner.clear()

    def sample(self) -> Iterable[Any]:
        return self._inner.sample()


class TtlListState(states.ListState[T]):
    """A list per key, whose items expire individually."""

    __slots__ = ("_expiry", "_inner")

    def __init__(self, inner: states.ListState[Any], expiry: Expiry) -> None:
        self._inner = inner
        self._expiry = expiry

    def get(self) -> list[T]:
        expiry = self._expiry
        now = expiry.access()
        pairs = self._inner.get()
        live = [pair for pair in pairs if pair[1] + expiry.ttl_ms > now]
        visible = pairs if expiry.shows_expired else live
        if pairs and (expiry.reading_counts or len(live) < len(pairs)):
            self._inner.update([(item, now) for item, _ in live] if expiry.reading_counts else live)
        return [item for item, _ in visible]

    def add(self, value: T) -> None:
        now = self._expiry.access()
        self._inner.add((value, now))

    def add_all(self, values: Iterable[T]) -> None:
        now = self._expiry.access()
        self._inner.add_all([(value, now) for value in values])

    def update(self, values: Iterable[T]) -> None:
        now = self._expiry.access()
        self._inner.update([(value, now) for value in values])

    def clear(self) -> None:
        self._inner.clear()

    def sample(self) -> Iterable[Any]:
        return self._inner.sample()


class TtlMapState(states.MapState[K, V]):
    """A map per key, whose values expire individually."""

    __slots__ = ("_expiry", "_inner")

    def __init__(self, inner: states.MapState[Any, Any], expiry: Expiry) -> None:
        self._inner = inner
        self._expiry = expiry

    def _find(self, key: K) -> tuple[Any] | None:
        """Return the value under a key in a tuple, because it may be None."""
        expiry, inner = self._expiry, self._inner
        now = expiry.access()
        pair = inner.get(key)
        if pair is None:
            return None
        if pair[1] + expiry.ttl_ms <= now:
            inner.remove(key)
            return pair[:1] if expiry.shows_expired else None
        if expiry.reading_counts:
            inner.put(key, (pair[0], now))
        return cast("tuple[Any]", pair[:1])

    def get(self, key: K) -> V | None:
        pair = self._find(key)
        return None if pair is None else cast("V", pair[0])

    def contains(self, key: K) -> bool:
        return self._find(key) is not None

    def put(self, key: K, value: V) -> None:
        now = self._expiry.access()
        self._inner.put(key, (value, now))

    def put_all(self, dict_value: dict[K, V]) -> None:
        now = self._expiry.access()
        self._inner.put_all({key: (value, now) for key, value in dict_value.items()})

    def remove(self, key: K) -> None:
        self._inner.remove(key)

    def items(self) -> states.StateView[tuple[K, V]]:
        return states.StateView(self._pairs())

    def _pairs(self) -> list[tuple[K, V]]:
        expiry, inner = self._expiry, self._inner
        now = expiry.access()
        visible = []
        for key, (value, accessed_ms) in inner.items():
            has_expired = accessed_ms + expiry.ttl_ms <= now
            if has_expired:
                inner.remove(key)
            elif expiry.reading_counts:
                inner.put(key, (value, now))
            if not has_expired or expiry.shows_expired:
                visible.append((key, value))
        return visible

    def keys(self) -> states.StateView[K]:
        return states.StateView([key for key, _ in self._pairs()])

    def values(self) -> states.StateView[V]:
        return states.StateView([value for _, value in self._pairs()])

    def is_empty(self) -> bool:
        """Return whether no value would be returned; this does not count as a read that extends the time to live."""
        expiry = self._expiry
        now = expiry.access()
        return not any(expiry.shows_expired or pair[1] + expiry.ttl_ms > now for pair in self._inner.values())

    def clear(self) -> None:
        self._inner.clear()

    def sample(self) -> Iterable[Any]:
        return self._inner.sample()

    def __getitem__(self, key: K) -> V:
        pair = self._find(key)
        if pair is None:
            raise KeyError(key)
        return cast("V", pair[0])

    def __delitem__(self, key: K) -> None:
        if self._find(key) is None:
            raise KeyError(key)
        self._inner.remove(key)

    def __len__(self) -> int:
        return len(self._pairs())


class TtlReducingState(states.ReducingState[T]):
    """One folded value per key, which expires as a whole."""

    __slots__ = ("_expiry", "_inner")

    def __init__(self, inner: states.ValueState[Any], expiry: Expiry, reduce_function: Callable[[T, T], T]) -> None:
        self._inner = inner
        self._expiry = expiry
        self._reduce = reduce_function

    def get(self) -> T | None:
        pair = _read(self._inner, self._expiry)
        return None if pair is None else cast("T", pair[0])

    def add(self, value: T) -> None:
        pair = _read(self._inner, self._expiry)
        folded = value if pair is None else self._reduce(pair[0], value)
        self._inner.update((folded, self._expiry.access()))

    def clear(self) -> None:
        self._inner.clear()

    def sample(self) -> Iterable[Any]:
        return self._inner.sample()


class TtlAggregatingState(states.AggregatingState[T, V], Generic[T, V]):
    """One accumulator per key, which expires as a whole."""

    __slots__ = ("_expiry", "_inner")

    def __init__(self, inner: states.ValueState[Any], expiry: Expiry, function: Any) -> None:
        self._inner = inner
        self._expiry = expiry
        self._function = function

    def get(self) -> V | None:
        pair = _read(self._inner, self._expiry)
        return None if pair is None else cast("V", self._function.get_result(pair[0]))

    def add(self, value: T) -> None:
        pair = _read(self._inner, self._expiry)
        accumulator = self._function.create_accumulator() if pair is None else pair[0]
        self._inner.update((self._function.add(value, accumulator), self._expiry.access()))

    def clear(self) -> None:
        self._inner.clear()


def _read(inner: states.ValueState[Any], expiry: Expiry) -> tuple[Any] | None:
    """Return the current key's value in a tuple; None if it is missing, or has expired and is not shown."""
    now = expiry.access()
    pair = inner.value()
    if pair is None:
        return None
    if pair[1] + expiry.ttl_ms <= now:
        inner.clear()
        return pair[:1] if expiry.shows_expired else None
    if expiry.reading_counts:
        inner.update((pair[0], now))
    return cast("tuple[Any]", pair[:1])


def open_value_state(keyed: KeyedStateBackend, descriptor: states.ValueStateDescriptor) -> states.ValueState[Any]:
    """Open the value state that a descriptor declares, with or without expiry."""
    config, inner = descriptor.ttl_config, keyed.value_state(descriptor)
    return inner if config is None else TtlValueState(inner, build_expiry(keyed, descriptor, config))


def open_list_state(keyed: KeyedStateBackend, descriptor: states.ListStateDescriptor) -> states.ListState[Any]:
    """See `open_value_state`."""
    config, inner = descriptor.ttl_config, keyed.list_state(descriptor)
    return inner if config is None else TtlListState(inner, build_expiry(keyed, descriptor, config))


def open_map_state(keyed: KeyedStateBackend, descriptor: states.MapStateDescriptor) -> states.MapState[Any, Any]:
    """See `open_value_state`."""
    config, inner = descriptor.ttl_config, keyed.map_state(descriptor)
    return inner if config is None else TtlMapState(inner, build_expiry(keyed, descriptor, config))


def open_reducing_state(
    keyed: KeyedStateBackend, descriptor: states.ReducingStateDescriptor
) -> states.ReducingState[Any]:
    """See `open_value_state`."""
    config = descriptor.ttl_config
    if config is None:
        return keyed.reducing_state(descriptor)
    inner = keyed.value_state(descriptor)
    return TtlReducingState(inner, build_expiry(keyed, descriptor, config), descriptor.reduce_function)


def open_aggregating_state(
    keyed: KeyedStateBackend, descriptor: states.AggregatingStateDescriptor
) -> states.AggregatingState[Any, Any]:
    """See `open_value_state`."""
    config = descriptor.ttl_config
    if config is None:
        return keyed.aggregating_state(descriptor)
    inner = keyed.value_state(descriptor)
    return TtlAggregatingState(inner, build_expiry(keyed, descriptor, config), descriptor.agg_function)


def declared_value_state(
    descriptor: states.ValueStateDescriptor, state: states.ValueState[Any]
) -> states.ValueState[Any]:
    """Return the state, or the view whose values follow the type."""
    change = fitting(descriptor.type_info, True)
    return state if change is None else _DeclaredValue(state, change)


def declared_list_state(descriptor: states.ListStateDescriptor, state: states.ListState[Any]) -> states.ListState[Any]:
    """Return the state, or the view whose values follow the type."""
    change = fitting(descriptor.type_info, True)
    return state if change is None else _DeclaredList(state, change)


def declared_map_state(
    descriptor: states.MapStateDescriptor, state: states.MapState[Any, Any]
) -> states.MapState[Any, Any]:
    """Return the state, or the view whose values follow the type."""
    keys, values = fitting(descriptor.key_type_info, True), fitting(descriptor.type_info, True)
    return state if keys is None and values is None else _DeclaredMap(state, keys or _as_it_is, values or _as_it_is)


def declared_reducing_state(
    descriptor: states.ReducingStateDescriptor,
    open_state: Callable[[states.ReducingStateDescriptor], states.ReducingState[Any]],
) -> states.ReducingState[Any]:
    """Return the state that `open_state` opens, or the view that converts each value and each result of the fold."""
    change = fitting(descriptor.type_info, True)
    if change is None:
        return open_state(descriptor)
    changed, reduce = copy(descriptor), descriptor.reduce_function
    changed.reduce_function = lambda left, right: change(reduce(left, right))
    return _DeclaredReducing(open_state(changed), change)


def declared_aggregating_state(
    descriptor: states.AggregatingStateDescriptor,
    open_state: Callable[[states.AggregatingStateDescriptor], states.AggregatingState[Any, Any]],
) -> states.AggregatingState[Any, Any]:
    """Return the state that `open_state` opens, or one whose accumulators follow the type."""
    change = fitting(descriptor.type_info, True)
    if change is None:
        return open_state(descriptor)
    changed = copy(descriptor)
    changed.agg_function = _DeclaredAggregate(descriptor.agg_function, change)
    return open_state(changed)


def _as_it_is(value: Any) -> Any:
    return value


class _DeclaredValue(states.ValueState[Any]):
    __slots__ = ("_change", "_state")

    def __init__(self, state: states.ValueState[Any], change: Change) -> None:
        self._state = state
        self._change = change

    def value(self) -> Any:
        return self._state.value()

    def update(self, value: Any) -> None:
        self._state.update(self._change(value))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _DeclaredList(states.ListState[Any]):
    __slots__ = ("_change", "_state")

    def __init__(self, state: states.ListState[Any], change: Change) -> None:
        self._state = state
        self._change = change

    def get(self) -> list[Any]:
        return self._state.get()

    def add(self, value: Any) -> None:
        self._state.add(self._change(value))

    def add_all(self, values: Iterable[Any]) -> None:
        self._state.add_all(list(map(self._change, values)))

    def update(self, values: Iterable[Any]) -> None:
        self._state.update(list(map(self._change, values)))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _DeclaredMap(states.MapState[Any, Any]):
    __slots__ = ("_key", "_state", "_value")

    def __init__(self, state: states.MapState[Any, Any], key: Change, value: Change) -> None:
        self._state = state
        self._key = key
        self._value = value

    def get(self, key: Any) -> Any:
        return self._state.get(self._key(key))

    def put(self, key: Any, value: Any) -> None:
        self._state.put(self._key(key), self._value(value))

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        self._state.put_all({self._key(key): self._value(value) for key, value in dict_value.items()})

    def remove(self, key: Any) -> None:
        self._state.remove(self._key(key))

    def contains(self, key: Any) -> bool:
        return self._state.contains(self._key(key))

    def items(self) -> states.StateView[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> states.StateView[Any]:
        return self._state.keys()

    def values(self) -> states.StateView[Any]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()

    def __getitem__(self, key: Any) -> Any:
        return self._state[self._key(key)]

    def __delitem__(self, key: Any) -> None:
        del self._state[self._key(key)]

    def __len__(self) -> int:
        return len(self._state)


class _DeclaredReducing(states.ReducingState[Any]):
    __slots__ = ("_change", "_state")

    def __init__(self, state: states.ReducingState[Any], change: Change) -> None:
        self._state = state
        self._change = change

    def get(self) -> Any:
        return self._state.get()

    def add(self, value: Any) -> None:
        self._state.add(self._change(value))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _DeclaredAggregate:
    """An aggregate function whose accumulators follow the type."""

    def __init__(self, function: Any, change: Change) -> None:
        self._function = function
        self._change = change
        self.get_result = function.get_result

    def create_accumulator(self) -> Any:
        return self._change(self._function.create_accumulator())

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._change(self._function.add(value, accumulator))

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return self._change(self._function.merge(acc_a, acc_b))
