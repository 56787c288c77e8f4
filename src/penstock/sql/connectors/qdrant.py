"""`qdrant`: a collection of Qdrant, on a server or in a folder, which its local mode searches.

**Columns.** The id of a point is the column of the primary key. Its vectors are the columns with their names; a vector
without a name is the only column of arrays of numbers. All other columns are fields of its payload.

**The local mode** lets one process open a folder. All subtasks of a process share its client. A process waits for
another one that has the folder open: tasks of a batch job take turns.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.base.errors import MissingPathError, OperationError, WrongValueError
from penstock.sql.connectors import vector_stores as stores
from penstock.sql.data import types
from penstock.sql.data.errors import ValidationError
from penstock.sql.tables.connector import TableOptions
from penstock.sql.tables.vectors import COSINE, DOT, L2, VectorColumn, import_optional

URL: Final = stores.text_option("url", "The URL of a server, such as `http://localhost:6333`.")
FOLDER: Final = stores.text_option("path", "The folder of the local mode, which one process at a time can open.")
API_KEY: Final = stores.text_option("api-key", "The server's API key.")
COLLECTION: Final = stores.text_option("collection", "The name of the collection.")
_METRICS: Final = {"Cosine": COSINE, "Dot": DOT, "Euclid": L2}
_LOCK_WAIT_S: Final = 60
_LOCK_PAUSE_S: Final = 0.1


class QdrantConnector(stores.StoreConnector):
    """See the module docstring."""

    name = "qdrant"
    package = "qdrant-client", "qdrant_client", "qdrant"
    required_options = (COLLECTION,)
    optional_options = (URL, FOLDER, API_KEY, *stores.WRITING)

    def create_store(self, options: TableOptions, searched: VectorColumn, key: Sequence[int]) -> stores.Store:
        """See `StoreConnector`. Raises `ValidationError` for a key that cannot be the id of a point."""
        url, path = options.read(URL), options.read(FOLDER)
        if (url is None) == (path is None):
            raise ValidationError(
                f"connector 'qdrant' of table {options.title} takes one of the options 'url' and 'path'"
            )
        store = StoredInQdrant(url, path, options.read(API_KEY), options.required(COLLECTION), searched, key)
        keys = [store.schema[index] for index in store.key]
        if len(keys) > 1 or not all(isinstance(key.type, (types.IntegralType, *stores.TEXTS)) for key in keys):
            raise ValidationError(
                f"the primary key of table {options.title} is the id of a point of Qdrant: one column, an integer, or "
                "a STRING with a UUID"
            )
        return store


class _LocalClients:
    """The clients of the folders that this process has open, which their users share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._clients: dict[str, tuple[Any, int]] = {}

    def open(self, path: str, create: Callable[[], Any]) -> Any:
        """Return the client of a folder. Waits for other processes, and raises `OperationError` if they keep it."""
        deadline = time.monotonic() + _LOCK_WAIT_S
        while True:
            with self.lock:
                client, users = self._clients.get(path, (None, 0))
                try:
                    client = create() if client is None else client
                except RuntimeError as error:
                    if "already accessed" not in str(error):
                        raise
                    if time.monotonic() > deadline:
                        raise OperationError(
                            f"the folder {path} of Qdrant is open in another process for more than {_LOCK_WAIT_S} s: "
                            "its local mode has one process at a time, so run a server, and set 'url'"
                        ) from error
                else:
                    self._clients[path] = client, users + 1
                    return client
            time.sleep(_LOCK_PAUSE_S)

    def close(self, path: str) -> None:
        """Close a client after its last user."""
        with self.lock:
            client, users = self._clients.pop(path)
            if users > 1:
                self._clients[path] = client, users - 1
            else:
                client.close()


_LOCAL: Final = _LocalClients()


