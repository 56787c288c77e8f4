"""From the entries of a restored state to those of the state that is declared now (H4).

What lies under a key depends on the kind: a value (value, reducing and aggregating state), a list, or a dictionary.
With time to live each value, item of a list, and value of a map is a pair (value, time of the last access in ms).

State that gets a time to live counts it from the restore; state that loses it keeps what had not expired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.state.schema.declared import Declaration, StateSchema, schema_of
from penstock.state.schema.evolution import Converter, Incompatible, Moved, evolve
from penstock.state.schema.nodes import text_of

#: What a conversion gives for an entry that must go.
GONE: Final[Any] = object()


def conversion(old: StateSchema, declaration: Declaration, moved: Moved, now_ms: Callable[[], int]) -> Converter:
    """What makes an entry of the restored state one of the declared state; None when entries stay as they are.

    Raises `Incompatible` when there is no way; what is returned may raise it too.
    """
    new = schema_of(declaration)
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
    new = schema_of(declaration)
    if old.key == new.key or old.key is None or new.key is None:
        return evolve(old.key, getattr(declaration, "key_type_info", None), moved)
    raise Incompatible(f"the keys of a map may not change: {text_of(old.key)}, {text_of(new.key)}")


def _timed(element: Converter, old_ttl: int | None, new_ttl: int | None, now_ms: Callable[[], int]) -> Converter:
    """An element's conversion, with its time of access coming, going, or staying."""
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
