"""The definition of a pipeline: YAML in the form of Flink CDC 3.x, with errors that name file, line and key.

`load_definition` reads the sections `source`, `sink`, `route`, `transform` and `pipeline`. Every scalar stays the
string that was written: a password of digits does not become a number. A nested mapping is the same as keys with dots.
`Settings` hands out the options of a section, and refuses options that were never read.

Source: the pages "Data Pipeline", "Route", "Transform" and "Schema Evolution" of Flink CDC 3.x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.base.errors import ConfigurationError, nearest
from penstock.base.secrets import remember
from penstock.cdc.tables import RouteRule, TableSelector

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node, SequenceNode

BEHAVIORS: Final = ("exception", "evolve", "try_evolve", "lenient", "ignore")
#: The values of `include.schema.changes` and `exclude.schema.changes`.
CHANGE_TYPES: Final = (
    "add.column",
    "alter.column.type",
    "create.table",
    "drop.column",
    "drop.table",
    "rename.column",
    "truncate.table",
)
ROUTE_MODES: Final = ("ALL_MATCH", "FIRST_MATCH")
SOFT_DELETE: Final = "SOFT_DELETE"
_SECTIONS: Final = ("source", "sink", "route", "transform", "pipeline")
_CLASS_FILES: Final = ("com.", "org.", "io.", "net.")


class DefinitionError(ConfigurationError):
    """A pipeline is not defined correctly; the message names file, line and key."""


class _Entry(NamedTuple):
    value: Any
    line: int


class Settings:
    """The options of a section, by key. Its repr has no values, which may be secret.

    Args:
        path: the file, for errors.
        section: the name of the section, for errors.
        line: the line of the section, counted from 1.
        entries: the values (texts, lists of texts, or None) with their lines.
    """

    def __init__(self, path: str, section: str, line: int, entries: Mapping[str, _Entry]) -> None:
        self.path, self.section, self.line = path, section, line
        self._entries = dict(entries)
        self._read: set[str] = set()
        remember({key: entry.value for key, entry in entries.items() if isinstance(entry.value, str)})

    def __repr__(self) -> str:
        return f"Settings({self.section}: {', '.join(self._entries)})"

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def fail(self, key: str, problem: str) -> DefinitionError:
        """Return the error for a key."""
        line = self._entries[key].line if key in self._entries else self.line
        return DefinitionError(f"{self.path}:{line}: {self.section}.{key}: {problem}")

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return the text of an option."""
        self._read.add(key)
        entry = self._entries.get(key)
        if entry is None or entry.value is None:
            return default
        if not isinstance(entry.value, str):
            raise self.fail(key, "a text is expected here, not a list")
        return entry.value

    def need(self, key: str) -> str:
        """Return the text of an option that must be there."""
        value = self.text(key)
        if value is None:
            raise self.fail(key, f"the option is missing, and a {self.section} needs it")
        return value

    def integer(self, key: str, default: int, least: int = 1) -> int:
        """Return the number of an option."""
        value = self.text(key)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise self.fail(key, f"{value!r} is no whole number") from None
        if number < least:
            raise self.fail(key, f"the number is at least {least}, not {number}")
        return number

    def boolean(self, key: str, default: bool) -> bool:
        """Return the truth of an option: `true` or `false`."""
        value = self.text(key)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise self.fail(key, f"{value!r} is neither true nor false")
        return value.lower() == "true"

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Return an option that has one of these values, whatever their case."""
        value = self.text(key)
        if value is None:
            return default
        for choice in choices:
            if value.lower().replace("-", "_") == choice.lower().replace("-", "_"):
                return choice
        raise self.fail(key, f"{value!r} is none of {', '.join(choices)}")

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the texts of a list, which may also be written with commas; empty if the option is missing."""
        self._read.add(key)
        entry = self._entries.get(key)
        if entry is None or entry.value is None:
            return ()
        parts = entry.value.split(",") if isinstance(entry.value, str) else entry.value
        return tuple(part.strip() for part in parts if part.strip())

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the options that begin with a prefix, without it."""
        keys = [key for key in self._entries if key.startswith(prefix)]
        return {key.removeprefix(prefix): self.need(key) for key in keys}

    def refuse_others(self, known: Sequence[str] = ()) -> None:
        """Raise `DefinitionError` for an option that was never read."""
        for key in self._entries:
            if key not in self._read:
                alike = nearest(key, [*self._read, *known])
                hint = f"; did you mean {alike!r}?" if alike else ""
                raise self.fail(key, f"there is no such option{hint}")


@dataclass(frozen=True)
class TransformRule:
    """A rule of the section `transform`.

    Attributes:
        selector: the source tables to which it applies.
        projection: the columns, as after SELECT; None for all.
        condition: the condition on rows, as after WHERE (`filter`); None for all.
        primary_keys: the key of the sink table; empty for the key of the source table.
        partition_keys: the partition columns of the sink table.
        options: options for the creation of the sink table.
        soft_deletes: whether deletions become inserts (`converter-after-transform: SOFT_DELETE`).
        place: file, line and section, for errors.
        description: the purpose of the rule.
    """

    selector: TableSelector
    projection: str | None
    condition: str | None
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    soft_deletes: bool
    place: str
    description: str | None = None


@dataclass(frozen=True)
class FunctionRule:
    """A Python function for transforms: its name in SQL, and its path `module:attribute`."""

    name: str
    target: str
    place: str


@dataclass(frozen=True)
class PipelineDefinition:
    """A pipeline, as its file defines it.

    Attributes:
        source: the options of the source, with its `type`.
        sink: the options of the sink, with its `type`.
        routes: from source tables to sink tables, in order.
        transforms: what happens to rows, in order.
        name: the name of the job.
        parallelism: the number of parallel subtasks; None for the default of the configuration.
        zone: the name of the time zone of time functions; None for the machine's.
        runtime_mode: STREAMING or BATCH.
        behavior: `schema.change.behavior`.
        included: `include.schema.changes`: the types of changes that reach the sink.
        functions: the Python functions.
        options: options of the job (`flink-conf`).
    """

    source: Settings
    sink: Settings
    routes: tuple[RouteRule, ...]
    transforms: tuple[TransformRule, ...]
    name: str
    parallelism: int | None
    zone: str | None
    runtime_mode: str
    behavior: str
    included: frozenset[str]
    functions: tuple[FunctionRule, ...]
    route_mode: str = "ALL_MATCH"
    options: Mapping[str, str] = field(default_factory=dict)


def load_definition(path: str | Path) -> PipelineDefinition:
    """Read the definition of a pipeline from a file.

    Raises:
        DefinitionError: if the file cannot be read, is not valid YAML, or defines no pipeline.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionError(f"{path}: the file cannot be read: {error.strerror}") from error
    return parse_definition(text, str(path))


