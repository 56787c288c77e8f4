"""The classes named in the pickles of a store, and the fields that they had (H4).

The backend notes them while it pickles rows, and keeps them in a row of the store that belongs to no key group: JSON,
by state, of `state.shapes`. So a restore knows without reading the rows whether the program's classes are still the
same.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from penstock.base.class_types import class_fields
from penstock.codecs.pickling import dumps
from penstock.state.rocksdb.rows import META_PREFIX
from penstock.state.rocksdb.store import Batch, RowStore
from penstock.state.shapes import Shapes, find_class, loads_with_shapes, merged, shapes_from_json

_CLASSES_ROW: Final = META_PREFIX + b"classes"
#: By state; None if nothing is known about a state.
StateShapes = dict[str, Shapes | None]


def read_shapes(store: RowStore) -> StateShapes:
    """Return the known shapes of all states that have rows in a store."""
    data = store.get(_CLASSES_ROW)
    if data is None:
        return {}
    return {name: None if parts is None else shapes_from_json(parts) for name, parts in json.loads(data).items()}


def put_shapes(batch: Batch, shapes: Mapping[str, Shapes | None]) -> None:
    """Note the shapes of all states."""
    batch.put(_CLASSES_ROW, json.dumps(shapes).encode())


def merged_shapes(several: list[StateShapes]) -> StateShapes:
    """Return the shapes of rows from several stores."""
    names = {name for shapes in several for name in shapes}
    return {name: merged([shapes[name] for shapes in several if name in shapes]) for name in names}


class NotingPickler(pickle.Pickler):
    """Pickles values of one state, and notes their classes in `shapes`."""

    def __init__(self, shapes: Shapes) -> None:
        self._file = BytesIO()
        super().__init__(self._file, 5)
        self.shapes = shapes
        #: Whether `shapes` contains anything that was not written.
        self.is_new = True
        self._seen: set[type] = set()

    def dumps(self, value: Any) -> bytes:
        """Pickle a value like `pickling.dumps`."""
        file = self._file
        file.seek(0)
        file.truncate()
        try:
            self.dump(value)
            return file.getvalue()
        except Exception:  # noqa: BLE001 - pickling calls user code, which may raise anything
            data = dumps(value)
            self.note(loads_with_shapes(data)[1])
            return data
        finally:
            self.clear_memo()

    def note(self, shapes: Mapping[str, tuple[str, ...] | None]) -> None:
        """Note that there are pickles of these classes as well."""
        if not shapes.items() <= self.shapes.items():
            self.shapes.update(shapes)
            self.is_new = True

    # Called for every object that is not of a plain built-in type.
    def reducer_override(self, value: Any) -> Any:
        cls = value if isinstance(value, type) else type(value)
        if cls not in self._seen:
            self._seen.add(cls)
            try:
                if find_class(cls.__module__, cls.__qualname__) is cls:
                    self.note({f"{cls.__module__}:{cls.__qualname__}": class_fields(cls)})
            except (ImportError, AttributeError):
                pass  # the class is not pickled by name
        return NotImplemented
