"""Creates savepoints from scratch, from rows, or from a savepoint with changes to some of its state (H5)."""

from __future__ import annotations

import dataclasses
import posixpath
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.base.errors import CheckpointError, WrongValueError
from penstock.base.job import JobID
from penstock.base.options import CHECKPOINTING_INLINE_BYTES, MAX_PARALLELISM
from penstock.codecs.file_systems import url_to_fs
from penstock.codecs.pickling import dumps
from penstock.state.errors import StateError
from penstock.state.keys import key_group_range
from penstock.state.loading import StateLoader
from penstock.state.migrations import registered
from penstock.state.schema import to_state_schema
from penstock.state.snapshot import OperatorCapture
from penstock.state.states import StateDescriptor
from penstock.state_processor import layouts, rows
from penstock.state_processor.draft import (
    KeptItems,
    KeptKeyed,
    NewItems,
    NewKeyed,
    OperatorDraft,
    SavepointDraft,
    Target,
    entries_in_memory,
    transformed,
)
from penstock.state_processor.reader import SLICE_BYTES, configured_store, slices, split_range
from penstock.state_processor.table import run_tasks, write_frame
from penstock.storage.files import absolute_url
from penstock.storage.metadata import (
    METADATA_NAME,
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The default number of files of key groups into which a state from a Spark data frame is split.
PARTITIONS: Final = 32
MODES: Final = ("split", "union", "broadcast")


class SavepointWriter:
    """A savepoint under construction. Methods record changes and return the writer; `write` applies them.

    Rows come from a pandas, Arrow or Spark data frame, or any iterable. `key`, `value` and similar arguments select
    part of a row: a column name, a list of names (a tuple of their values), or a function of the row. The key must
    equal the result of the job's key selector: `"a"` and `("a",)` are different keys.

    All methods except `write` raise `StateError` at once if an operator or state is missing or already exists.

    Examples:
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> from penstock.state_processor import SavepointReader, SavepointWriter
        >>> counts = [{"key": "ann", "value": 10}, {"key": "bob", "value": 20}]
        >>> writer = SavepointWriter.new_savepoint()
        >>> writer = writer.with_keyed_state("counter", ValueStateDescriptor("count"), counts)
        >>> path = writer.write("savepoint")
        >>> sorted(SavepointReader.read(path).read_value_state("counter", "count"))
        [('ann', 10), ('bob', 20)]
    """

    def __init__(self, draft: SavepointDraft, base: CheckpointMetadata | None) -> None:
        self._draft = draft
        self._base = base

    @classmethod
    def new_savepoint(
        cls, max_parallelism: int = MAX_PARALLELISM.default_value(), parallelism: int = 1
    ) -> SavepointWriter:
        """Create an empty savepoint.

        Args:
            max_parallelism: the job's `pipeline.max-parallelism`, the number of key groups of keyed state.
            parallelism: the number of subtasks to write operators for. A job may have any parallelism, but reads least
                with the same one.
        """
        if not 1 <= parallelism <= max_parallelism:
            raise WrongValueError(
                f"parallelism must be from 1 to the max parallelism {max_parallelism}, not {parallelism}"
            )
        return cls(SavepointDraft((), max_parallelism, parallelism), None)

    @classmethod
    def from_existing_savepoint(
        cls, path: str, max_parallelism: int | None = None, parallelism: int = 1
    ) -> SavepointWriter:
        """Copy a savepoint or retained checkpoint for changes; its own files are never touched.

        Args:
            path: its directory.
            max_parallelism: for added operators; by default that of the existing operators.
            parallelism: the number of subtasks to write added operators for.

        Raises:
            CheckpointError: if the metadata is missing or damaged.

        Examples:
            >>> changed = SavepointWriter.from_existing_savepoint(path)
            >>> changed = changed.transform_state("counter", "count", lambda user, count: count * 100)
            >>> path = changed.write("changed")
            >>> sorted(SavepointReader.read(path).read_value_state("counter", "count"))
            [('ann', 1000), ('bob', 2000)]
        """
        base = configured_store("", 0).load(str(path))
        known = {operator.max_parallelism for operator in base.operators} or {MAX_PARALLELISM.default_value()}
        return cls(SavepointDraft(base.operators, max_parallelism or max(known), parallelism), base)

    # --- adding ------------------------------------------------------------------------------------------------------

    def with_keyed_state(
        self,
        uid: str,
        descriptor: StateDescriptor,
        source: Any,
        key: rows.Selector = "key",
        value: rows.Selector = "value",
        map_key: rows.Selector = "map_key",
        partitions: int | None = None,
    ) -> SavepointWriter:
        """Add a keyed state, built from rows, to an operator.

        Args:
            uid: the operator's uid; the operator is added if it does not exist.
            descriptor: the job's declaration of the state. A value state takes one row per key (a None value creates no
                entry). A list state takes one row per item, in the order of the rows, and a map state one row per
                entry. A reducing state folds its rows with its function; an aggregating state adds them to an
                accumulator.
            source: the rows.
            key: selects the key by which the job's stream is keyed.
            value: selects the value or item, or the value to fold or add.
            map_key: selects the key within a map state.
            partitions: the number of files of key groups into which a Spark data frame is split, each written by its
                own task.
        """
        title = f"state {descriptor.name!r} of {uid!r}"
        shape = rows.build_state_shape(title, descriptor, key, value, map_key)
        # Values are written without a time, whether or not the state will expire.
        schema = dataclasses.replace(to_state_schema(descriptor), ttl_ms=None)
        return self._add(uid, descriptor.name, shape, source, partitions, schema.to_json())

    def with_reduce_state(
        self,
        uid: str,
        source: Any,
        key: rows.Selector = "key",
        value: rows.Selector = "value",
        partitions: int | None = None,
    ) -> SavepointWriter:
        """Add the reduced records of a `reduce` on a keyed stream: one row per key."""
        return self._add(uid, layouts.REDUCE_STATE, rows.Shape(f"the state of {uid!r}", key, value), source, partitions)

    def with_window_state(
        self,
        uid: str,
        source: Any,
        key: rows.Selector = "key",
        window_start: rows.Selector = "window_start",
        window_end: rows.Selector = "window_end",
        value: rows.Selector = "value",
        partitions: int | None = None,
    ) -> SavepointWriter:
        """Add the contents of tumbling or sliding windows: one row per key and window, with bounds in ms or as
        datetimes.

        The value is the contents of the window: a reduced record, an accumulator, or the list of all records.
        """
        shape = rows.WindowShape(f"the windows of {uid!r}", key, value, window_start, window_end)
        return self._add(uid, layouts.WINDOW_STATE, shape, source, partitions)

    def with_timers(
        self,
        uid: str,
        source: Any,
        key: rows.Selector = "key",
        timestamp: rows.Selector = "timestamp_ms",
        time_domain: str = "event",
        partitions: int | None = None,
    ) -> SavepointWriter:
        """Add timers of a process function: one row per timer, times in ms or as datetimes (without a zone: UTC)."""
        name = _timers(time_domain)
        return self._add(
            uid, name, rows.TimerShape(f"the {time_domain} timers of {uid!r}", key, timestamp), source, partitions
        )

    def with_operator_state(
        self, uid: str, name: str | StateDescriptor, items: Iterable[Any], mode: str = "split"
    ) -> SavepointWriter:
        """Add an operator state to an operator.

        Args:
            uid: the operator's uid; the operator is added if it does not exist.
            name: the state's name.
            items: picklable items; for a broadcast map, a dict or (key, value) pairs.
            mode: `split` (distributed over the subtasks), `union` (all items to each) or `broadcast` (the same
                everywhere).
        """
        if mode not in MODES:
            raise StateError(f"the mode of an operator state must be one of {', '.join(MODES)}, not {mode!r}")
        pairs = items.items() if isinstance(items, Mapping) else items
        name = name.name if isinstance(name, StateDescriptor) else name
        self._draft.find_or_add(uid).add_items(name, NewItems(mode, list(pairs)))
        return self

    # --- changing ----------------------------------------------------------------------------------------------------

    def remove_operator(self, uid: str) -> SavepointWriter:
        """Remove an operator with all its state."""
        self._draft.remove(uid)
        return self

    def remove_state(self, uid: str, name: str) -> SavepointWriter:
        """Remove a state of an operator. Its timers are separate states; see `remove_timers`."""
        self._draft.find(uid).remove(name)
        return self

    def remove_timers(self, uid: str, time_domain: str = "event") -> SavepointWriter:
        """Remove the timers of a process function in one time domain, if any."""
        self._draft.find(uid).keyed.pop(_timers(time_domain), None)
        return self

    def change_operator_id(self, old: str, new: str) -> SavepointWriter:
        """Assign the state of operator `old` (a uid, or the id of an operator without one) to the operator with uid
        `new`.
        """
        self._draft.rename(old, new)
        return self

    def transform_state(self, uid: str, name: str, function: Callable[[Any, Any], Any]) -> SavepointWriter:
        """Pass each entry of a keyed state through `function(key, value)`; None drops the entry.

        The value is whole: the list of a list state, the dict of a map state, the accumulator of an aggregating state.
        """
        self._draft.find(uid).transform(name, partial(_of_key_and_value, function))
        return self

    def transform_window_state(self, uid: str, function: Callable[[Any, int, int, Any], Any]) -> SavepointWriter:
        """Pass the contents of each window through `function(key, start, end, contents)`; None drops the window."""
        draft = self._draft.find(uid)
        functions = {
            layouts.WINDOW_STATE: partial(_of_window, function),
            layouts.FIRED_WINDOW_STATE: partial(_of_window, function),
            layouts.SESSION_STATE: partial(_of_sessions, function),
        }
        present = [name for name in functions if name in draft.keyed]
        if not present:
            raise StateError(f"operator {draft.title} has no windows")
        for name in present:
            draft.transform(name, functions[name])
        return self

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, path: str, spark: SparkSession | None = None) -> str:
        """Write the savepoint into a new directory of any fsspec file system, and return its path.

        The savepoint appears only when it is complete, because the metadata is written last. Files of unchanged states
        are copied after their checksums are verified. The result shares no file with its base savepoint and can be
        moved.

        Args:
            path: the directory, which must be empty if it exists.
            spark: run transformations and copies as Spark tasks; tasks always write states from Spark data frames.

        Raises:
            CheckpointError: if the directory is not empty, or a file to read is damaged.
            StateError: if rows or values cannot be converted to state; files already written are deleted.
        """
        where = absolute_url(str(path))
        fs, directory = url_to_fs(where)
        if fs.exists(directory) and fs.ls(directory):
            raise CheckpointError(f"{where} already exists and is not empty: name a new directory")
        store = configured_store("", CHECKPOINTING_INLINE_BYTES.default_value())
        target = Target(where, self._base.checkpoint_id if self._base is not None else 1, store)
        try:
            metadata = self._metadata(target, spark)
            if spark is not None:
                metadata = _copied(metadata, target, spark)
            store.complete(metadata, where)
        except BaseException:
            store.discard_savepoint(where)
            raise
        _sweep(fs, directory, store.load(where))
        return where

    def _add(
        self, uid: str, name: str, shape: rows.Shape, source: Any, partitions: int | None, schema: str = ""
    ) -> SavepointWriter:
        self._draft.find_or_add(uid).add_keyed(name, NewKeyed(shape, source, partitions, schema))
        return self

    def _metadata(self, target: Target, spark: SparkSession | None) -> CheckpointMetadata:
        base = self._base
        return CheckpointMetadata(
            target.checkpoint_id,
            str(JobID.generate()),
            base.job_name if base is not None else "state processor",
            int(time.time() * 1000),
            True,
            tuple(_OperatorWriter(draft, target, spark).write() for draft in self._draft.operators),
            target.path,
            edges=base.edges if base is not None else (),
        )