def parse_definition(text: str, path: str = "pipeline.yaml") -> PipelineDefinition:
    """Return the pipeline that a text defines; see `load_definition`.

    Examples:
        >>> from penstock.cdc.definition import parse_definition
        >>> text = '''
        ... source: {type: values, path: events.jsonl}
        ... sink: {type: print}
        ... pipeline: {name: A copy, parallelism: 2}
        ... '''
        >>> pipeline = parse_definition(text)
        >>> pipeline.name, pipeline.parallelism, pipeline.behavior
        ('A copy', 2, 'lenient')
    """
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise DefinitionError(f"{path}{line}: this is no YAML: {getattr(error, 'problem', error)}") from error
    return _Parser(path).parse(root)


class _Parser:
    def __init__(self, path: str) -> None:
        self._path = path

    def parse(self, root: Node | None) -> PipelineDefinition:
        sections = self._mapping(root, "the file")
        for name, node in sections.items():
            if name not in _SECTIONS:
                alike = nearest(name, _SECTIONS)
                hint = f"; did you mean {alike!r}?" if alike else ""
                raise self._fail(node, name, f"there is no such section{hint}; there are {', '.join(_SECTIONS)}")
        for name in ("source", "sink"):
            if name not in sections:
                raise DefinitionError(f"{self._path}: the section {name!r} is missing")
        source, sink = (self._settings(sections[name], name) for name in ("source", "sink"))
        routes = [self._route(settings) for settings in self._items(sections.get("route"), "route")]
        transforms = [self._transform(settings) for settings in self._items(sections.get("transform"), "transform")]
        behavior, rest = self._pipeline(sections.get("pipeline"))
        return PipelineDefinition(
            source,
            sink,
            tuple(routes),
            tuple(transforms),
            behavior=behavior,
            included=_included(sink, behavior),
            **rest,
        )

    def _fail(self, node: Node, key: str, problem: str) -> DefinitionError:
        return DefinitionError(f"{self._path}:{_line(node)}: {key}: {problem}")

    def _mapping(self, node: Node | None, what: str) -> dict[str, Node]:
        from yaml.nodes import MappingNode

        if node is None:
            raise DefinitionError(f"{self._path}: {what} is empty")
        if not isinstance(node, MappingNode):
            raise self._fail(node, what, "keys with values are expected here")
        entries: dict[str, Node] = {}
        for key, value in node.value:
            if key.value in entries:
                raise self._fail(key, f"{what}.{key.value}", "the key occurs twice")
            entries[str(key.value)] = value
        return entries

    def _settings(self, node: Node, section: str) -> Settings:
        entries: dict[str, _Entry] = {}
        self._collect(node, section, "", entries)
        return Settings(self._path, section, _line(node), entries)

    def _collect(self, node: Node, section: str, prefix: str, entries: dict[str, _Entry]) -> None:
        from yaml.nodes import MappingNode, SequenceNode

        for key, value in self._mapping(node, section).items():
            name = prefix + key
            if isinstance(value, MappingNode):
                self._collect(value, section, f"{name}.", entries)
                continue
            if name in entries:
                raise self._fail(value, f"{section}.{name}", "the key occurs twice")
            plain = self._texts(value, f"{section}.{name}") if isinstance(value, SequenceNode) else _scalar(value)
            entries[name] = _Entry(plain, _line(value))

    def _texts(self, node: SequenceNode, key: str) -> list[str]:
        from yaml.nodes import ScalarNode

        for item in node.value:
            if not isinstance(item, ScalarNode):
                raise self._fail(item, key, "the list has texts only")
        return [item.value for item in node.value]

    def _items(self, node: Node | None, section: str) -> list[Settings]:
        from yaml.nodes import SequenceNode

        if node is None or (_scalar(node) is None and not isinstance(node.value, list)):
            return []
        if not isinstance(node, SequenceNode):
            raise self._fail(node, section, "a list of rules is expected here: begin each with '- source-table:'")
        return [self._settings(item, section) for item in node.value]

    def _selector(self, settings: Settings) -> TableSelector:
        pattern = settings.need("source-table")
        try:
            return TableSelector.parse(pattern)
        except ConfigurationError as error:
            raise settings.fail("source-table", str(error)) from error

    def _route(self, settings: Settings) -> RouteRule:
        rule = RouteRule(
            self._selector(settings),
            settings.need("sink-table"),
            settings.text("replace-symbol"),
            settings.text("description"),
        )
        settings.refuse_others()
        return rule

    def _transform(self, settings: Settings) -> TransformRule:
        options = []
        delimiter = settings.text("table-options.delimiter", ",") or ","
        for part in (settings.text("table-options") or "").split(delimiter):
            key, sign, value = part.partition("=")
            if part.strip() and not sign:
                raise settings.fail("table-options", f"write key=value instead of {part.strip()!r}")
            if part.strip():
                options.append((key.strip(), value.strip()))
        converter = settings.text("converter-after-transform")
        if converter is not None and converter.upper() != SOFT_DELETE:
            raise settings.fail("converter-after-transform", f"{converter!r} is not known; there is {SOFT_DELETE}")
        rule = TransformRule(
            self._selector(settings),
            settings.text("projection"),
            settings.text("filter"),
            settings.texts("primary-keys"),
            settings.texts("partition-keys"),
            tuple(options),
            converter is not None,
            f"{settings.path}:{settings.line}: transform",
            settings.text("description"),
        )
        settings.refuse_others()
        return rule

    def _pipeline(self, node: Node | None) -> tuple[str, dict[str, Any]]:
        """Return the behavior at schema changes, and the other attributes of the section `pipeline`."""
        functions: tuple[FunctionRule, ...] = ()
        options: dict[str, str] = {}
        settings = Settings(self._path, "pipeline", 1, {})
        if node is not None:
            entries = self._mapping(node, "pipeline")
            if "user-defined-function" in entries:
                items = self._items(entries["user-defined-function"], "pipeline.user-defined-function")
                functions = tuple(map(_function, items))
            if "flink-conf" in entries:
                of_job = self._settings(entries["flink-conf"], "pipeline.flink-conf")
                options = of_job.prefixed("")
            if "model" in entries:
                raise self._fail(
                    entries["model"],
                    "pipeline.model",
                    "embedded AI models are not supported: call the model in a Python function (user-defined-function)",
                )
            collected: dict[str, _Entry] = {}
            self._collect(_without(node, ("user-defined-function", "flink-conf")), "pipeline", "", collected)
            settings = Settings(self._path, "pipeline", _line(node), collected)
        behavior = settings.choice("schema.change.behavior", BEHAVIORS, "lenient")
        rest: dict[str, Any] = {
            "name": settings.text("name") or "Flink CDC Pipeline Job",
            "parallelism": settings.integer("parallelism", 0, 1) or None,
            "zone": settings.text("local-time-zone"),
            "runtime_mode": settings.choice("execution.runtime-mode", ("STREAMING", "BATCH"), "STREAMING"),
            "route_mode": settings.choice("route-mode", ROUTE_MODES, "ALL_MATCH"),
            "functions": functions,
            "options": options,
        }
        if rest["zone"] is not None and rest["zone"].lower() == "system":
            rest["zone"] = None
        settings.refuse_others(["user-defined-function", "flink-conf"])
        return behavior, rest


