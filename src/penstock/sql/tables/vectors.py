"""Tables of vectors, for VECTOR_SEARCH.

Any bounded table has a search: its rows are held in memory, and `vector.index` says how they are searched: `exact`
compares each vector, `usearch` has an approximate index (HNSW). `vector.metric` is `cosine` (the score is the cosine,
greatest first), `dot` (the inner product, greatest first) or `l2` (the distance, least first). A connector may have a
search of its own: `vector-function` calls a class of the user's.

A vector without a distance would spoil the search for all others: an index that accepts a NaN finds fewer neighbours of
every vector, and a zero vector has no cosine. So a table or a query with a NaN, an infinite number, a vector of another
length or, by cosine, a zero vector is refused, and the message names its row. A NULL vector is never found.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.config_options import ConfigOption, choice
from penstock.base.errors import UnsupportedError, WrongValueError
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
EXACT, USEARCH = "exact", "usearch"
METRIC: Final = ConfigOption("metric", choice(COSINE, DOT, L2), COSINE)
INDEX: Final = ConfigOption("index", choice(EXACT, USEARCH), EXACT)
_OPTIONS: Final = (METRIC, INDEX)
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


def held_vectors(reader: TableReader, scan: Scan, column: int) -> VectorSearchFunction:
    """Return the search of a bounded table in memory. Raises `ValidationError` for another one."""
    title = ".".join(scan.path)
    values = {key.removeprefix(ABOUT_VECTORS): value for key, value in scan.options if key.startswith(ABOUT_VECTORS)}
    options = TableOptions(title, values)
    unknown = sorted(set(values) - {option.key() for option in _OPTIONS})
    if unknown:
        raise ValidationError(
            f"Unsupported options of table {title}: {', '.join(ABOUT_VECTORS + key for key in unknown)}"
        )
    if reader.source is None or reader.source.boundedness is not Boundedness.BOUNDED:
        raise ValidationError(f"table {title} cannot be searched for vectors, because it does not end")
    if reader.changes != INSERTS:
        raise ValidationError(f"table {title} cannot be searched for vectors, because its rows are updated or deleted")
    index = options.read(INDEX)
    if index == USEARCH:
        _import_usearch(title)
    read = partial(read_whole, reader.source)
    return HeldVectors(read, scan.schema, column, options.read(METRIC), index, title, scan.zone)


def _import_usearch(title: str) -> Any:
    try:
        return importlib.import_module("usearch.index")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"'vector.index' = 'usearch' of table {title} needs the package usearch: pip install 'penstock[vectors]'"
        ) from error


class HeldVectors(VectorSearchFunction):
    """See the module docstring.

    Args:
        read: returns the rows of the table.
        schema: its columns.
        column: the column of vectors.
        metric: how near two vectors are.
        index: `exact` or `usearch`.
        title: the name of the table.
        zone: the session's time zone.
    """

    def __init__(
        self,
        read: Callable[[], list[pa.RecordBatch]],
        schema: RowSchema,
        column: int,
        metric: str,
        index: str,
        title: str,
        zone: Any,
    ) -> None:
        self._read, self._schema, self._column = read, schema, column
        self._metric, self._index, self._title, self._zone = metric, index, title, zone

    def open(self, function_context: Any) -> None:
        """Read the table, and check its vectors."""
        kinds = pa.schema([(f"c{at}", arrow_type(column.type)) for at, column in enumerate(self._schema)])
        table = pa.Table.from_batches([batch.rename_columns(kinds.names) for batch in self._read()], kinds)
        vectors = table.column(self._column).combine_chunks()
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
        for rows, reason in (
            (~np.isfinite(matrix).all(axis=1), "it has NULL, NaN or an infinite number"),
            (
                ~matrix.any(axis=1) if self._metric == COSINE else np.zeros(len(matrix), bool),
                "a zero vector has no cosine",
            ),
        ):
            if rows.any():
                raise self._refused(int(np.flatnonzero(rows)[0]), reason)
        return matrix / np.linalg.norm(matrix, axis=1, keepdims=True) if self._metric == COSINE else matrix

    def _refused(self, row: int, reason: str) -> WrongValueError:
        others = [index for index in range(len(self._schema)) if index != self._column]
        values = self._values([row])[0]
        text = ", ".join(f"{self._schema.names[index]} = {values[index]!r}" for index in others)
        name = self._schema.names[self._column]
        return WrongValueError(
            f"table {self._title}: vector {name} of the row with {text} cannot be searched: {reason}"
        )

    def _build_index(self) -> Any:
        module = _import_usearch(self._title)
        index = module.Index(ndim=self._matrix.shape[1], metric=_USEARCH_METRICS[self._metric], dtype="f32")
        index.expansion_search = _EXPANSION
        index.add(np.arange(len(self._matrix)), self._matrix.astype(np.float32))
        return index

    def search(self, vector: Sequence[float], top_k: int) -> Sequence[tuple[Any, ...]]:
        """See `VectorSearchFunction`."""
        if not len(self._matrix):
            return ()
        query = self._checked(vector)
        top_k = min(top_k, len(self._matrix))
        if self._usearch is None:
            scores = self._scores(self._matrix, query)
            keys = scores if self._metric == L2 else -scores
            near = np.argpartition(keys, top_k - 1)[:top_k] if top_k < len(keys) else np.arange(len(keys))
            rows = near[np.lexsort((near, keys[near]))]
        else:
            rows = np.asarray(self._usearch.search(query.astype(np.float32), top_k).keys, np.int64)
            scores = self._scores(self._matrix[rows], query)
            keys = scores if self._metric == L2 else -scores
            order = np.lexsort((rows, keys))
            rows, scores = rows[order], scores[order]
            return [(*values, float(score)) for values, score in zip(self._values(rows), scores, strict=True)]
        return [(*values, float(scores[row])) for values, row in zip(self._values(rows), rows, strict=True)]

    def _checked(self, vector: Sequence[float | None]) -> Any:
        numbers = [np.nan if number is None else number for number in vector]
        query = np.asarray(numbers, np.float64)
        if len(query) != self._matrix.shape[1]:
            raise WrongValueError(
                f"a vector of {len(query)} numbers: those of table {self._title} have {self._matrix.shape[1]}"
            )
        if not np.isfinite(query).all():
            raise WrongValueError(f"a vector with NULL, NaN or an infinite number has no distance: table {self._title}")
        if self._metric == COSINE:
            if not query.any():
                raise WrongValueError(f"a zero vector has no cosine: table {self._title}")
            query = query / np.linalg.norm(query)
        return query

    def _scores(self, matrix: Any, query: Any) -> Any:
        return np.linalg.norm(matrix - query, axis=1) if self._metric == L2 else matrix @ query

    def _values(self, rows: Any) -> list[tuple[Any, ...]]:
        """Return rows of the table as programs see them."""
        taken = self._rows.take(pa.array(rows, pa.int64())).combine_chunks()
        columns = []
        for chunks, column in zip(taken.columns, self._schema, strict=True):
            array = chunks.chunk(0) if chunks.num_chunks else pa.array([], chunks.type)
            columns.append(seen_values(array, column.type, self._zone, len(array)))
        return list(zip(*columns, strict=True))
