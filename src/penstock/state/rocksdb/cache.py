"""The entries in memory, in two generations, and the notes about classes and keys that a store holds in its own rows.

**Shapes** are the classes named in the pickles of a store, and the fields that they had (H4). The backend notes them
while it pickles rows, and keeps them in a row of the store that belongs to no key group: JSON, by state, of
`state.loading`. So a restore knows without reading the rows whether the program's classes are still the same.

`WriteCache`: an access that finds its entry in memory should be as cheap as a dictionary access, so it records nothing:
there is no list of least recently used entries. Instead entries have two generations, which change at settling points.
A requested entry is in the young generation, or moves into it from the old one or from the store. Once the young
generation is full, the next settling point is a turn. The entries left in the old generation have not been requested
during a whole generation. The cache writes the marked ones, drops the old generation, and the young generation becomes
the old one. So a hot entry is serialised only for a checkpoint, and the time of a turn is proportional to the accesses
that went to the store since the last one.

The cache calls its members:
- `write_back(batch)`: write the marked entries, forget the marks, keep the entries;
- `turn(batch)`: drop the old generation, and make the young one the old one.
Both happen at settling points only (see `state.backend`), so all changes are marked then.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, Protocol

from penstock.base.typeinfo import class_fields
from penstock.codecs.pickling import dumps
from penstock.state.errors import StateError, StateMigrationError
from penstock.state.loading import Shapes, find_class, loads_with_shapes, merged, shapes_from_json
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.store import META_PREFIX, Batch, RowStore, encode
from penstock.state.snapshot import KEYS_VERSION

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


#: The size of an entry without its value, in bytes: a slot of a dictionary, the key, and a place among the marks.
_ENTRY_BYTES: Final = 256
#: How much larger a value is as objects than as pickled bytes; a rule of thumb.
_OBJECT_FACTOR: Final = 4
_SEGMENT_ROW: Final = META_PREFIX + b"segment"
_KEYS_ROW: Final = META_PREFIX + b"keys"


class Member(Protocol):
    """A holder of entries in memory."""

    def write_back(self, batch: Batch) -> None: ...

    def turn(self, batch: Batch) -> None: ...

    def young(self) -> int:
        """Return the number of entries in the young generation that `WriteCache.grown` does not include."""


class WriteCache:
    """The entries that one backend keeps in memory."""

    __slots__ = (
        "_members",
        "_picklers",
        "_row_bytes",
        "_rows",
        "_segment",
        "_settings",
        "generation_max",
        "grown",
        "owner",
        "store",
        "written",
    )

    def __init__(self, store: RowStore, settings: RocksDBSettings, owner: str) -> None:
        self.store = store
        self.owner = owner
        #: The number of entries added to the young generation, as far as members count them here.
        self.grown = 0
        #: The number of rows that members wrote, by state; only for states that are already keys here.
        self.written: dict[str, int] = {}
        self._members: list[Member] = []
        self._settings = settings
        self._rows = 0
        self._row_bytes = 0
        self.resize()
        store.on_resize = self.resize
        self._segment = read_segment_count(store)
        self._picklers: dict[str, NotingPickler] = {}
        for name, shapes in read_shapes(store).items():
            self._picklers[name] = NotingPickler(shapes or {})
            self._picklers[name].is_new = False

    def add(self, member: Member) -> None:
        """Add a member."""
        self._members.append(member)

    def remove(self, member: Member) -> None:
        """Remove a member, which has been written back."""
        self._members.remove(member)

    def resize(self) -> None:
        """Adapt to room for more or fewer entries: the next settling points drop the excess."""
        self.generation_max = self._generation()

    def _generation(self) -> int:
        mean = self._row_bytes // self._rows if self._rows else 0
        return max(1, self._settings.object_bytes // (2 * (_ENTRY_BYTES + _OBJECT_FACTOR * mean)))

    def settle(self) -> None:
        """Run a settling point."""
        size = self.grown
        for member in self._members:
            size += member.young()
        if size >= self.generation_max:
            self.turn()

    def turn(self) -> None:
        """Drop the old generation; the young one becomes the old one."""
        batch = self.store.batch()
        for member in self._members:
            member.turn(batch)
        batch.write()
        self.grown = 0
        self.generation_max = self._generation()

    def flush(self) -> None:
        """Write all marked entries, and the metadata that a restore needs to continue with the rows."""
        batch = self.store.batch()
        for member in self._members:
            member.write_back(batch)
        if self._segment:
            put_segments(batch, self._segment)
        if any(pickler.is_new for pickler in self._picklers.values()):
            put_shapes(batch, {name: pickler.shapes for name, pickler in self._picklers.items()})
            for pickler in self._picklers.values():
                pickler.is_new = False
        batch.write()

    def put(self, batch: Batch, row: bytes, raw: bytes) -> None:
        """Write a row; its size refines the estimate of how many entries fit."""
        self._rows += 1
        self._row_bytes += len(raw)
        batch.put(row, raw)

    def read(self, row: bytes) -> bytes | None:
        """Return a row's value, whose size refines the same estimate."""
        raw = self.store.get(row)
        if raw is not None:
            self._rows += 1
            self._row_bytes += len(raw)
        return raw

    def note_written(self, name: str, count: int) -> None:
        """Note that `count` rows of a state were written."""
        if name in self.written:
            self.written[name] += count

    def pickle(self, name: str, value: Any) -> bytes:
        """Pickle a value; raises a `StateError` that names the operator and the state."""
        try:
            return (self._picklers.get(name) or self._pickler(name)).dumps(value)
        except Exception as error:
            raise StateError(f"{self.owner}: a value in state {name!r} cannot be pickled: {error}") from error

    def encode(self, name: str, value: bytes, *keys: Any) -> bytes:
        """Return the content of a row with a pickled value, under these keys."""
        return encode(value, keys, lambda data: self.pickle(name, data))

    def unpickle(self, name: str, raw: bytes) -> Any:
        """Return the value in a row; raises a `StateMigrationError` that names the operator and the state."""
        try:
            return pickle.loads(raw)
        except Exception as error:
            raise StateMigrationError(
                f"{self.owner}: a value in state {name!r} can no longer be read: {type(error).__name__}: {error}; "
                'if its class has changed, penstock.state.migrations.register("module:Class", class_or_function) '
                "registers its successor"
            ) from error

    def _pickler(self, name: str) -> NotingPickler:
        pickler = self._picklers[name] = NotingPickler({})
        return pickler

    def note_shapes(self, name: str, shapes: Shapes) -> None:
        """Note that pickles of these classes enter a state's rows without `pickle`."""
        (self._picklers.get(name) or self._pickler(name)).note(shapes)

    def forget_shapes(self, name: str) -> None:
        """Forget the shapes of a state, all of whose rows are about to be pickled again."""
        self._pickler(name)

    def next_segment(self) -> int:
        """Return a number above the numbers of all list segments that were written."""
        self._segment += 1
        return self._segment


def read_segment_count(store: RowStore) -> int:
    """Return the highest number of a list segment in a store."""
    return int.from_bytes(store.get(_SEGMENT_ROW) or b"", "big")


def has_present_keys(store: RowStore) -> bool:
    """Return whether the rows use the current canonical bytes; rows from before versions existed may not."""
    return store.get(_KEYS_ROW) == KEYS_VERSION


def put_keys_version(batch: Batch) -> None:
    """Note that the rows use the current canonical bytes."""
    batch.put(_KEYS_ROW, KEYS_VERSION)


def drop_keys_version(batch: Batch) -> None:
    """Note that some rows may use the canonical bytes from before versions existed."""
    batch.delete(_KEYS_ROW)


def put_segments(batch: Batch, number: int) -> None:
    """Note the highest number of a list segment in a store."""
    batch.put(_SEGMENT_ROW, number.to_bytes(8, "big"))
