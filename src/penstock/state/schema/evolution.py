"""Decides whether and how values of one type can become values of another (H4). Pure.

| from | may become |
| --- | --- |
| BYTE, SHORT, INT, LONG | a wider one of these, BIG_INT, BIG_DEC |
| BIG_INT | BIG_DEC |
| BYTE, SHORT | FLOAT, DOUBLE |
| INT | DOUBLE |
| FLOAT | DOUBLE |
| CHAR | STRING |
| a row | a row with other fields: new ones are None, removed ones are dropped, the others are converted by name |
| a class (`Types.CLASS`) | the same or its registered successor: new fields get defaults, removed ones are dropped |
| a tuple | a tuple of the same length, whose fields are converted |
| lists, arrays, maps | the same with converted elements or values; map keys must not change |
| nothing declared | any type that accepts the existing values |
| any type | nothing declared |

A number type becomes another only if no value can change: Avro also lets INT become FLOAT and LONG become DOUBLE, which
loses digits. Fields of a row without names are matched by position, because their names are f0, f1 and so on. A renamed
field counts as one removed and one new field.
"""

from __future__ import annotations

import dataclasses
import decimal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.base.basic_types import TypeInformation
from penstock.base.class_types import ClassTypeInfo, class_path
from penstock.base.composite_types import MapTypeInfo, RowTypeInfo, TupleTypeInfo
from penstock.base.types import Row
from penstock.state.schema.nodes import Node, format_type_node, get_type_name, to_type_node

#: Converts a value that is not None to the new type; None if values stay unchanged.
Converter = Callable[[Any], Any] | None
#: The successors of classes in snapshots, by path; see `penstock.state.migrations`.
Moved = Mapping[str, Any]


class Incompatible(Exception):
    """Raised if types do not fit; the message says where and why."""


def _as_it_is(value: Any) -> Any:
    return value


_INTEGERS: Final = ("BYTE", "SHORT", "INT", "LONG", "BIG_INT")
_WIDENING: Final[dict[tuple[str, str], Callable[[Any], Any]]] = {
    **{(a, b): _as_it_is for i, a in enumerate(_INTEGERS) for b in _INTEGERS[i + 1 :]},
    **{(a, "BIG_DEC"): decimal.Decimal for a in _INTEGERS},
    **{(a, b): float for a in ("BYTE", "SHORT") for b in ("FLOAT", "DOUBLE")},
    ("INT", "DOUBLE"): float,
    ("FLOAT", "DOUBLE"): _as_it_is,
    ("CHAR", "STRING"): _as_it_is,
}
_OF_ELEMENTS: Final = ("LIST", "OBJECT_ARRAY", "BASIC_ARRAY", "PRIMITIVE_ARRAY")


def evolve(old: Node, new: TypeInformation | None, moved: Moved) -> Converter:
    """Return the converter of values from `old` to `new`; raise `Incompatible` if they cannot be converted."""
    target = to_type_node(new)
    if old == target or new is None or target is None:
        return None
    if old is None:
        return _accepted(new)
    name = get_type_name(old)
    if isinstance(old, str) and isinstance(target, str):
        widened = _WIDENING.get((old, target))
        if widened is not None:
            return None if widened is _as_it_is else widened
    elif isinstance(old, dict) and name == get_type_name(target):
        if isinstance(new, RowTypeInfo):
            return _row(old["ROW"], new, moved)
        if isinstance(new, TupleTypeInfo):
            return _tuple(old["TUPLE"], new, moved)
        if isinstance(new, MapTypeInfo):
            return _map(old["MAP"], new, moved)
        if isinstance(new, ClassTypeInfo):
            return _class(old["CLASS"], new, moved)
        if name in _OF_ELEMENTS:
            return _elements(evolve(old[name], new.element_type, moved))  # type: ignore[attr-defined]
    raise Incompatible(f"{format_type_node(old)} cannot become {format_type_node(target)}")


def _within(part: str, old: Node, new: TypeInformation | None, moved: Moved) -> Converter:
    try:
        return evolve(old, new, moved)
    except Incompatible as error:
        raise Incompatible(f"{part}: {error}") from None


def _accepted(new: TypeInformation) -> Converter:
    def check(value: Any) -> Any:
        if not new.accepts(value):
            raise Incompatible(f"nothing was declared, and a value of type {type(value).__qualname__} does not fit")
        return value

    return check


