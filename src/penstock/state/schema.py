"""A state's schema: its kind, the types of its keys and values, and whether its values carry times (D1, H4).

**Type nodes** are declared types as JSON, as stored in snapshots, and as text for people. A node is None if nothing is
declared (values are pickled), a string for a type without parameters (`"INT"`), and otherwise an object with one entry,
from the type's name to its parameters:

    {"ROW": [["a", "INT"]]}
    {"MAP": ["STRING", "LONG"]}
    {"CLASS": ["shop.model:Order", "dataclass", [["id", "STRING"]]]}

`StateSchema`: a snapshot stores it as JSON text, which is empty for states of the runtime (windows, timers):

    {"kind": "map", "key": "STRING", "value": {"ROW": [["a", "INT"]]}, "ttl": 60000}

`evolve` decides whether and how values of one type can become values of another (H4). Pure.

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

`conversion` converts the entries of a restored state to the type that is declared now (H4). The entry of a key depends
on the kind: a value (value, reducing and aggregating state), a list, or a dictionary. With a time to live, each value,
list item or map value is a pair (value, time of the last access in ms).

State that gains a time to live counts it from the restore; state that loses it keeps the entries that had not expired.
"""

from __future__ import annotations

import dataclasses
import decimal
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.base import typeinfo
from penstock.base.types import Row

Node = Any

_PLAIN: Final = {
    typeinfo.DateTypeInfo: "SQL_DATE",
    typeinfo.TimeTypeInfo: "SQL_TIME",
    typeinfo.TimestampTypeInfo: "SQL_TIMESTAMP",
}
_OF_ELEMENTS: Final[dict[type, str]] = {
    typeinfo.ListTypeInfo: "LIST",
    typeinfo.ObjectArrayTypeInfo: "OBJECT_ARRAY",
    typeinfo.BasicArrayTypeInfo: "BASIC_ARRAY",
    typeinfo.PrimitiveArrayTypeInfo: "PRIMITIVE_ARRAY",
}
#: The names of the Python API that differ from Flink's notation.
_FLINK_NAMES: Final = {
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "SQL_DATE": "DATE",
    "SQL_TIME": "TIME",
    "SQL_TIMESTAMP": "TIMESTAMP",
}


def to_type_node(info: typeinfo.TypeInformation | None) -> Node:
    """Return the node of a type; None for None and for pickled objects."""
    if info is None or isinstance(info, typeinfo.PickledBytesTypeInfo):
        return None
    if isinstance(info, typeinfo.BasicTypeInfo):
        return info.basic_type.name
    kind = type(info)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(info, typeinfo.RowTypeInfo):
        return {
            "ROW": [
                list(f) for f in zip(info.get_field_names(), map(to_type_node, info.get_field_types()), strict=True)
            ]
        }
    if isinstance(info, typeinfo.TupleTypeInfo):
        return {"TUPLE": [to_type_node(field) for field in info.get_field_types()]}
    if kind in _OF_ELEMENTS:
        return {_OF_ELEMENTS[kind]: to_type_node(info.element_type)}  # type: ignore[attr-defined]
    if isinstance(info, typeinfo.MapTypeInfo):
        return {"MAP": [to_type_node(info.key_type_info), to_type_node(info.value_type_info)]}
    if isinstance(info, typeinfo.ClassTypeInfo):
        family = "tuple" if issubclass(info.cls, tuple) else "dataclass"
        fields = [[name, to_type_node(field)] for name, field in info.field_types.items()]
        return {"CLASS": [typeinfo.class_path(info.cls), family, fields]}
    return {"OTHER": repr(info)}


def get_type_name(node: Node) -> str | None:
    """Return the name of a node's type, such as `INT` or `ROW`; None if nothing is declared."""
    if isinstance(node, dict):
        (name,) = node
        return str(name)
    return None if node is None else str(node)


def format_type_node(node: Node) -> str:
    """Return a type in Flink's notation, such as `ROW<a INT, b STRING>`; `PICKLED` if nothing is declared."""
    if node is None:
        return "PICKLED"
    if isinstance(node, str):
        return _FLINK_NAMES.get(node, node)
    ((name, parameters),) = node.items()
    if name == "ROW":
        return f"ROW<{_fields_text(parameters)}>"
    if name == "CLASS":
        path, _, fields = parameters
        return f"{path}<{_fields_text(fields)}>"
    if name == "OTHER":
        return str(parameters)
    return f"{name}<{', '.join(map(format_type_node, parameters if isinstance(parameters, list) else [parameters]))}>"


def _fields_text(fields: list[list[Any]]) -> str:
    return ", ".join(f"{name} {format_type_node(field)}" for name, field in fields)


