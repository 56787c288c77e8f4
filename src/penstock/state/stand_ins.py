"""Replacements for changed classes while their instances are unpickled (H4).

Unpickling creates an instance with its class's `__new__`, then passes it its attributes. A stand-in is a class whose
`__new__`, and `__setstate__` where needed, create an instance of today's class from the pickled data.

The attributes may never arrive: the pickle of an instance without attributes has none. So instances that wait for
attributes are kept in `drafts`, and the unpickling code passes an empty set of attributes to those that remain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from penstock.state.errors import StateMigrationError

_MISSING: Final = dataclasses.MISSING
_set: Final = object.__setattr__
NoDefault = Callable[[type, str], StateMigrationError]


def make_tuple_substitute(
    cls: type, before: tuple[str, ...], no_default: NoDefault, on_change: Callable[[], None]
) -> type:
    """Return a stand-in for a NamedTuple whose fields were `before`."""
    fields: tuple[str, ...] = getattr(cls, "_fields", ())
    defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})
    position = {name: index for index, name in enumerate(before)}

    def make(_: type, *args: Any) -> Any:
        on_change()
        values = []
        for name in fields:
            if name in position:
                values.append(args[position[name]])
            elif name in defaults:
                values.append(defaults[name])
            else:
                raise no_default(cls, name)
        return tuple.__new__(cls, values)

    return type(cls.__name__, (), {"__new__": make})


def make_dataclass_substitute(
    cls: type,
    before: tuple[str, ...] | None,
    drafts: list[Any],
    no_default: NoDefault,
    on_change: Callable[[], None],
) -> type:
    """Return a stand-in for a dataclass whose fields were `before`, or are unknown.

    Returns the class itself if it customizes pickling.
    """
    is_positional = vars(cls).get("__getstate__") is getattr(dataclasses, "_dataclass_getstate", _MISSING)
    if not is_positional and (hasattr(cls, "__setstate__") or _reduces_itself(cls)):
        return cls
    fields = {field.name: field for field in dataclasses.fields(cls)}
    lost = set(before or ()) - set(fields)
    slots = {name for base in cls.__mro__ for name in getattr(base, "__slots__", ())}
    has_dict = cls.__dictoffset__ != 0

    def make(stand_in: type, *args: Any) -> Any:
        draft: Any = object.__new__(stand_in)
        drafts.append(draft)
        return draft

    def fill(draft: Any, state: Any) -> None:
        _discard(drafts, draft)
        for name, value in _attributes(state, before or tuple(fields)).items():
            if name not in lost and (has_dict or name in slots):
                _set(draft, name, value)
            else:
                on_change()
        _set(draft, "__class__", cls)
        for name, field in fields.items():
            # A class attribute of that name is the default, and belongs to no instance.
            if name not in getattr(draft, "__dict__", ()) and not (name in slots and hasattr(draft, name)):
                on_change()
                _set(draft, name, _default(cls, field, no_default))

    return type(cls.__name__, (cls,), {"__slots__": (), "__new__": make, "__setstate__": fill})


def make_function_substitute(function: Callable[..., Any], drafts: list[Any]) -> type:
    """Return a stand-in whose instances a function rebuilds, from the pickled arguments or else the attributes."""

    def make(stand_in: type, *args: Any, **keywords: Any) -> Any:
        if args or keywords:
            return function(*args, **keywords)
        draft: Any = object.__new__(stand_in)
        drafts.append(draft)
        return draft

    def become(draft: Any, state: Any) -> None:
        _discard(drafts, draft)
        instance = function(**_attributes(state, ()))
        # Other objects may already refer to the draft, so it becomes the new object instead of being replaced.
        _set(draft, "__class__", type(instance))
        _set(draft, "__dict__", vars(instance))

    return type("Successor", (), {"__new__": make, "__setstate__": become})


def script_class(name: str, function: Any, stand_in_for: Callable[[str], type | None]) -> Any:
    """Wrap the cloudpickle functions that rebuild classes of the user's script, so that they return stand-ins."""
    if name == "_make_skeleton_class":

        def make(metaclass: Any, class_name: str, *args: Any) -> Any:
            return stand_in_for(class_name) or function(metaclass, class_name, *args)

        return make
    if name == "_class_setstate":

        def fill(cls: type, state: Any) -> Any:
            # Do not apply the state of the script's class to the class that replaces it.
            return cls if stand_in_for(cls.__name__) is cls else function(cls, state)

        return fill
    return function


def _attributes(state: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return an instance's pickled attributes by name, from its dictionary, its slots, or its fields in order."""
    if isinstance(state, list):
        return dict(zip(names, state, strict=False))
    attributes: dict[str, Any] = {}
    for part in state if isinstance(state, tuple) else (state,):
        attributes.update(part or {})
    return attributes


def _reduces_itself(cls: type) -> bool:
    own: Any = cls
    return own.__reduce_ex__ is not object.__reduce_ex__ or own.__reduce__ is not object.__reduce__


def _discard(drafts: list[Any], draft: Any) -> None:
    for index in range(len(drafts) - 1, -1, -1):
        if drafts[index] is draft:
            del drafts[index]
            return


def _default(cls: type, field: dataclasses.Field[Any], no_default: NoDefault) -> Any:
    if field.default is not _MISSING:
        return field.default
    if field.default_factory is not _MISSING:
        return field.default_factory()
    raise no_default(cls, field.name)
