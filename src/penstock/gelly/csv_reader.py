"""Reads graphs from text files: one edge or vertex per line, with delimiters between fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.typeinfo import TypeInformation, Types
from penstock.connectors.file.filesystem import absolute_path, list_files, open_input
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.gelly.base import Edge, Vertex

#: A Python type, a type of `Types`, or a function of the text.
FieldType = Any

_CHUNK_CHARS = 1 << 20


@dataclass(frozen=True)
class CsvForm:
    """The format of a file. `fields`: the positions of the fields to read, None for the first ones."""

    field_delimiter: str = ","
    line_delimiter: str = "\n"
    comment_prefix: str | None = None
    ignores_first_line: bool = False
    fields: tuple[int, ...] | None = None


class GraphCsvReader:
    """Configures the format of the files, then their contents; see `Graph.from_csv_reader`.

    Fields are separated by commas and lines by line ends, unless other delimiters are set. Empty lines are skipped.
    Each file is read by one subtask, and several files in parallel.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> _ = Path("roads.csv").write_text("A;B;4.0")
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> reader = Graph.from_csv_reader("roads.csv", env).field_delimiter_edges(";")
        >>> reader.edge_types(str, float).get_edges().collect()
        [Edge(source='A', target='B', value=4.0)]
    """

    def __init__(
        self,
        edges_path: str,
        context: StreamExecutionEnvironment,
        vertices_path: str | None,
        initializer: Any,
        make: Callable[[DataStream, DataStream | None, Any], Any],
    ) -> None:
        if vertices_path is not None and initializer is not None:
            raise WrongValueError("vertex_value_initializer: vertices_path has the vertices, with their values")
        self._edges_path = edges_path
        self._vertices_path = vertices_path
        self._context = context
        self._initializer = initializer
        self._make = make
        self._edges = CsvForm()
        self._vertices = CsvForm()

    # --- what the files hold -----------------------------------------------------------------------------------------

    def types(self, vertex_key: FieldType, vertex_value: FieldType, edge_value: FieldType) -> Any:
        """Return the graph, with values of vertices and edges.

        Args:
            vertex_key: the type of ids: a Python type, a type of `Types`, or a function of the text.
            vertex_value: the type of the values of vertices.
            edge_value: the type of the values of edges.

        Raises:
            ValueError: if neither vertices nor an initializer were given.
        """
        self._needs_vertices("types")
        return self._graph(vertex_key, vertex_value, edge_value)

    def edge_types(self, vertex_key: FieldType, edge_value: FieldType) -> Any:
        """Return the graph, with edge values.

        Its vertices come from the edges, with the initializer's values or None.
        """
        self._needs_no_vertices("edge_types")
        return self._graph(vertex_key, None, edge_value)

    def vertex_types(self, vertex_key: FieldType, vertex_value: FieldType) -> Any:
        """Return the graph, with values of vertices only.

        Raises:
            ValueError: if neither vertices nor an initializer were given.
        """
        self._needs_vertices("vertex_types")
        return self._graph(vertex_key, vertex_value, None)

    def key_type(self, vertex_key: FieldType) -> Any:
        """Return the graph, without values from the files; vertices have the initializer's values or None."""
        self._needs_no_vertices("key_type")
        return self._graph(vertex_key, None, None)

    def _needs_vertices(self, name: str) -> None:
        if self._vertices_path is None and self._initializer is None:
            raise WrongValueError(
                f"{name}: vertices have values, so vertices_path or vertex_value_initializer is needed"
            )

    def _needs_no_vertices(self, name: str) -> None:
        if self._vertices_path is not None:
            raise WrongValueError(f"{name}: vertices_path has values of vertices; use types or vertex_types")

    def _graph(self, key: FieldType, vertex_value: FieldType, edge_value: FieldType) -> Any:
        id_of = build_parser(key)
        edge_fields = (id_of, id_of) + (() if edge_value is None else (build_parser(edge_value),))
        edges = self._read(self._edges_path, _Lines(self._edges, edge_fields, Edge), "Edges")
        if self._vertices_path is None:
            return self._make(edges, None, self._initializer)
        lines = _Lines(self._vertices, (id_of, build_parser(vertex_value)), Vertex)
        return self._make(edges, self._read(self._vertices_path, lines, "Vertices"), None)

    def _read(self, path: str, lines: _Lines, name: str) -> DataStream:
        paths = [info.path for info in list_files(absolute_path(path))]
        stream = self._context.from_collection(paths).name(f"Files Of {name}").rebalance()
        return stream.flat_map(lines).name(name)

    # --- how the files are written -----------------------------------------------------------------------------------

    def field_delimiter_edges(self, delimiter: str) -> Self:
        """Set the delimiter between the fields of an edge."""
        return self._change_edges(field_delimiter=_not_empty(delimiter))

    def field_delimiter_vertices(self, delimiter: str) -> Self:
        """Set the delimiter between the fields of a vertex."""
        return self._change_vertices(field_delimiter=_not_empty(delimiter))

    def line_delimiter_edges(self, delimiter: str) -> Self:
        """Set the delimiter between edges."""
        return self._change_edges(line_delimiter=_not_empty(delimiter))

    def line_delimiter_vertices(self, delimiter: str) -> Self:
        """Set the delimiter between vertices."""
        return self._change_vertices(line_delimiter=_not_empty(delimiter))

    def ignore_comments_edges(self, comment_prefix: str) -> Self:
        """Skip lines of edges that begin with this prefix."""
        return self._change_edges(comment_prefix=_not_empty(comment_prefix))

    def ignore_comments_vertices(self, comment_prefix: str) -> Self:
        """Skip lines of vertices that begin with this prefix."""
        return self._change_vertices(comment_prefix=_not_empty(comment_prefix))

    def ignore_first_line_edges(self) -> Self:
        """Skip the first line of each file of edges."""
        return self._change_edges(ignores_first_line=True)

    def ignore_first_line_vertices(self) -> Self:
        """Skip the first line of each file of vertices."""
        return self._change_vertices(ignores_first_line=True)

    def include_fields_edges(self, *fields: Any) -> Self:
        """Choose the fields of an edge: a flag for each, a text of `1`, `T` and other characters, or a bit mask."""
        return self._change_edges(fields=parse_positions(fields))

    def include_fields_vertices(self, *fields: Any) -> Self:
        """Choose the fields of a vertex to read, as for edges."""
        return self._change_vertices(fields=parse_positions(fields))

    def _change_edges(self, **changes: Any) -> Self:
        self._edges = replace(self._edges, **changes)
        return self

    def _change_vertices(self, **changes: Any) -> Self:
        self._vertices = replace(self._vertices, **changes)
        return self


