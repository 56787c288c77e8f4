"""Copies of values that user code may modify later, and recursion deep enough to walk large trees.

**Copies.** A value is *immutable* if nothing can change it: a number, text, a time, or a tuple, frozen dataclass or
frozenset of immutable values. `detached` returns immutable values themselves and deep copies of all others. An object
that cannot be copied, such as an open file, is returned itself: it cannot leave the process either.

**Deep calls.** Expressions and plans are trees, and the code that walks them recurses one or a few calls per level.
Python's limit of 1,000 calls guards against endless recursion, but a sum of 200 terms reaches it. A process that meets
such a tree raises its limit once and keeps it. Calls of Python code use no C stack; code that does (hashes,
comparisons, pickles) stays far below a stack of 8 MB at this limit. Deeper trees are rejected when they are created.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable
from functools import wraps
from gc import get_referents
from itertools import chain
from sys import getrefcount
from typing import Any, Final, ParamSpec, TypeVar

from penstock.base.errors import UnsupportedError
from penstock.base.output_tag import OutputTag
from penstock.base.types import Row

T = TypeVar("T")

Memo = dict[int, Any]
Copier = Callable[[Any, Memo], Any]

#: Exact classes whose instances are immutable.
IMMUTABLE: Final[frozenset[type]] = frozenset(
    {
        type(None),
        type(NotImplemented),
        type(...),
        bool,
        bytes,
        complex,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        decimal.Decimal,
        float,
        fractions.Fraction,
        int,
        range,
        re.Match,
        re.Pattern,
        str,
        type,
        types.BuiltinFunctionType,
        types.FunctionType,
        types.ModuleType,
        uuid.UUID,
    }
)
#: Classes that are also immutable in all their subclasses.
_IMMUTABLE_BASES: Final = (
    *(IMMUTABLE - {range, re.Match, re.Pattern}),
    enum.Enum,
    pathlib.PurePath,
    datetime.tzinfo,
    OutputTag,
)
#: Packages whose objects are immutable; copies of them would be large.
_IMMUTABLE_PACKAGES: Final = ("pyarrow",)
#: The number of classes whose copy function is cached; small, because a session outlives its programs' classes.
_CLASSES_MAX: Final = 256
#: The flag of classes created at run time, see `type.__flags__`.
_HEAP_TYPE: Final = 1 << 9
#: Attributes with which a class customizes its creation or copying.
_OWN_WAYS: Final = frozenset(
    {"__copy__", "__deepcopy__", "__getnewargs__", "__getnewargs_ex__", "__getstate__", "__new__", "__reduce__"}
    | {"__reduce_ex__", "__setstate__", "__slots__"}
)


def detached(value: Any) -> Any:
    """Return the value itself if it is immutable or cannot be copied, otherwise a deep copy."""
    cls = value.__class__
    if cls in IMMUTABLE or (cls is tuple and IMMUTABLE.issuperset(map(type, value))):
        return value
    return _copied(value, {})


def separated(values: list[Any]) -> list[Any]:
    """Return the values, copied so that they share no mutable object with each other or with the caller.

    Returns the list itself if all values are numbers, text and the like, or all are tuples of these.
    """
    classes = set(map(type, values))
    if classes <= IMMUTABLE or (classes == {tuple} and IMMUTABLE.issuperset(map(type, chain.from_iterable(values)))):
        return values
    return list(map(detached, values))


def is_immutable(value: Any) -> bool:
    """Return whether the value is immutable, so that `detached` returns it itself. Looks into tuples and the like."""
    cls = value.__class__
    if cls in IMMUTABLE:
        return True
    if cls is tuple and IMMUTABLE.issuperset(map(type, value)):
        return True
    copier = _select_copier(cls)
    if copier is _copy_nothing:
        return True
    if copier in (_copy_tuple, _copy_named_tuple, _copy_frozenset):
        return all(map(is_immutable, value))
    return copier is _copy_frozen and all(map(is_immutable, _list_field_values(value)))


def is_plain_instance(value: Any) -> bool:
    """Return whether the value's class is written in Python and its attributes are its whole state."""
    return _select_copier(value.__class__) is _copy_instance


