"""Compiled plans: optimised plans of INSERTs as JSON, which later releases read, and what states their steps have.

A plan is a list of nodes, each after its inputs. A node has its class, its columns and its fields; a field
that has its default is left out, so that a plan of a release that did not know the field is still read. An object that
two nodes share is one node. The JSON has the ids of states (`stateIds`), because the ids that a later release computes
may differ: a step takes its id from the plan, and a savepoint of a job that ran the plan fits.

**Tables.** A node that reads or writes a table has the table's path, and, as far as `CatalogObjects` says, its columns
and options. The parts of the query that the optimiser pushed into a table are a list of requests (`pushDown`), which
are made again.

**Functions of users** and models are found by their names in the catalogs. Objects that exist in one program alone,
such as streams and data frames, make a plan that cannot be compiled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from datetime import tzinfo
from decimal import Decimal
from enum import Enum, Flag
from functools import cache
from typing import Any, Final, Protocol

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.codecs.variant import Variant
from penstock.runtime.patterns import matcher
from penstock.sql import typed
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, NullType
from penstock.sql.logical import nodes
from penstock.sql.logical.nodes import Node, PlanColumn, RowSchema, Scan, TimeAttribute, Write
from penstock.sql.parser.lexer import SqlParserError
from penstock.sql.parser.types import TypeParser
from penstock.sql.user_functions.definition import TABLES, FunctionKind, UserFunction

#: the version of the JSON: a release reads its own version and all before it
FORMAT_VERSION: Final = 1


class CatalogObjects(Enum):
    """How much of a table is in a plan, or is taken from a plan; see `table.plan.compile.catalog-objects`."""

    ALL = "ALL"
    ALL_ENFORCED = "ALL_ENFORCED"
    SCHEMA = "SCHEMA"
    IDENTIFIER = "IDENTIFIER"


@dataclass(frozen=True)
class StoredTable:
    """A table of a catalog: its stored columns as (name, type), and its options."""

    columns: tuple[tuple[str, str], ...]
    options: Mapping[str, str]


class Objects(Protocol):
    """The catalogs, functions and models of a session, by name."""

    def table(self, path: tuple[str, str, str]) -> StoredTable | None:
        """Return a table; None if it does not exist, or has no name."""

    def function(self, name: str, gives_rows: bool) -> UserFunction | None:
        """Return a user-defined function; None if the name is unknown."""

    def model(self, path: tuple[str, str, str]) -> nodes.Model | None:
        """Return a model; None if the name is unknown."""

    def zone(self, name: str) -> tzinfo:
        """Return a time zone."""


#: a request that a scan takes over a part of the query: its name, and its arguments
Request = tuple[str, tuple[Any, ...]]


class Requests(Protocol):
    """The parts of the query that the optimiser pushed into tables."""

    def of(self, scan: Scan) -> tuple[Scan, list[Request]]:
        """Return the scan of the whole table, and the requests that made this scan of it."""

    def repeat(self, scan: Scan, requests: Sequence[Request]) -> Scan:
        """Make the requests again. Raises `ValidationError` if the table does not take them anymore."""


@dataclass(frozen=True)
class CompiledQueries:
    """The optimised plans of INSERTs.

    Attributes:
        writes: the INSERTs, whose plans are rewritten already.
        configuration: the options of tables and queries when the plan was made.
        state_ids: the ids of states, in the order of planning, by the node (the write itself for its sink) and the
            kind of the step.
    """

    writes: tuple[Write, ...]
    configuration: Mapping[str, str]
    state_ids: Mapping[tuple[int, str], Sequence[str]]

    def nodes(self) -> list[Node]:
        """Return all nodes, each once, after its inputs."""
        return list_nodes(self.writes)


def list_nodes(roots: Sequence[Node]) -> list[Node]:
    """Return all nodes of plans, each once, after its inputs."""
    known: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) in known:
            return
        for field in _fields(type(node)):
            for below in _nodes_in(getattr(node, field.name)):
                visit(below)
        known[id(node)] = node

    for root in roots:
        visit(root)
    return list(known.values())


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes_in(item)


def _fields(kind: Any) -> tuple[Field[Any], ...]:
    return _list_fields(kind)


@cache
def _list_fields(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)


@cache
def _classes() -> dict[str, type]:
    """Return the classes whose objects a plan may have, by name."""
    types = [item for module in (nodes, typed, matcher) for item in vars(module).values() if isinstance(item, type)]
    return {item.__name__: item for item in types if is_dataclass(item) or issubclass(item, Enum) or _is_named(item)}


def _is_named(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


# --- to JSON ---------------------------------------------------------------------------------------------------------


def to_json(
    queries: CompiledQueries, version: str, objects: Objects, requests: Requests, stores: CatalogObjects
) -> str:
    """Return compiled queries as JSON. Raises `UnsupportedError` for what exists in this program alone."""
    return _Writer(queries, objects, requests, stores).text(version)


class _Writer:
    def __init__(self, queries: CompiledQueries, objects: Objects, requests: Requests, stores: CatalogObjects) -> None:
        self._queries = queries
        self._objects = objects
        self._requests = requests
        self._stores = stores
        self._numbers: dict[int, int] = {}
        self._functions: dict[int, int] = {}

    def text(self, version: str) -> str:
        described = []
        for number, node in enumerate(self._queries.nodes()):
            described.append({"id": number, **self._node(node)})
            self._numbers[id(node)] = number
        for (node_id, kind), ids in self._queries.state_ids.items():
            described[self._numbers[node_id]].setdefault("stateIds", {})[kind] = list(ids)
        parts = {
            "penstockVersion": _line(version),
            "formatVersion": str(FORMAT_VERSION),
            "configuration": _line(dict(sorted(self._queries.configuration.items()))),
            "nodes": "[\n    " + ",\n    ".join(map(_line, described)) + "\n  ]",
            "sinks": _line([self._numbers[id(write)] for write in self._queries.writes]),
        }
        return "{\n" + ",\n".join([f'  "{name}": {text}' for name, text in parts.items()]) + "\n}"

    def _node(self, node: Node) -> dict[str, Any]:
        described: dict[str, Any] = {"type": type(node).__name__}
        if isinstance(node, Scan):
            whole, requests = self._requests.of(node)
            if whole.source is not None:
                raise UnsupportedError(f"table {'.'.join(node.path)} is read in a way that a plan cannot hold")
            described["table"] = self._table(node.path, node.options)
            described["whole"] = self._parts(whole, ("path", "options", "source"))
            if requests:
                described["pushDown"] = [[name, self._value(arguments)] for name, arguments in requests]
            return {**described, "schema": self._value(node.schema)}
        if isinstance(node, Write):
            described["table"] = self._table(node.path, node.options)
            return {**described, **self._parts(node, ("path", "options"))}
        return {**described, **self._parts(node, ())}

    def _parts(self, value: Any, without: Sequence[str]) -> dict[str, Any]:
        """Return the fields that do not have their default."""
        parts = {}
        for field in _fields(type(value)):
            content = getattr(value, field.name)
            if field.name not in without and not _is_default(field, content):
                parts[field.name] = self._value(content)
        return parts

    def _table(self, path: tuple[str, str, str], options: Sequence[tuple[str, str]]) -> dict[str, Any]:
        table = self._objects.table(path)
        described: dict[str, Any] = {"path": list(path)}
        if table is not None and self._stores is not CatalogObjects.IDENTIFIER:
            described["columns"] = [list(column) for column in table.columns]
        if self._stores is CatalogObjects.ALL:
            described["options"] = dict(options)
            return described
        if table is None:
            raise ValidationError(
                f"table {'.'.join(path)} is in no catalog, so a plan needs all of it: set "
                "table.plan.compile.catalog-objects to ALL"
            )
        hints = {key: value for key, value in options if table.options.get(key) != value}
        return {**described, "hints": hints} if hints else described

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if isinstance(value, Node):
            return {"$node": self._numbers[id(value)]}
        if isinstance(value, DataType):
            return {"$type": type_text(value)}
        if isinstance(value, RowSchema):
            return {"$columns": [_column(column) for column in value]}
        if isinstance(value, Flag):
            return {"$flag": type(value).__name__, "value": value.value}
        if isinstance(value, Enum):
            return {"$enum": type(value).__name__, "name": value.name}
        if isinstance(value, UserFunction):
            return self._function(value)
        if isinstance(value, nodes.Model):
            return {"$model": list(value.path), "settings": self._value(value.settings)}
        if type(value) is tuple:
            return [self._value(item) for item in value]
        for kind, mark, write in _SCALARS:
            if isinstance(value, kind):
                return {mark: write(value)}
        if isinstance(value, list):
            return {"$list": [self._value(item) for item in value]}
        if isinstance(value, dict):
            return {"$map": [[self._value(key), self._value(item)] for key, item in value.items()]}
        name = type(value).__name__
        if _classes().get(name) is not type(value):
            raise UnsupportedError(_ALONE.format(f"an object of {name}"))
        if is_dataclass(value):
            return {"$": name, **self._parts(value, ())}
        keys: Sequence[str] = getattr(value, "_fields")  # noqa: B009 - a named tuple
        return {"$": name, **{key: self._value(getattr(value, key)) for key in keys}}

    def _function(self, user: UserFunction) -> dict[str, Any]:
        gives_rows = user.kind in (*TABLES, FunctionKind.PROCESS_TABLE)
        registered = self._objects.function(user.name, gives_rows)
        if registered is None or registered.function is not user.function:
            raise UnsupportedError(
                f"{user} has no name in a catalog or in this session, so a plan cannot hold it: register it with "
                "create_function or create_temporary_function"
            )
        # Two objects of one function may have states of their own.
        number = self._functions.setdefault(id(user), len(self._functions))
        return {"$function": user.name, "kind": user.kind.name, "number": number}


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_ALONE: Final = "a plan with {} cannot be compiled: it exists in this program alone"


def _is_default(field: Field[Any], content: Any) -> bool:
    if field.default is not MISSING:
        return type(content) is type(field.default) and bool(content == field.default)
    return field.default_factory is not MISSING and bool(content == field.default_factory())


def type_text(kind: DataType) -> str:
    """Return a type as SQL that means the same type. Raises `UnsupportedError` for a type without one."""
    if isinstance(kind, NullType):
        return "NULL"
    text = str(kind)
    try:
        is_same = TypeParser(text).data_type() == kind
    except (PenstockError, SqlParserError) as error:
        raise UnsupportedError(_ALONE.format(f"the type {text}")) from error
    if not is_same:
        raise UnsupportedError(_ALONE.format(f"the type {text}"))
    return text


def _column(column: PlanColumn) -> list[str]:
    time = [] if column.time is None else [column.time.name]
    return [column.name, type_text(column.type), *time]


def _zone_text(zone: tzinfo) -> str:
    return getattr(zone, "key", None) or str(zone)


_SCALARS: Final[tuple[tuple[type, str, Callable[[Any], Any]], ...]] = (
    (float, "$float", repr),
    (Decimal, "$decimal", str),
    (bytes, "$bytes", bytes.hex),
    (Variant, "$variant", lambda value: value.pack().hex()),
    (tzinfo, "$zone", _zone_text),
)


# --- from JSON -------------------------------------------------------------------------------------------------------


def from_json(text: str, objects: Objects, requests: Requests, restores: CatalogObjects) -> CompiledQueries:
    """Return the queries of a compiled plan.

    Raises:
        ValidationError: if the text is not a plan, is of a later version, or tables or functions are missing or differ.
    """
    try:
        plan = json.loads(text)
        version = plan["formatVersion"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValidationError(f"this is no compiled plan: {error}") from error
    if version > FORMAT_VERSION:
        raise ValidationError(
            f"the plan is of version {version}, made by Penstock {plan.get('penstockVersion')}, and this release reads "
            f"version {FORMAT_VERSION} and those before it"
        )
    reader = _Reader(objects, requests, restores)
    state_ids: dict[tuple[int, str], Sequence[str]] = {}
    for described in plan["nodes"]:
        node = reader.add(described)
        for kind, ids in described.get("stateIds", {}).items():
            state_ids[id(node), kind] = ids
    writes = tuple(reader.node(number) for number in plan["sinks"])
    return CompiledQueries(
        tuple(write for write in writes if isinstance(write, Write)), plan["configuration"], state_ids
    )


class _Reader:
    def __init__(self, objects: Objects, requests: Requests, restores: CatalogObjects) -> None:
        self._objects = objects
        self._requests = requests
        self._restores = restores
        self._nodes: dict[int, Node] = {}
        self._functions: dict[int, UserFunction] = {}

    def node(self, number: int) -> Node:
        """Return a node that has been added."""
        return self._nodes[number]

    def add(self, described: dict[str, Any]) -> Node:
        """Make a node; its inputs exist already."""
        kind = _class_named(described["type"])
        if kind is Scan:
            node: Node = self._scan(described)
        else:
            parts = {key: value for key, value in described.items() if key not in ("id", "type", "table", "stateIds")}
            values = self._parts(kind, parts)
            if kind is Write:
                values["path"], values["options"] = self._table(described["table"])
            node = kind(**values)
        self._nodes[described["id"]] = node
        return node

    def _scan(self, described: dict[str, Any]) -> Scan:
        path, options = self._table(described["table"])
        whole = Scan(**self._parts(Scan, described["whole"]), path=path, options=options)
        requests = [(name, self._value(arguments)) for name, arguments in described.get("pushDown", ())]
        scan = self._requests.repeat(whole, requests)
        schema: RowSchema = self._value(described["schema"])
        if scan.schema.types != schema.types:
            raise ValidationError(
                f"table {'.'.join(path)} gives the columns {', '.join(map(str, scan.schema.types))} for what the plan "
                f"asks of it, and the plan expects {', '.join(map(str, schema.types))}: compile the statement again"
            )
        return replace(scan, schema=schema)

    def _table(self, described: dict[str, Any]) -> tuple[tuple[str, str, str], tuple[tuple[str, str], ...]]:
        path = tuple(described["path"])
        name = ".".join(path)
        enforces = self._restores is CatalogObjects.ALL_ENFORCED
        table = None if enforces else self._objects.table(path)
        columns, options = described.get("columns"), described.get("options")
        if table is None and (options is None or self._restores is CatalogObjects.IDENTIFIER):
            reason = (
                "the plan does not have all of it, which table.plan.restore.catalog-objects = ALL_ENFORCED asks for"
                if enforces
                else "no catalog has it"
            )
            raise ValidationError(f"the plan needs the table {name}, and {reason}")
        if table is not None and columns is not None and [list(column) for column in table.columns] != columns:
            raise ValidationError(
                f"the columns of table {name} are not those for which the plan was compiled. In the plan: "
                f"{_shown(columns)}. In the catalog: {_shown(table.columns)}"
            )
        if options is None or self._restores is CatalogObjects.IDENTIFIER:
            assert table is not None
            options = {**table.options, **described.get("hints", {})}
        return path, tuple(options.items())

    def _parts(self, kind: type, described: Mapping[str, Any]) -> dict[str, Any]:
        known = {field.name for field in _fields(kind)}
        unknown = set(described) - known
        if unknown:
            raise ValidationError(f"{kind.__name__} of the plan has {', '.join(sorted(unknown))}, which is not known")
        return {key: self._value(value) for key, value in described.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple([self._value(item) for item in value])
        if not isinstance(value, dict):
            return value
        mark = next(iter(value))
        content = value[mark]
        match mark:
            case "$node":
                return self._nodes[content]
            case "$type":
                return _type(content)
            case "$columns":
                columns = [(name, _type(kind), *map(TimeAttribute.__getitem__, time)) for name, kind, *time in content]
                return RowSchema(tuple(PlanColumn(*column) for column in columns))
            case "$enum":
                return _class_named(content)[value["name"]]
            case "$flag":
                return _class_named(content)(value["value"])
            case "$function":
                return self._function(value)
            case "$model":
                return self._model(tuple(content), value)
            case "$list":
                return [self._value(item) for item in content]
            case "$map":
                return {self._value(key): self._value(item) for key, item in content}
            case "$float":
                return float(content)
            case "$decimal":
                return Decimal(content)
            case "$bytes":
                return bytes.fromhex(content)
            case "$variant":
                return Variant.unpack(bytes.fromhex(content))
            case "$zone":
                return self._objects.zone(content)
            case _:
                maker = kind = _class_named(content)
                parts = {key: item for key, item in value.items() if key != "$"}
                if is_dataclass(kind):
                    return maker(**self._parts(maker, parts))
                return kind(**{key: self._value(item) for key, item in parts.items()})

    def _function(self, described: dict[str, Any]) -> UserFunction:
        number, name = described["number"], described["$function"]
        if number not in self._functions:
            kind = FunctionKind[described["kind"]]
            user = self._objects.function(name, kind in (*TABLES, FunctionKind.PROCESS_TABLE))
            if user is None or user.kind is not kind:
                raise ValidationError(f"the plan calls the {kind.value} {name!r}, and there is none of this name")
            self._functions[number] = user
        return self._functions[number]

    def _model(self, path: tuple[str, str, str], described: dict[str, Any]) -> nodes.Model:
        model = self._objects.model(path)
        if model is None:
            raise ValidationError(f"the plan uses the model {'.'.join(path)}, and there is none of this name")
        return replace(model, settings=self._value(described["settings"]))


def _type(text: str) -> DataType:
    return NullType() if text == "NULL" else TypeParser(text).data_type()


def _class_named(name: str) -> Any:
    kind = _classes().get(name)
    if kind is None:
        raise ValidationError(f"the plan has an object of {name}, which this release does not know")
    return kind


def _shown(columns: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