class _Lines:
    """Parses the records of a file."""

    def __init__(self, form: CsvForm, parsers: tuple[Callable[[str], Any], ...], make: Callable[..., Any]) -> None:
        self._form = form
        self._parsers = parsers
        self._make = make

    def __call__(self, path: str) -> Iterator[Any]:
        form, parsers, make = self._form, self._parsers, self._make
        positions = form.fields or tuple(range(len(parsers)))
        if len(positions) != len(parsers):
            raise WrongValueError(f"{path}: {len(positions)} fields are included, but {len(parsers)} have types")
        prefix = form.comment_prefix
        for number, line in enumerate(iterate_lines(path, form.line_delimiter), 1):
            if (number == 1 and form.ignores_first_line) or not line or (prefix and line.startswith(prefix)):
                continue
            fields = line.split(form.field_delimiter)
            try:
                values = [parse(fields[position].strip()) for position, parse in zip(positions, parsers, strict=True)]
            except (IndexError, ValueError) as error:
                raise WrongValueError(f"{path}, line {number}: {line!r}: {error}") from error
            yield make(*values)


def iterate_lines(path: str, delimiter: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file."""
    with open_input(path) as file:
        if delimiter == "\n":
            for line in file:
                yield line.decode("utf-8").rstrip("\r\n")
            return
        end, rest = delimiter.encode(), b""
        while chunk := file.read(_CHUNK_CHARS):
            *lines, rest = (rest + chunk).split(end)
            for part in lines:
                yield part.decode("utf-8").strip("\r\n")
        yield rest.decode("utf-8").strip("\r\n")


def parse_positions(fields: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the positions that `include_fields` names."""
    if len(fields) == 1 and isinstance(fields[0], str):
        flags = [sign in "1Tt" for sign in fields[0]]
    elif len(fields) == 1 and isinstance(fields[0], int) and not isinstance(fields[0], bool):
        flags = [bool(fields[0] >> bit & 1) for bit in range(fields[0].bit_length())]
    else:
        flags = [bool(field) for field in fields]
    positions = tuple(position for position, flag in enumerate(flags) if flag)
    if not positions:
        raise WrongValueError(f"include_fields: {fields!r} names no field")
    return positions


def build_parser(kind: FieldType) -> Callable[[str], Any]:
    """Return the function that parses a field's text.

    Raises:
        TypeError: for a type that a field cannot have.
    """
    if isinstance(kind, TypeInformation):
        for names, parse in _PARSERS:
            if any(kind == getattr(Types, name)() for name in names):
                return parse
    elif kind is bool:
        return _bool
    elif callable(kind):
        parse_text: Callable[[str], Any] = kind
        return parse_text
    raise WrongTypeError(f"{kind!r} is no type of a field: use str, int, float, bool, one of Types, or a function")


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


_PARSERS: tuple[tuple[tuple[str, ...], Callable[[str], Any]], ...] = (
    (("STRING",), str),
    (("BYTE", "SHORT", "INT", "LONG", "BIG_INT"), int),
    (("FLOAT", "DOUBLE"), float),
    (("BOOLEAN",), _bool),
)


def _not_empty(text: str) -> str:
    if not text:
        raise WrongValueError("a delimiter or prefix must not be empty")
    return text