class _OperatorWriter:
    """Writes the states of one operator."""

    def __init__(self, draft: OperatorDraft, target: Target, spark: SparkSession | None) -> None:
        self._draft = draft
        self._head = draft.head
        self._target = target
        self._spark = spark

    def write(self) -> OperatorState:
        """Write new and changed states; the others keep their files."""
        if self._draft.native:
            raise CheckpointError(
                f"the keyed state of {self._draft.title} is in files that only its state backend reads: make the new "
                "savepoint from a savepoint, not from a checkpoint, or remove the operator"
            )
        keyed: dict[int, dict[str, tuple[KeyedStateHandle, ...]]] = {}
        items: dict[int, dict[str, tuple[OperatorStateHandle, ...]]] = {}
        for name, state in self._draft.keyed.items():
            for subtask, handles in self._keyed(name, state).items():
                keyed.setdefault(subtask, {})[name] = handles
        for name, listed in self._draft.items.items():
            for subtask, lists in self._items(name, listed).items():
                items.setdefault(subtask, {})[name] = lists
        subtasks = {
            subtask: OperatorSubtaskState(keyed.get(subtask, {}), items.get(subtask, {}))
            for subtask in sorted({*keyed, *items})
        }
        return msgspec.structs.replace(self._head, subtasks=subtasks)

    def _keyed(self, name: str, state: KeptKeyed | NewKeyed) -> dict[int, tuple[KeyedStateHandle, ...]]:
        if isinstance(state, NewKeyed):
            return self._new_keyed(name, state)
        if not state.functions:
            return state.handles
        return self._transformed(name, state)

    def _new_keyed(self, name: str, state: NewKeyed) -> dict[int, tuple[KeyedStateHandle, ...]]:
        """Write a new keyed state, with each subtask's key groups split so that the total is about the number of
        partitions.
        """
        head = self._head
        on_spark = rows.is_spark_frame(state.source)
        partitions = (state.partitions or PARTITIONS) if on_spark else head.parallelism
        pieces = max(1, -(-min(partitions, head.max_parallelism) // head.parallelism))
        ranges = [
            (subtask, *part)
            for subtask in range(head.parallelism)
            for part in split_range(*key_group_range(subtask, head.max_parallelism, head.parallelism), pieces)
        ]
        parts = [(first, last) for _, first, last in ranges]
        file_name = self._file_name(name)
        if on_spark:
            written = write_frame(state.source, state.shape, file_name, self._target, head.max_parallelism, parts)
        else:
            entries = entries_in_memory(state.shape, rows.blocks(state.source), head.max_parallelism)
            written = [
                self._target.write_entries(
                    f"{file_name}-{number}", (entry for group in entries[first : last + 1] for entry in group)
                )
                for number, (first, last) in enumerate(parts)
            ]
        handles: dict[int, tuple[KeyedStateHandle, ...]] = {}
        for (subtask, first, last), files in zip(ranges, written, strict=True):
            if files:
                handles[subtask] = (*handles.get(subtask, ()), KeyedStateHandle(first, last, files, state.schema))
        return handles

    def _transformed(self, name: str, state: KeptKeyed) -> dict[int, tuple[KeyedStateHandle, ...]]:
        """Split each handle into pieces that one task can hold, and pass every piece through the functions."""
        pieces = [
            (subtask, handle, part)
            for subtask, handles in sorted(state.handles.items())
            for handle in handles
            for part in slices(handle, SLICE_BYTES)
        ]
        tasks = [
            partial(
                _transform,
                self._target,
                f"{self._file_name(name)}-{number}",
                handle,
                part,
                state.functions,
                partial(layouts.state_loader, self._draft.title, name, handle.schema, registered()),
            )
            for number, (_, handle, part) in enumerate(pieces)
        ]
        title = f"state {name!r} of {self._draft.title}"
        written = [task() for task in tasks] if self._spark is None else run_tasks(self._spark, tasks, title)
        handles: dict[int, tuple[KeyedStateHandle, ...]] = {}
        for (subtask, handle, (first, last)), files in zip(pieces, written, strict=True):
            if files:
                # Keep everything else in the handle, such as its schema.
                changed = msgspec.structs.replace(handle, first_key_group=first, last_key_group=last, files=files)
                handles[subtask] = (*handles.get(subtask, ()), changed)
        return handles

    def _items(self, name: str, state: KeptItems | NewItems) -> dict[int, tuple[OperatorStateHandle, ...]]:
        if isinstance(state, KeptItems):
            return state.handles
        parallelism = self._head.parallelism if state.mode == "split" else 1
        handles: dict[int, tuple[OperatorStateHandle, ...]] = {}
        for subtask in range(parallelism):
            share = state.items[subtask::parallelism]
            if share or state.mode == "broadcast":
                data = OperatorCapture(name, state.mode, list(map(dumps, share))).to_bytes()
                file = self._target.write(f"{self._file_name(name)}-{subtask}", data)
                handles[subtask] = (OperatorStateHandle(state.mode, len(share), file),)
        return handles

    def _file_name(self, name: str) -> str:
        return f"{self._head.operator_id}-{name}"


def _transform(
    target: Target,
    name: str,
    handle: KeyedStateHandle,
    key_groups: tuple[int, int],
    functions: tuple[Any, ...],
    make_loader: Callable[[], StateLoader],
) -> tuple[StateFile, ...]:
    return target.write_entries(name, transformed(target.storage, handle, key_groups, functions, make_loader()))


def _copied(metadata: CheckpointMetadata, target: Target, spark: SparkSession) -> CheckpointMetadata:
    """Copy files from elsewhere into the savepoint's directory with Spark tasks, and return the updated metadata."""
    own = f"{target.path}/"
    foreign = {f.path: f for f in metadata.state_files() if f.path is not None and not f.path.startswith(own)}
    copies = run_tasks(spark, [partial(_copy, target, file) for file in foreign.values()], "copying the savepoint")
    copied = dict(zip(foreign, copies, strict=True))
    return metadata.with_files(lambda file: file if file.path is None else copied.get(file.path, file))


def _copy(target: Target, file: StateFile) -> StateFile:
    assert file.path is not None
    return target.write(posixpath.basename(file.path), target.storage.read(file))


def _sweep(fs: Any, directory: str, metadata: CheckpointMetadata) -> None:
    """Delete files that the metadata does not name, left by tasks that Spark ran twice."""
    named = {posixpath.basename(file.path) for file in metadata.state_files() if file.path is not None}
    fs.invalidate_cache(directory)
    for path in fs.ls(directory, detail=False):
        if posixpath.basename(path) not in {*named, METADATA_NAME}:
            fs.rm_file(path)


def _of_key_and_value(function: Callable[[Any, Any], Any], key: Any, namespace: Any, value: Any) -> Any:
    return function(key, value)


def _of_window(function: Callable[[Any, int, int, Any], Any], key: Any, window: Any, contents: Any) -> Any:
    start, end = window
    return function(key, start, end, contents)


def _of_sessions(function: Callable[[Any, int, int, Any], Any], key: Any, namespace: Any, sessions: Any) -> Any:
    """Apply a function to each session. The timer of a dropped session remains, and then finds nothing to do."""
    changed = [(s[0], s[1], function(key, s[0], s[1], s[2]), s[3]) for s in sessions]
    return [list(session) for session in changed if session[2] is not None] or None


def _timers(time_domain: str) -> str:
    if time_domain not in layouts.TIMERS:
        raise StateError(f"a time domain must be one of {', '.join(layouts.TIMERS)}, not {time_domain!r}")
    return layouts.TIMERS[time_domain]