class StoredInQdrant(stores.Store):
    """A collection of Qdrant.

    Args:
        url: the server's URL; None for the local mode.
        path: the folder of the local mode.
        api_key: the server's API key.
        collection: the name of the collection.
        searched: the column of vectors that is searched.
        key: the column of ids.
    """

    def __init__(
        self,
        url: str | None,
        path: str | None,
        api_key: str | None,
        collection: str,
        searched: VectorColumn,
        key: Sequence[int],
    ) -> None:
        super().__init__(searched, key)
        self._url, self._path, self._api_key, self._collection = url, path, api_key, collection
        self._client: Any = None

    @contextmanager
    def _asking(self, what: str) -> Any:
        """Name the store in its errors. The local mode has one user at a time."""
        self._lock.acquire()
        try:
            yield
        except (self._http_error, ValueError, RuntimeError, OSError) as error:
            where = self._path if self._url is None else self._url
            raise OperationError(
                f"{what} collection {self._collection} of Qdrant at {where} failed: {error}"
            ) from error
        finally:
            self._lock.release()

    def open(self, function_context: Any) -> None:
        """Connect to the store, and check the collection."""
        qdrant = import_optional("qdrant_client", "qdrant-client", "qdrant", f"table {self.title}")
        self._models, self._http_error = qdrant.models, qdrant.http.exceptions.ApiException
        self._lock: Any = threading.Lock() if self._path is None else _LOCAL.lock
        if self._path is None:
            # Without the check of versions, which is a thread of its own.
            self._client = qdrant.QdrantClient(url=self._url, api_key=self._api_key, check_compatibility=False)
        else:
            create = partial(qdrant.QdrantClient, path=self._path, force_disable_check_same_thread=True)
            # A client would create the folder.
            if not Path(self._path).is_dir():
                raise MissingPathError(f"there is no folder {self._path} of Qdrant: table {self.title}")
            self._client = _LOCAL.open(self._path, create)
        with self._asking("opening"):
            vectors = self._client.get_collection(self._collection).config.params.vectors
        self._is_named = isinstance(vectors, dict)
        self._find_vectors(vectors)
        self._payload = [
            index for index in range(len(self.schema)) if index not in self.vectors and index not in self.key
        ]

    def _find_vectors(self, configs: Any) -> None:
        """Find the columns of vectors. Raises `ValidationError` if the table has other ones than the collection."""
        names = self.schema.names
        if self._is_named:
            columns = {index: configs[name] for index, name in enumerate(names) if name in configs}
        else:
            arrays = [index for index, column in enumerate(self.schema) if stores.is_vector_type(column.type)]
            columns = {arrays[0]: configs} if len(arrays) == 1 and configs is not None else {}
        if not columns if self.is_written else self.searched.column not in columns:
            has = f"the vectors {', '.join(configs)}" if self._is_named else "a vector without a name"
            needs = "columns of these names" if self._is_named else "exactly one column of type ARRAY<FLOAT>"
            raise ValidationError(
                f"collection {self._collection} of Qdrant has {has}: table {self.title} needs {needs}"
            )
        for index, config in columns.items():
            if not stores.is_vector_type(self.schema[index].type) or config.multivector_config is not None:
                raise ValidationError(
                    f"column '{names[index]}' of table {self.title} is a vector in Qdrant: it is ARRAY<FLOAT> or "
                    "ARRAY<DOUBLE>, with one vector for a point"
                )
            distance, wanted = config.distance.value, self.searched.metric
            metric = _METRICS.get(distance, distance)
            if metric != wanted and index == self.searched.column:
                raise ValidationError(
                    f"vector '{names[index]}' of collection {self._collection} of Qdrant is compared by {distance}, "
                    f"and 'vector.metric' of table {self.title} is {wanted}: "
                    + (f"set it to {metric}" if distance in _METRICS else f"the metrics are {', '.join(_METRICS)}")
                )
            self.add_vectors(index, metric, config.size)

    def find_nearest(self, vector: list[float], top_k: int) -> list[tuple[Any, ...]]:
        """See `StoredVectors`."""
        names = self.schema.names
        with self._asking("searching"):
            answer = self._client.query_points(
                self._collection,
                query=vector,
                using=names[self.searched.column] if self._is_named else None,
                limit=top_k,
                with_payload=[names[index] for index in self._payload] or False,
                with_vectors=[names[index] for index in self.vectors] if self._is_named else True,
            )
        return list(map(self._as_row, answer.points))

    def _as_row(self, point: Any) -> tuple[Any, ...]:
        payload = point.payload or {}
        values: list[Any] = []
        for index, column in enumerate(self.schema):
            if index in self.vectors:
                values.append(point.vector.get(column.name) if self._is_named else point.vector)
            else:
                stored = point.id if index in self.key else payload.get(column.name)
                values.append(stores.as_declared(stored, column.type))
        return tuple(values)

    def write(self, deleted: list[tuple[Any, ...]], upserted: list[tuple[Any, ...]]) -> None:
        """See `Store`."""
        (key,) = self.key
        names = self.schema.names
        points = []
        for row in upserted:
            vectors: Any = {names[index]: row[index] for index in self.vectors if row[index] is not None}
            if not self._is_named and vectors:
                (vectors,) = vectors.values()
            payload = {names[index]: row[index] for index in self._payload if row[index] is not None}
            points.append(self._models.PointStruct(id=self._as_id(row[key]), vector=vectors, payload=payload))
        with self._asking("writing"):
            if deleted:
                self._client.delete(self._collection, points_selector=[self._as_id(row[0]) for row in deleted])
            if points:
                self._client.upsert(self._collection, points=points)

    def _as_id(self, value: Any) -> Any:
        """Return the id of a point. Raises `WrongValueError` for a value that Qdrant does not take."""
        try:
            is_id = value >= 0 if isinstance(value, int) else bool(str(uuid.UUID(value)))
        except ValueError:
            is_id = False
        if not is_id:
            raise WrongValueError(
                f"table {self.title}: {value!r} is no id of a point of Qdrant: ids are UUIDs and integers of 0 or above"
            )
        return value

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is None:
            return
        if self._path is None:
            client.close()
        else:
            _LOCAL.close(self._path)