def _row(old: list[list[Any]], new: RowTypeInfo, moved: Moved) -> Converter:
    before = {name: (index, node) for index, (name, node) in enumerate(old)}
    names = new.get_field_names()
    #: for each new field, its old position (or None) and its converter
    plan: list[tuple[int | None, Converter]] = []
    for name, info in zip(names, new.get_field_types(), strict=True):
        index, node = before.get(name, (None, None))
        plan.append((index, None if index is None else _within(f"field {name}", node, info, moved)))
    old_names = [name for name, _ in old]
    if old_names == names and not any(converter for _, converter in plan):
        return None

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            values = [value.get(name) for name in old_names]
        elif len(value) == len(old_names):
            values = list(value)
        else:
            raise Incompatible(f"a row of {len(value)} fields is not of the declared type of {len(old_names)}")
        fields = [None if index is None else _applied(convert_one, values[index]) for index, convert_one in plan]
        if isinstance(value, dict):
            return dict(zip(names, fields, strict=True))
        if not isinstance(value, Row):
            return type(value)(fields)
        row = Row.of_kind(value.get_row_kind(), *fields)
        if value._fields is not None:
            row.set_field_names(names)
        return row

    return convert


def _tuple(old: list[Node], new: TupleTypeInfo, moved: Moved) -> Converter:
    fields = new.get_field_types()
    if len(old) != len(fields):
        raise Incompatible(f"a tuple of {len(old)} fields cannot become one of {len(fields)}: use rows or a NamedTuple")
    converters = [_within(f"field {i}", *pair, moved) for i, pair in enumerate(zip(old, fields, strict=True))]
    if not any(converters):
        return None
    return lambda value: tuple(_applied(c, item) for c, item in zip(converters, value, strict=True))


def _map(old: list[Node], new: MapTypeInfo, moved: Moved) -> Converter:
    if old[0] != to_type_node(new.key_type_info):
        raise Incompatible(
            f"keys may not change: {format_type_node(old[0])}, {format_type_node(to_type_node(new.key_type_info))}"
        )
    converter = _within("values", old[1], new.value_type_info, moved)
    if converter is None:
        return None
    return lambda value: {key: _applied(converter, item) for key, item in value.items()}


def _elements(converter: Converter) -> Converter:
    if converter is None:
        return None

    def convert(value: Any) -> Any:
        if isinstance(value, bytes | bytearray):
            raise Incompatible("an array of bytes cannot become an array of other numbers")
        return type(value)(_applied(converter, item) for item in value)

    return convert


def _class(old: Sequence[Any], new: ClassTypeInfo, moved: Moved) -> Converter:
    """Return the converter of field types; the loader maps the fields themselves (see `penstock.state.loading`)."""
    path, family, old_fields = old
    present = class_path(new.cls)
    successor = moved.get(path)
    if successor is not None and not isinstance(successor, type):
        return None  # a registered function has already converted the values
    if path != present and (successor is None or class_path(successor) != present):
        raise Incompatible(
            f"class {path} cannot become class {present}: if it was moved or renamed, "
            f"penstock.state.migrations.register({path!r}, {new.cls.__qualname__})"
        )
    if family != to_type_node(new)["CLASS"][1]:
        raise Incompatible(f"class {path} was a {family}: register a function that converts one to the other")
    before = dict(old_fields)
    for name in missing_defaults(new.cls, before):
        raise Incompatible(f"field {name} of class {present} is new and has no default")
    converters = {
        name: converter
        for name, info in new.field_types.items()
        if name in before and (converter := _within(f"field {name}", before[name], info, moved)) is not None
    }
    if not converters:
        return None

    def convert(value: Any) -> Any:
        changed = {name: _applied(c, getattr(value, name)) for name, c in converters.items()}
        if family == "tuple":
            return value._replace(**changed)
        for name, field in changed.items():
            object.__setattr__(value, name, field)
        return value

    return convert


def missing_defaults(cls: type, known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of a dataclass or NamedTuple that are not among `known` and have no default."""
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            has_default = not (field.default is field.default_factory is dataclasses.MISSING)
            if field.name not in known and not has_default:
                yield field.name
    else:
        defaults = getattr(cls, "_field_defaults", {})
        yield from (name for name in getattr(cls, "_fields", ()) if name not in known and name not in defaults)


def _applied(converter: Converter, value: Any) -> Any:
    return value if converter is None or value is None else converter(value)
