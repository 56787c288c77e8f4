"""The interface of keyed state backends, and the rules between them and the operators (D1, D3).

**Tables.** A backend holds tables, `namespace -> key -> value`. `table.entries(namespace)` is a dictionary (or behaves
like one), and `table.changed(namespace)` the set of keys that its user marks. Both objects stay the same until the
namespace is dropped, so loops may keep references to them.

**Marks.** Code that assigns or removes an entry, or changes its value in place, adds the entry's key to
`changed(namespace)`. It may do so before or after the change, but before the next settling point. Unmarked changes may
be lost. Operators that process batches call `mark` after each batch: a table in which most entries changed is written
whole, and needs no marks.

**Settling points.** A backend may move entries out of memory and load them again on demand. It writes marked entries
first. It does so only in `settle()`, in `capture()` and between two items of a dropped namespace's `items()`. Between
two settling points a key's value is one object: code may fetch it, change it in place and mark it in any order, and
fetch it again. After a settling point, an older reference may no longer be the value in the state. The task settles
between batches, and a timer queue between timers; operators and user code never do.

**Schemas.** A state is written with its schema (`schema.declared`). The backend checks the first declaration of a
restored state against the restored schema. If the two differ but are compatible, it converts and marks all entries, so
that the next snapshot is whole and has the new schema.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from penstock.state import states
from penstock.state.errors import StateError, StateMigrationError
from penstock.state.loading import Shapes, StateLoader
from penstock.state.schema import (
    GONE,
    Converter,
    Incompatible,
    Moved,
    StateSchema,
    conversion,
    schema_from_json,
    to_state_schema,
)
from penstock.state.snapshot import Pack, StateCapture, read_keyed
from penstock.state.ttl_config import Cleaning, StateTtlConfig

Entries = dict[Any, dict[Any, Any]]
Table = TypeVar("Table", bound="KeyedTable")


def _no_clock() -> int:
    raise StateError("this backend was given no clock")


class KeyedTable(Protocol):
    """One keyed state; see the module docstring."""

    name: str
    #: The namespaces, each with its entries.
    panes: dict[Any, dict[Any, Any]]
    #: Further namespaces that have a single key: maps each to its key, whose value is None. Code that adds one here
    #: marks it like any other; `entries` turns it into a pane. None if all namespaces are in panes.
    lone: dict[Any, Any] | None
    #: A settling point for code that iterates over many entries in one call; None if entries never leave memory.
    settle: Callable[[], None] | None
    #: Whether the next snapshot writes everything; until then no marks are needed.
    is_next_whole: bool

    def entries(self, namespace: Any) -> dict[Any, Any]:
        """Return the entries under a namespace, created if missing."""

    def changed(self, namespace: Any) -> set[Any]:
        """Return the keys under a namespace whose entries have changed."""

    def mark(self, namespace: Any, keys: Collection[Any]) -> None:
        """Mark the keys of a whole batch, after their entries were set."""

    def drop(self, namespace: Any) -> Mapping[Any, Any]:
        """Remove a namespace with all its entries, and return the entries."""

    def restore(self, key: Any, namespace: Any, value: Any) -> None:
        """Restore one entry of a snapshot."""

    def mark_all(self) -> None:
        """Make the next snapshot write everything."""

    def keep_packed(self, pack: Pack) -> None:
        """Announce values in a form that snapshots do not use; from now on, `pack` captures them for a snapshot.

        Raises:
            StateError: if entries may leave memory.
        """


@dataclass(frozen=True)
class NativeFiles:
    """Files of a native capture in a checkpoint, with their key groups (both included) and functions to read them."""

    backend: str
    first_key_group: int
    last_key_group: int
    read: Mapping[str, Callable[[], bytes]]
    #: the declared schemas of the states, by name
    schemas: Mapping[str, str]


class KeyedStateBackend(ABC):
    """The keyed state of one operator in one subtask. `current_key` decides which entry a state reads and writes."""

    #: Whether a snapshot holds only the changes since the canonical files that were restored.
    adds_to_canonical = False

    def __init__(self, max_parallelism: int, owner: str = "operator") -> None:
        self.current_key: Any = states.NO_KEY
        self.max_parallelism = max_parallelism
        self.owner = owner
        #: processing time (ms), and the migrations of classes; the operator's context sets both
        self.now_ms: Callable[[], int] = _no_clock
        self.migrations: Moved = {}
        #: by name, the cleaner that removes a state's expired entries; it is notified of records and of accesses
        self.sweepers: dict[str, Cleaning] = {}
        self._schemas: dict[str, StateSchema] = {}
        #: by name, the schema of a restored state, and whether any of its entries were restored
        self._restored: dict[str, tuple[str, bool]] = {}

    @abstractmethod
    def table(self, name: str) -> KeyedTable:
        """Return the table of that name, created if missing."""

    def list_keys(self, descriptor: states.StateDescriptor) -> list[Any]:
        """Return the keys that have an entry in the descriptor's state."""
        return list(self._declare_table(descriptor).entries(None))

    @abstractmethod
    def restore(self, name: str, entries: Entries, is_written: bool, schema: str = "") -> None:
        """Restore the entries of a snapshot; unless `is_written`, the next snapshot writes them again."""

    def restore_canonical(
        self, name: str, files: Iterable[bytes], key_groups: tuple[int, int], is_written: bool, schema: str = ""
    ) -> bool:
        """Restore a state from its history of canonical files, oldest first; only these key groups.

        Returns whether snapshots may build on these files. If classes have changed, they may not, and all entries are
        marked.
        """
        loader = self._loader(name, schema)
        entries = read_keyed(files, *key_groups, loader)
        is_written = is_written and not loader.has_changed
        self.restore(name, entries, is_written, schema)
        return is_written

    def _loader(self, name: str, schema: str = "") -> StateLoader:
        """Return the loader of a state's files; if a file does not list its classes, it uses the schema's."""
        shapes: Shapes = dict(schema_from_json(schema).classes()) if schema else {}
        return StateLoader(self.owner, name, self.max_parallelism, self.migrations, shapes)

    def restore_native(self, files: Sequence[NativeFiles]) -> None:
        """Restore captures of backends of this kind; raises `StateError` for captures of another kind."""
        for native_files in files:
            raise StateError(
                f"{self.owner}: the checkpoint holds its keyed state in files of the backend "
                f"{native_files.backend!r}: restore "
                f"it with state.backend.type: {native_files.backend}, or from a savepoint, which any backend can read"
            )

    @abstractmethod
    def capture(self, checkpoint_id: int) -> Sequence[StateCapture]:
        """Freeze and return what a snapshot must store; raises `StateError` for values that cannot be stored."""

    @abstractmethod
    def confirm(self, checkpoint_id: int) -> None:
        """Note that the checkpoint completed: later snapshots build on its files."""

    @abstractmethod
    def take_back(self, checkpoint_id: int) -> None:
        """Do not let snapshots build on that capture, the last one: a savepoint's files are not the job's own."""

    @abstractmethod
    def settle(self) -> None:
        """Run a settling point: no code holds an unmarked change."""

    def measured(self) -> dict[str, int | float]:
        """Return the backend's metrics, by Flink's names; called at each report."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Release the backend's resources; may be called twice."""

    def declare(self, descriptor: states.StateDescriptor) -> None:
        """Note the schema of a state, and convert its restored entries.

        Raises `StateError` if the state was declared differently before, `StateMigrationError` if it was restored with
        a schema that cannot be converted to the declared one.
        """
        name, schema = descriptor.name, to_state_schema(descriptor)
        known = self._schemas.get(name)
        if known is not None:
            if known != schema:
                raise StateError(
                    f"{self.owner}: state {name!r} was declared as {known} and now as {schema}; "
                    "give the two states different names"
                )
            return
        before = self._restored.get(name)
        if before is not None and before[0] != schema.to_json():
            self._migrate(descriptor, before[0])
        self._schemas[name] = schema

    def _migrate(self, descriptor: states.StateDescriptor, before: str) -> None:
        new = to_state_schema(descriptor)
        # Without a schema, only one thing is known about the restored state: it contains no times.
        old = schema_from_json(before) if before else StateSchema(new.kind, None, None)
        try:
            self.rewrite(descriptor, conversion(old, descriptor, self.migrations, self.now_ms))
        except StateError:
            raise
        except Exception as error:  # noqa: BLE001 - converting handles what user code stored, and may raise anything
            raise StateMigrationError(
                f"{self.owner}: state {descriptor.name!r} was written as {old} and is now declared as {new}. These do "
                f"not fit: {error}. Declare it as before, or with a type that it can become (docs/state.md), or give "
                "the new state another name, under which it starts empty"
            ) from (None if isinstance(error, Incompatible) else error)

    def rewrite(self, descriptor: states.StateDescriptor, convert: Converter) -> None:
        """Convert and mark all entries of a restored, undeclared state; without `convert`, only mark them."""
        table = self.table(descriptor.name)
        for namespace, entries in table.panes.items():
            mark = table.changed(namespace).add
            for key, value in list(entries.items()):
                mark(key)
                converted = value if convert is None else convert(value)
                if converted is GONE:
                    del entries[key]
                elif converted is not value:
                    entries[key] = converted
                if table.settle is not None:
                    table.settle()

    def note_schema(self, name: str, schema: str, has_entries: bool) -> None:
        """Note the schema of a restored state or part of a state; raises if its parts were declared differently."""
        known, had_entries = self._restored.get(name, (schema, False))
        if known != schema and had_entries and has_entries:
            raise StateMigrationError(
                f"{self.owner}: subtasks wrote state {name!r} under different declarations, {known} and {schema}: "
                "declare it in open(), and restore once with the parallelism of the snapshot"
            )
        if has_entries or name not in self._restored:
            self._restored[name] = (schema, has_entries)

    @property
    def store_columns(self) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
        """A function that returns the same columns mapped from a file, for state in columns; None to keep them.

        It raises `StateError` if they cannot be written.
        """
        return None

    def allocate(self, length: int, dtype: Any) -> Any:
        """Return a NumPy array of zeros, for state in columns. A backend on disk maps it from a file.

        Raises:
            StateError: if the disk has no space for it.
        """
        return np.zeros(length, dtype)

    def has_restored(self, name: str) -> bool:
        """Return whether a state of that name was restored; it may be empty."""
        return name in self.restored_names()

    def restored_names(self) -> list[str]:
        """Return the names of the restored states."""
        return list(self._restored)

    def schema_text(self, name: str) -> str:
        """Return the schema under which a state is now written."""
        schema = self._schemas.get(name)
        return schema.to_json() if schema is not None else self._restored.get(name, ("", False))[0]

    @abstractmethod
    def validate(self, key_groups: tuple[int, int]) -> None:
        """Assert what holds between any two turns, for a sample of keys: they are the subtask's, each in one place.

        The simulator calls this; a running job never does.
        """

    @abstractmethod
    def build_sweeper(self, descriptor: states.StateDescriptor, config: StateTtlConfig) -> Cleaning | None:
        """Return the cleaner of a declared state's expired entries; None if the configuration requests none."""

    def _declare_table(self, descriptor: states.StateDescriptor) -> KeyedTable:
        self.declare(descriptor)
        return self.table(descriptor.name)

    def value_state(self, descriptor: states.StateDescriptor) -> states.ValueState[Any]:
        """Return the descriptor's state as a value state; TTL states that fold values use it as well."""
        return states.ValueState(self, self._declare_table(descriptor))

    def list_state(self, descriptor: states.ListStateDescriptor) -> states.ListState[Any]:
        """Return the list state that the descriptor names."""
        return states.ListState(self, self._declare_table(descriptor))

    def map_state(self, descriptor: states.MapStateDescriptor) -> states.MapState[Any, Any]:
        """Return the map state that the descriptor names."""
        return states.MapState(self, self._declare_table(descriptor))

    def reducing_state(self, descriptor: states.ReducingStateDescriptor) -> states.ReducingState[Any]:
        """Return the reducing state that the descriptor names."""
        return states.ReducingState(self, self._declare_table(descriptor), descriptor.reduce_function)

    def aggregating_state(self, descriptor: states.AggregatingStateDescriptor) -> states.AggregatingState[Any, Any]:
        """Return the aggregating state that the descriptor names."""
        return states.AggregatingState(self, self._declare_table(descriptor), descriptor.agg_function)