def attribute_values(owner: Any) -> list[Any] | None:
    """Return the values of an object's attributes, in slots or not, or None if it has no `__dict__`.

    CPython creates an object's `__dict__` on first access, which makes every later attribute access slower. Inspecting
    a user's function must not slow it down.
    """
    cls = type(owner)
    if not cls.__dictoffset__:
        return None
    values = [value for value in get_referents(owner) if value is not cls]
    return list(vars(owner).values()) if any(value.__class__ is dict for value in values) else values


def has_own_parts(value: Any) -> bool:
    """Return whether nothing else refers to the mutable objects in a value."""
    cls, references = value.__class__, _PART_REFERENCES
    parts: Any
    if cls is list or cls is tuple:
        parts = value
    elif cls is dict:
        if not IMMUTABLE.issuperset(map(type, value)):
            return False
        parts = value.values()
    elif cls is Row:
        parts = value._values
    elif is_plain_instance(value):
        parts, references = get_referents(value), references + 1  # the returned list holds a reference as well
    else:
        return cls is bytearray or (cls is set and IMMUTABLE.issuperset(map(type, value)))
    if IMMUTABLE.issuperset(map(type, parts)):
        return True
    return all(
        part.__class__ in IMMUTABLE or (count <= references and has_own_parts(part)) or is_immutable(part)
        for part, count in zip(parts, list(map(getrefcount, parts)), strict=True)
    )


def with_own_results(function: Callable[[T], Any]) -> Callable[[T], Any]:
    """Wrap a function so that it copies any result it may change later, because something else refers to it."""

    def call(argument: T) -> Any:
        result = function(argument)
        if result.__class__ in IMMUTABLE or (getrefcount(result) <= _RESULT_REFERENCES and has_own_parts(result)):
            return result
        return detached(result)

    return call


def _copied(value: Any, memo: Memo) -> Any:
    cls = value.__class__
    if cls in IMMUTABLE:
        return value
    if id(value) in memo:
        return memo[id(value)]
    return _select_copier(cls)(value, memo)


@functools.lru_cache(_CLASSES_MAX)
def _select_copier(cls: type) -> Copier:
    if cls in _COPIERS:
        return _COPIERS[cls]
    if issubclass(cls, _IMMUTABLE_BASES) or cls.__module__.partition(".")[0] in _IMMUTABLE_PACKAGES:
        return _copy_nothing
    if any((base.__module__, base.__name__) == ("numpy", "generic") for base in cls.__mro__):
        return _copy_nothing
    if issubclass(cls, tuple):
        return _copy_named_tuple if hasattr(cls, "_make") else _copy_object
    if dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen and not hasattr(cls, "__deepcopy__"):  # type: ignore[attr-defined]
        return _copy_frozen
    return _copy_instance if _is_plain_class(cls) else _copy_object


def _is_plain_class(cls: type) -> bool:
    """Return whether a class is written in Python and an instance's whole state is its `__dict__`."""
    bases = cls.__mro__[:-1]
    own = {name for base in bases for name in vars(base)}
    return all(base.__flags__ & _HEAP_TYPE for base in bases) and "__dict__" in own and own.isdisjoint(_OWN_WAYS)


def _copy_nothing(value: Any, memo: Memo) -> Any:
    return value


def _copy_list(value: list[Any], memo: Memo) -> list[Any]:
    if IMMUTABLE.issuperset(map(type, value)):
        copied = memo[id(value)] = value.copy()
        return copied
    copied = memo[id(value)] = []
    for item in value:  # often tuples
        is_plain = item.__class__ is tuple and IMMUTABLE.issuperset(map(type, item))
        copied.append(item if is_plain else _copied(item, memo))
    return copied


def _copy_dict(value: dict[Any, Any], memo: Memo) -> dict[Any, Any]:
    if IMMUTABLE.issuperset(map(type, value.values())) and IMMUTABLE.issuperset(map(type, value)):
        copied = memo[id(value)] = value.copy()
        return copied
    copied = memo[id(value)] = {}
    copied.update([(_copied(key, memo), _copied(item, memo)) for key, item in value.items()])
    return copied


