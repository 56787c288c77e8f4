"""Tables of vectors, for VECTOR_SEARCH.

Any bounded table has a search: its rows are held in memory, and `vector.index` says how they are searched: `exact`
compares each vector, `usearch` has an approximate index (HNSW). `vector.metric` is `cosine` (the score is the cosine,
greatest first), `dot` (the inner product, greatest first) or `l2` (the distance, least first). A connector may have a
search of its own: `vector-function` calls a class of the user's, and stores of vectors are asked for the nearest rows
(`StoredVectors`), with their own indexes.

A vector without a distance would spoil the search for all others: an index that accepts a NaN finds fewer neighbours of
every vector, and a zero vector has no cosine. So a table or a query with a NaN, an infinite number, a vector of another
length or, by cosine, a zero vector is refused, and the message names its row. A NULL vector is never found.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.config_options import ConfigOption, choice
from penstock.base.errors import UnsupportedError, WrongValueError, write_install_command
from penstock.runtime.connector import Boundedness
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import RowField, RowType
from penstock.sql.logical.nodes import INSERTS, Correlate, RowSchema, Scan, VectorSearchTableFunction
from penstock.sql.tables.connector import ABOUT_VECTORS, TableOptions, read_whole
from penstock.sql.tables.tables import TableReader
from penstock.sql.user_functions.calls import seen_values
from penstock.sql.user_functions.definition import FunctionKind, UserFunction

COSINE, DOT, L2 = "cosine", "dot", "l2"
EXACT, USEARCH, PGVECTOR = "exact", "usearch", "pgvector"
METRIC: Final = ConfigOption("metric", choice(COSINE, DOT, L2), COSINE)
INDEX: Final = ConfigOption("index", choice(EXACT, USEARCH, PGVECTOR), EXACT)
_USEARCH_METRICS: Final = {COSINE: "cos", DOT: "ip", L2: "l2sq"}
#: how far a search of the index looks, so that it finds nearly all of the nearest
_EXPANSION: Final = 256


class VectorSearchFunction(ABC):
    """A search for vectors; created where the query is planned, and sent to the workers.

    Users derive from it for a table with the connector `vector-function`, which names the class.

    Examples:
        >>> from penstock.table import VectorSearchFunction
        >>> class Drinks(VectorSearchFunction):
        ...     def search(self, vector, top_k):
        ...         return [("tea", [1.0, 0.0], 0.9), ("rum", [0.0, 1.0], 0.1)][:top_k]
        >>> Drinks().search([2.0, 0.5], 1)
        [('tea', [1.0, 0.0], 0.9)]
    """

    def open(self, function_context: Any) -> None:  # noqa: B027 - some have nothing to open
        """Prepare for searches; called once in each subtask."""

    @abstractmethod
    def search(self, vector: Sequence[float], top_k: int) -> Sequence[tuple[Any, ...]]:
        """Return the rows nearest to a vector, at most `top_k`, nearest first: the columns of the table and a score."""

    def close(self) -> None:  # noqa: B027 - some have nothing to close
        """Release what `open` has taken."""


class _Search:
    """The function of a table's search, as the kernels of table functions call it."""

    def __init__(self, function: VectorSearchFunction, top_k: int) -> None:
        self._function, self._top_k = function, top_k
        self.open, self.close = function.open, function.close

    def eval(self, vector: Any) -> Any:
        """Return the rows for a vector; none for NULL."""
        return None if vector is None else list(self._function.search(vector, self._top_k))


def as_correlate(node: VectorSearchTableFunction, find: Callable[[Scan, int], VectorSearchFunction]) -> Correlate:
    """Return a search as the join with the rows of a table function. `find`: returns the search of a column.

    Raises `ValidationError` for a table that cannot be searched.
    """
    title = ".".join(node.table.path)
    if dict(node.settings).get("async", "false").lower() == "true":
        raise ValidationError(
            f"Require async mode, but vector search provider of table {title} doesn't support async mode."
        )
    columns = node.schema.columns[len(node.input.schema) :]
    result = RowType([RowField(column.name, column.type.nullable()) for column in columns])
    function = _Search(find(node.table, node.column), node.top_k)
    user = UserFunction("VECTOR_SEARCH", FunctionKind.TABLE, function, result)
    return Correlate(
        schema=node.schema,
        input=node.input,
        function=user.name,
        operands=(node.query,),
        keeps=node.keeps,
        condition=node.condition,
        user=user,
    )


def read_vector_options(
    options: Iterable[tuple[str, str]], title: str, known: Sequence[ConfigOption[Any]] = (METRIC, INDEX)
) -> TableOptions:
    """Return the options of a table that begin with `vector.`. Raises `ValidationError` for unknown ones."""
    values = {key: value for key, value in options if key.startswith(ABOUT_VECTORS)}
    unknown = sorted(set(values) - {ABOUT_VECTORS + option.key() for option in known})
    if unknown:
        raise ValidationError(f"Unsupported options of table {title}: {', '.join(unknown)}")
    return TableOptions(title, values).below(ABOUT_VECTORS)


