"""Converts the entries of a restored state to the type that is declared now (H4).

The entry of a key depends on the kind: a value (value, reducing and aggregating state), a list, or a dictionary. With a
time to live, each value, list item or map value is a pair (value, time of the last access in ms).

State that gains a time to live counts it from the restore; state that loses it keeps the entries that had not expired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.state.schema.declared import Declaration, StateSchema, to_state_schema
from penstock.state.schema.evolution import Converter, Incompatible, Moved, evolve
from penstock.state.schema.nodes import format_type_node

#: Returned by a conversion for an entry to be dropped.
GONE: Final[Any] = object()


def conversion(old: StateSchema, declaration: Declaration, moved: Moved, now_ms: Callable[[], int]) -> Converter:
    """Return the converter from entries of the restored state to the declared state; None if entries stay unchanged.

    Raises `Incompatible` if the types do not fit; so may the converter.
    """
    new = to_state_schema(declaration)
    if old.kind != new.kind:
        raise Incompatible(f"{old.kind} state cannot become {new.kind} state")
    key = _key(old, declaration, moved)
    element = _timed(evolve(old.value, declaration.type_info, moved), old.ttl_ms, new.ttl_ms, now_ms)
    if element is None and key is None:
        return None
    if new.kind == "list":
        return lambda items: _kept([item for item in map(element, items) if item is not GONE])  # type: ignore[arg-type]
    if new.kind == "map":
        return lambda entries: _kept(_converted(entries, key, element))
    return element


def _key(old: StateSchema, declaration: Declaration, moved: Moved) -> Converter:
    new = to_state_schema(declaration)
    if old.key == new.key or old.key is None or new.key is None:
        return evolve(old.key, getattr(declaration, "key_type_info", None), moved)
    raise Incompatible(f"the keys of a map may not change: {format_type_node(old.key)}, {format_type_node(new.key)}")


def _timed(element: Converter, old_ttl: int | None, new_ttl: int | None, now_ms: Callable[[], int]) -> Converter:
    """Wrap an element's converter to add, drop or keep its access time."""
    if old_ttl is None and new_ttl is None:
        return element
    if old_ttl is not None and new_ttl is not None:
        return None if element is None else lambda pair: (_applied(element, pair[0]), pair[1])
    now = now_ms()
    if old_ttl is None:
        return lambda value: (_applied(element, value), now)
    return lambda pair: GONE if pair[1] + old_ttl <= now else _applied(element, pair[0])


def _converted(entries: dict[Any, Any], key_check: Converter, element: Converter) -> dict[Any, Any]:
    if key_check is not None:
        for key in entries:
            key_check(key)
    pairs = ((key, _applied(element, value)) for key, value in entries.items())
    return {key: value for key, value in pairs if value is not GONE}


def _kept(collection: Any) -> Any:
    return collection or GONE


def _applied(converter: Converter, value: Any) -> Any:
    return value if converter is None or value is None else converter(value)