def _copy_set(value: set[Any], memo: Memo) -> set[Any]:
    is_flat = IMMUTABLE.issuperset(map(type, value))
    copied = memo[id(value)] = value.copy() if is_flat else {_copied(item, memo) for item in value}
    return copied


def _copy_frozenset(value: frozenset[Any], memo: Memo) -> frozenset[Any]:
    return value if all(map(is_immutable, value)) else frozenset([_copied(item, memo) for item in value])


def _copy_tuple(value: tuple[Any, ...], memo: Memo) -> tuple[Any, ...]:
    if IMMUTABLE.issuperset(map(type, value)):
        return value
    copied = tuple([_copied(item, memo) for item in value])
    # A tuple that contains itself has already been copied by now.
    return memo.setdefault(id(value), value if _are_same(value, copied) else copied)  # type: ignore[no-any-return]


def _copy_named_tuple(value: Any, memo: Memo) -> Any:
    copied = tuple([_copied(item, memo) for item in value])
    return value if _are_same(value, copied) else value._make(copied)


def _copy_row(value: Row, memo: Memo) -> Row:
    copied = memo[id(value)] = value.__copy__()
    if not IMMUTABLE.issuperset(map(type, copied._values)):
        copied._values = [_copied(item, memo) for item in copied._values]
    return copied


def _copy_bytearray(value: bytearray, memo: Memo) -> bytearray:
    copied = memo[id(value)] = bytearray(value)
    return copied


def _copy_frozen(value: Any, memo: Memo) -> Any:
    return value if all(map(is_immutable, _list_field_values(value))) else _copy_object(value, memo)


def _copy_instance(value: Any, memo: Memo) -> Any:
    """Copy like `copy.deepcopy`, which takes five times as long."""
    copied = memo[id(value)] = object.__new__(value.__class__)
    copied.__dict__.update(_copy_dict(vars(value), memo))
    return copied


def _copy_object(value: Any, memo: Memo) -> Any:
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - user code; the object stays where it is
        return value


def _list_field_values(value: Any) -> Iterable[Any]:
    return [getattr(value, field.name, None) for field in dataclasses.fields(value)]


def _are_same(items: Iterable[Any], other: Iterable[Any]) -> bool:
    return all(mine is theirs for mine, theirs in zip(items, other, strict=True))


_COPIERS: Final[dict[type, Copier]] = {
    bytearray: _copy_bytearray,
    dict: _copy_dict,
    frozenset: _copy_frozenset,
    list: _copy_list,
    set: _copy_set,
    tuple: _copy_tuple,
    Row: _copy_row,
}


def _count_references(argument: Any) -> int:
    """Return a result's reference count, in the same call form as in `with_own_results`."""
    result = object()
    return getrefcount(result)


#: CPython's reference count for a result without other references, and for an object referenced only by a container.
_RESULT_REFERENCES: Final = _count_references(None)
_PART_REFERENCES: Final = next(map(getrefcount, [object()]))


P = ParamSpec("P")
R = TypeVar("R")

#: the recursion limit of a process that has met a deep tree
DEEP_CALLS_MAX: Final = 12_000
#: how many levels a statement may nest, and how many operators may follow one another at one level
NESTING_MAX: Final = 500
#: trees of up to this many levels fit Python's default limit
SHALLOW_LEVELS: Final = 25


def allow_deep_calls() -> None:
    """Raise the process's recursion limit to at least `DEEP_CALLS_MAX`."""
    if sys.getrecursionlimit() < DEEP_CALLS_MAX:
        sys.setrecursionlimit(DEEP_CALLS_MAX)


def repeats_if_deep(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function without side effects to retry with deep calls allowed after a RecursionError.

    Raises `UnsupportedError` if deep calls were already allowed and are not enough.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RecursionError as error:
            if sys.getrecursionlimit() >= DEEP_CALLS_MAX:
                raise _too_deep() from error
        allow_deep_calls()
        try:
            return function(*args, **kwargs)
        except RecursionError as error:
            raise _too_deep() from error

    return call


def _too_deep() -> UnsupportedError:
    return UnsupportedError("the query nests too deep: write a part of it into a table, and read this")