def read_metric(options: Iterable[tuple[str, str]], title: str) -> str:
    """Return the metric of a table that has no other option for vectors."""
    return read_vector_options(options, title, (METRIC,)).read(METRIC)


def held_vectors(reader: TableReader, scan: Scan, column: int) -> VectorSearchFunction:
    """Return the search of a bounded table in memory. Raises `ValidationError` for another one."""
    title = ".".join(scan.path)
    options = read_vector_options(scan.options, title)
    index = options.read(INDEX)
    if index == PGVECTOR:
        raise options.wrong(INDEX.key(), f"{PGVECTOR} searches tables of the connector 'jdbc'")
    if reader.source is None or reader.source.boundedness is not Boundedness.BOUNDED:
        raise ValidationError(f"table {title} cannot be searched for vectors, because it does not end")
    if reader.changes != INSERTS:
        raise ValidationError(f"table {title} cannot be searched for vectors, because its rows are updated or deleted")
    if index == USEARCH:
        _import_usearch(title)
    read = partial(read_whole, reader.source)
    vectors = VectorColumn(scan.schema, column, options.read(METRIC), title)
    return HeldVectors(read, vectors, index, scan.zone)


def import_optional(module: str, package: str, extra: str, what: str) -> Any:
    """Import a module of an optional package. Raises `UnsupportedError` if it is absent; `what` needs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"{what} needs the package {package}: {write_install_command(extra)}") from error


def _import_usearch(title: str) -> Any:
    what = f"'vector.index' = 'usearch' of table {title}"
    return import_optional("usearch.index", "usearch", "vectors", what)


class VectorColumn:
    """The vectors of a table: refuses those without a distance, and computes scores.

    Args:
        schema: the columns of the table.
        column: the column of vectors.
        metric: how near two vectors are.
        title: the name of the table.
    """

    def __init__(self, schema: RowSchema, column: int, metric: str, title: str) -> None:
        self.schema, self.column, self.metric, self.title = schema, column, metric, title

    def check_query(self, vector: Sequence[float | None], length: int | None) -> Any:
        """Return a vector to search for. Raises `WrongValueError` if it has no distance to vectors of this length."""
        query = np.asarray([np.nan if number is None else number for number in vector], np.float64)
        if length is not None and len(query) != length:
            raise WrongValueError(f"a vector of {len(query)} numbers: those of table {self.title} have {length}")
        if not np.isfinite(query).all():
            raise WrongValueError(f"a vector with NULL, NaN or an infinite number has no distance: table {self.title}")
        if self.metric == COSINE and not query.any():
            raise WrongValueError(f"a zero vector has no cosine: table {self.title}")
        return query

    def find_fault(self, matrix: Any) -> tuple[int, str] | None:
        """Return the first row of a matrix that has no distance, and why; None if all have one."""
        is_zero = ~matrix.any(axis=1) if self.metric == COSINE else np.zeros(len(matrix), bool)
        for rows, reason in (
            (~np.isfinite(matrix).all(axis=1), "it has NULL, NaN or an infinite number"),
            (is_zero, "a zero vector has no cosine"),
        ):
            if rows.any():
                return int(np.flatnonzero(rows)[0]), reason
        return None

    def refuse(self, values: Sequence[Any], reason: str, verb: str = "searched") -> WrongValueError:
        """Return the error for a row whose vector has no distance."""
        others = [index for index in range(len(self.schema)) if index != self.column]
        text = ", ".join(f"{self.schema.names[index]} = {values[index]!r}" for index in others)
        name = self.schema.names[self.column]
        return WrongValueError(f"table {self.title}: vector {name} of the row with {text} cannot be {verb}: {reason}")

    def normalise(self, matrix: Any) -> Any:
        """Return vectors of length 1 if they are compared by cosine."""
        return matrix / np.linalg.norm(matrix, axis=-1, keepdims=True) if self.metric == COSINE else matrix

    def score(self, matrix: Any, query: Any) -> Any:
        """Return the score of each row of a matrix; both are normalised."""
        return np.linalg.norm(matrix - query, axis=1) if self.metric == L2 else matrix @ query

    def read(self, rows: Sequence[Sequence[Any]], length: int, verb: str = "searched") -> Any:
        """Return the vectors of rows as a matrix. Raises `WrongValueError` for one without a distance."""
        vectors = [row[self.column] for row in rows]
        for row, vector in zip(rows, vectors, strict=True):
            if len(vector) != length:
                raise self.refuse(row, f"it has {len(vector)} numbers instead of {length}", verb)
        numbers = [[np.nan if number is None else number for number in vector] for vector in vectors]
        matrix = np.array(numbers, np.float64).reshape(len(rows), length)
        if (fault := self.find_fault(matrix)) is not None:
            raise self.refuse(rows[fault[0]], fault[1], verb)
        return matrix


class StoredVectors(VectorSearchFunction):
    """Base class of searches that a store makes, with its own metric and index.

    A store's score may be a similarity or a distance, negated, or of fewer digits. Here it is computed again from the
    vectors of the rows that the store has found, so that it means the same for all tables.
    """

    #: how many numbers the vectors have, if the store says so
    length: int | None = None

    def __init__(self, searched: VectorColumn) -> None:
        self.searched = searched

    @abstractmethod
    def find_nearest(self, vector: list[float], top_k: int) -> list[tuple[Any, ...]]:
        """Return the rows nearest to a vector by the metric, as programs see them."""

    def search(self, vector: Sequence[float], top_k: int) -> Sequence[tuple[Any, ...]]:
        """See `VectorSearchFunction`."""
        searched = self.searched
        query = searched.check_query(vector, self.length)
        rows = self.find_nearest(query.tolist(), top_k)
        if not rows:
            return ()
        matrix = searched.normalise(searched.read(rows, len(query)))
        scores = searched.score(matrix, searched.normalise(query))
        order = np.argsort(scores if searched.metric == L2 else -scores, kind="stable")
        return [(*rows[index], float(scores[index])) for index in order]


class HeldVectors(VectorSearchFunction):
    """See the module docstring.

    Args:
        read: returns the rows of the table.
        vectors: its column of vectors.
        index: `exact` or `usearch`.
        zone: the session's time zone.
    """

    def __init__(self, read: Callable[[], list[pa.RecordBatch]], vectors: VectorColumn, index: str, zone: Any) -> None:
        self._read, self._vectors, self._index, self._zone = read, vectors, index, zone

    def open(self, function_context: Any) -> None:
        """Read the table, and check its vectors."""
        kinds = pa.schema([(f"c{at}", arrow_type(column.type)) for at, column in enumerate(self._vectors.schema)])
        table = pa.Table.from_batches([batch.rename_columns(kinds.names) for batch in self._read()], kinds)
        vectors = table.column(self._vectors.column).combine_chunks()
        if vectors.null_count:
            table = table.filter(vectors.is_valid())
            vectors = vectors.drop_null()
        self._rows = table
        self._matrix = self._build_matrix(vectors)
        self._usearch = self._build_index() if self._index == USEARCH and len(self._matrix) else None

    def _build_matrix(self, vectors: pa.ListArray) -> Any:
        if isinstance(vectors, pa.ChunkedArray):
            vectors = pa.concat_arrays(vectors.chunks) if vectors.num_chunks else pa.array([], vectors.type)
        if not len(vectors):
            return np.zeros((0, 0))
        lengths = np.asarray(vectors.value_lengths())
        other = np.flatnonzero(lengths != lengths[0])
        if len(other):
            raise self._refused(int(other[0]), f"it has {lengths[other[0]]} numbers, and the first vector {lengths[0]}")
        numbers = vectors.flatten()
        matrix = numbers.to_numpy(zero_copy_only=False).astype(np.float64).reshape(len(vectors), -1)
        if (fault := self._vectors.find_fault(matrix)) is not None:
            raise self._refused(*fault)
        return self._vectors.normalise(matrix)

    def _refused(self, row: int, reason: str) -> WrongValueError:
        return self._vectors.refuse(self._values([row])[0], reason)

    def _build_index(self) -> Any:
        module = _import_usearch(self._vectors.title)
        index = module.Index(ndim=self._matrix.shape[1], metric=_USEARCH_METRICS[self._vectors.metric], dtype="f32")
        index.expansion_search = _EXPANSION
        index.add(np.arange(len(self._matrix)), self._matrix.astype(np.float32))
        return index

    def search(self, vector: Sequence[float], top_k: int) -> Sequence[tuple[Any, ...]]:
        """See `VectorSearchFunction`."""
        if not len(self._matrix):
            return ()
        query = self._vectors.normalise(self._vectors.check_query(vector, self._matrix.shape[1]))
        top_k = min(top_k, len(self._matrix))
        if self._usearch is None:
            scores = self._vectors.score(self._matrix, query)
            keys = scores if self._vectors.metric == L2 else -scores
            near = np.argpartition(keys, top_k - 1)[:top_k] if top_k < len(keys) else np.arange(len(keys))
            rows = near[np.lexsort((near, keys[near]))]
        else:
            rows = np.asarray(self._usearch.search(query.astype(np.float32), top_k).keys, np.int64)
            scores = self._vectors.score(self._matrix[rows], query)
            keys = scores if self._vectors.metric == L2 else -scores
            order = np.lexsort((rows, keys))
            rows, scores = rows[order], scores[order]
            return [(*values, float(score)) for values, score in zip(self._values(rows), scores, strict=True)]
        return [(*values, float(scores[row])) for values, row in zip(self._values(rows), rows, strict=True)]

    def _values(self, rows: Any) -> list[tuple[Any, ...]]:
        taken = self._rows.take(pa.array(rows, pa.int64())).combine_chunks()
        arrays = [chunks.chunk(0) if chunks.num_chunks else pa.array([], chunks.type) for chunks in taken.columns]
        return seen_rows(arrays, self._vectors.schema, self._zone)


def seen_rows(arrays: Sequence[pa.Array], schema: RowSchema, zone: Any) -> list[tuple[Any, ...]]:
    """Return rows of a table as programs see them."""
    columns = [seen_values(array, column.type, zone, len(array)) for array, column in zip(arrays, schema, strict=True)]
    return list(zip(*columns, strict=True))