def collect_classes(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the classes within a type, each as (path, its field names when the snapshot was taken)."""
    if not isinstance(node, dict):
        return
    ((name, parameters),) = node.items()
    if name == "CLASS":
        path, _, fields = parameters
        yield path, tuple(field for field, _ in fields)
        parts = [part for _, part in fields]
    elif name == "ROW":
        parts = [part for _, part in parameters]
    elif name == "OTHER":
        parts = []
    else:
        parts = parameters if isinstance(parameters, list) else [parameters]
    for part in parts:
        yield from collect_classes(part)


class Expiry(Protocol):
    """The time to live of entries."""

    @property
    def ttl_ms(self) -> int: ...


class Declaration(Protocol):
    """A state as declared by the program: a descriptor. Descriptors of map state also have a `key_type_info`."""

    @property
    def kind(self) -> str: ...

    @property
    def type_info(self) -> typeinfo.TypeInformation | None: ...

    @property
    def ttl_config(self) -> Expiry | None: ...


@dataclass(frozen=True)
class StateSchema:
    """See the module docstring. `key` is set for map state; `ttl_ms` is None if values carry no time."""

    kind: str
    key: Node
    value: Node
    ttl_ms: int | None = None

    def to_json(self) -> str:
        """Return the JSON text for snapshots; equal schemas have equal texts."""
        parts = {"kind": self.kind, "key": self.key, "value": self.value, "ttl": self.ttl_ms}
        return json.dumps({name: part for name, part in parts.items() if part is not None})

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Return the classes in the schema, with the fields that they had."""
        return {**dict(collect_classes(self.key)), **dict(collect_classes(self.value))}

    def __str__(self) -> str:
        types = (
            f"{format_type_node(self.key)}, {format_type_node(self.value)}"
            if self.kind == "map"
            else format_type_node(self.value)
        )
        ttl = "" if self.ttl_ms is None else f" (TTL {self.ttl_ms} ms)"
        return f"{self.kind.capitalize()}State<{types}>{ttl}"


def schema_from_json(text: str) -> StateSchema:
    """Return the schema that `to_json` wrote."""
    parts = json.loads(text)
    return StateSchema(parts["kind"], parts.get("key"), parts.get("value"), parts.get("ttl"))


def to_state_schema(declaration: Declaration) -> StateSchema:
    """Return the schema of a declared state."""
    ttl = declaration.ttl_config
    return StateSchema(
        declaration.kind,
        to_type_node(getattr(declaration, "key_type_info", None)),
        to_type_node(declaration.type_info),
        None if ttl is None else ttl.ttl_ms,
    )


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
_ELEMENT_TYPES: Final = ("LIST", "OBJECT_ARRAY", "BASIC_ARRAY", "PRIMITIVE_ARRAY")


def evolve(old: Node, new: typeinfo.TypeInformation | None, moved: Moved) -> Converter:
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
        if isinstance(new, typeinfo.RowTypeInfo):
            return _row(old["ROW"], new, moved)
        if isinstance(new, typeinfo.TupleTypeInfo):
            return _tuple(old["TUPLE"], new, moved)
        if isinstance(new, typeinfo.MapTypeInfo):
            return _map(old["MAP"], new, moved)
        if isinstance(new, typeinfo.ClassTypeInfo):
            return _class(old["CLASS"], new, moved)
        if name in _ELEMENT_TYPES:
            return _elements(evolve(old[name], new.element_type, moved))  # type: ignore[attr-defined]
    raise Incompatible(f"{format_type_node(old)} cannot become {format_type_node(target)}")


def _within(part: str, old: Node, new: typeinfo.TypeInformation | None, moved: Moved) -> Converter:
    try:
        return evolve(old, new, moved)
    except Incompatible as error:
        raise Incompatible(f"{part}: {error}") from None


def _accepted(new: typeinfo.TypeInformation) -> Converter:
    def check(value: Any) -> Any:
        if not new.accepts(value):
            raise Incompatible(f"nothing was declared, and a value of type {type(value).__qualname__} does not fit")
        return value

    return check


def _row(old: list[list[Any]], new: typeinfo.RowTypeInfo, moved: Moved) -> Converter:
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


def _tuple(old: list[Node], new: typeinfo.TupleTypeInfo, moved: Moved) -> Converter:
    fields = new.get_field_types()
    if len(old) != len(fields):
        raise Incompatible(f"a tuple of {len(old)} fields cannot become one of {len(fields)}: use rows or a NamedTuple")
    converters = [_within(f"field {i}", *pair, moved) for i, pair in enumerate(zip(old, fields, strict=True))]
    if not any(converters):
        return None
    return lambda value: tuple(_applied(c, item) for c, item in zip(converters, value, strict=True))


def _map(old: list[Node], new: typeinfo.MapTypeInfo, moved: Moved) -> Converter:
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


def _class(old: Sequence[Any], new: typeinfo.ClassTypeInfo, moved: Moved) -> Converter:
    """Return the converter of field types; the loader maps the fields themselves (see `penstock.state.loading`)."""
    path, family, old_fields = old
    present = typeinfo.class_path(new.cls)
    successor = moved.get(path)
    if successor is not None and not isinstance(successor, type):
        return None  # a registered function has already converted the values
    if path != present and (successor is None or typeinfo.class_path(successor) != present):
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