def _function(settings: Settings) -> FunctionRule:
    target = settings.need("classpath")
    if target.startswith(_CLASS_FILES) and ":" not in target:
        raise settings.fail(
            "classpath",
            f"{target!r} is a class of Java, and functions are in Python here: name module:attribute",
        )
    rule = FunctionRule(settings.need("name"), target, f"{settings.path}:{settings.line}: {settings.section}")
    settings.refuse_others()
    return rule


def _included(sink: Settings, behavior: str) -> frozenset[str]:
    """Return the types of schema changes that reach the sink."""
    chosen: dict[str, set[str]] = {}
    for key in ("include.schema.changes", "exclude.schema.changes"):
        chosen[key] = set()
        for part in sink.texts(key):
            name = part.lower().removesuffix(".event")
            matching = {
                kind for kind in CHANGE_TYPES if kind == name or name in kind.split(".") or kind.startswith(name)
            }
            if not matching:
                raise sink.fail(key, f"{part!r} is no type of schema changes; there are {', '.join(CHANGE_TYPES)}")
            chosen[key] |= matching
    included = chosen["include.schema.changes"] or set(CHANGE_TYPES)
    excluded = chosen["exclude.schema.changes"]
    if behavior == "lenient" and not any(chosen.values()):
        excluded = {"drop.table", "truncate.table"}
    return frozenset(included - excluded)


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _scalar(node: Node) -> str | None:
    return None if node.tag == "tag:yaml.org,2002:null" else str(node.value)


def _without(node: Node, names: Sequence[str]) -> MappingNode:
    from yaml.nodes import MappingNode

    left = [(key, value) for key, value in node.value if key.value not in names]
    return MappingNode(node.tag, left, node.start_mark, node.end_mark)
