"""Accumulator views in separate keyed states.

The stored accumulator of a group has None in place of its views. While the group's rows are processed, these places
hold views that read and write the state of the group's key. A view that the function has replaced loses its contents.

On RocksDB, a change to a map writes only the changed keys, and appending to a list writes one row. On the heap, a
checkpoint writes the views of the changed groups as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.base.errors import MisuseError
from penstock.base.types import Row
from penstock.state.backend import KeyedStateBackend
from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor
from penstock.state.states import ListState, MapState
from penstock.table.user_functions.views import DataView, ListView, MapView

#: the index of a view that is the accumulator itself
_WHOLE = -1


class KeptListView(ListView[Any]):
    """A list in keyed state, for the current key."""

    def __init__(self, state: ListState[Any]) -> None:
        super().__init__()
        self._state = state

    def get(self) -> list[Any]:
        """See `ListView`."""
        return self._state.get()

    def add(self, value: Any) -> None:
        """See `ListView`."""
        self._state.add(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """See `ListView`."""
        self._state.add_all(values)

    def clear(self) -> None:
        """See `ListView`."""
        self._state.clear()


class KeptMapView(MapView[Any, Any]):
    """A map in keyed state, for the current key."""

    def __init__(self, state: MapState[Any, Any]) -> None:
        super().__init__()
        self._state = state

    def get(self, key: Any) -> Any:
        """See `MapView`."""
        return self._state.get(key)

    def put(self, key: Any, value: Any) -> None:
        """See `MapView`."""
        self._state.put(key, value)

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        """See `MapView`."""
        self._state.put_all(dict_value)

    def remove(self, key: Any) -> None:
        """See `MapView`."""
        self._state.remove(key)

    def contains(self, key: Any) -> bool:
        """See `MapView`."""
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """See `MapView`."""
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        """See `MapView`."""
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        """See `MapView`."""
        return self._state.values()

    def is_empty(self) -> bool:
        """See `MapView`."""
        return self._state.is_empty()

    def clear(self) -> None:
        """See `MapView`."""
        self._state.clear()


class KeptViews:
    """The views of one call.

    Args:
        keyed: the backend of their states.
        name: the prefix of the state names.
        sample: an empty accumulator. It may itself be a view, or have views as fields of a `Row`, list or tuple.
    """

    def __init__(self, keyed: KeyedStateBackend, name: str, sample: Any) -> None:
        self._keyed = keyed
        self._views: dict[int, KeptListView | KeptMapView] = {}
        for index, part in _parts(sample):
            if isinstance(part, ListView):
                self._views[index] = KeptListView(keyed.list_state(ListStateDescriptor(f"{name}.view{index}")))
            elif isinstance(part, MapView):
                self._views[index] = KeptMapView(keyed.map_state(MapStateDescriptor(f"{name}.view{index}")))

    @property
    def are_there(self) -> bool:
        """Whether the accumulator has any views."""
        return bool(self._views)

    def set_key(self, key: Any) -> None:
        """Switch all views to this key."""
        self._keyed.current_key = key

    def clear(self, key: Any) -> None:
        """Clear the state of a key."""
        self.set_key(key)
        for view in self._views.values():
            view.clear()

    def begun(self, accumulator: Any) -> Any:
        """Prepare a new accumulator: move the contents of its views to the state."""
        for view in self._views.values():
            view.clear()
        return self.attach_views(self.taken_out(accumulator))

    def attach_views(self, accumulator: Any) -> Any:
        """Insert the views into an accumulator."""
        return _insert_views(accumulator, self._views)

    def taken_out(self, accumulator: Any) -> Any:
        """Remove the views from an accumulator.

        If the function has replaced a view, store the contents of the new one.
        """
        parts = dict(_parts(accumulator))
        for index, view in self._views.items():
            part = parts.get(index)
            if part is not view:
                _replace(view, part)
        return _insert_views(accumulator, dict.fromkeys(self._views))


def _parts(accumulator: Any) -> Iterable[tuple[int, Any]]:
    if isinstance(accumulator, DataView):
        return [(_WHOLE, accumulator)]
    return enumerate(accumulator) if isinstance(accumulator, Row | list | tuple) else ()


def _insert_views(accumulator: Any, views: Any) -> Any:
    """Return an accumulator with these values in the places of its views."""
    if _WHOLE in views:
        return views[_WHOLE]
    if isinstance(accumulator, tuple):
        parts = [views.get(position, part) for position, part in enumerate(accumulator)]
        return type(accumulator)(*parts) if hasattr(accumulator, "_fields") else tuple(parts)
    for index, view in views.items():
        accumulator[index] = view
    return accumulator


def _replace(view: KeptListView | KeptMapView, replacement: Any) -> None:
    """Overwrite a view with the contents of another one."""
    if isinstance(view, KeptListView) and isinstance(replacement, ListView):
        values = list(replacement)
        view.clear()
        view.add_all(values)
    elif isinstance(view, KeptMapView) and isinstance(replacement, MapView):
        items = dict(replacement.items())
        view.clear()
        view.put_all(items)
    else:
        kind = type(view).__base__.__name__  # type: ignore[union-attr]
        raise MisuseError(f"an accumulator began with a {kind}, and now has {replacement!r} in its place")
