"""The metadata of a checkpoint: every state file with its length and checksum, organised by operator id (H3).

A `_metadata` file is a magic word, a format version, a msgpack body and the body's checksum. It is written last and
atomically; a directory without a valid one is not a checkpoint (G11).

`ChannelState` is the stored form of the records in flight in a channel (G5).

`state_of_subtask` is the share of an operator's state that a subtask gets, at any parallelism (D4).

`garbage` finds the files in a job's checkpoint directory that no metadata needs (G6, G11).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

import msgspec
import xxhash

from penstock.base.errors import CheckpointError
from penstock.state.keys import key_group_range
from penstock.state.operator_state import BROADCAST_MODE, SPLIT_MODE, UNION_MODE

METADATA_NAME: Final = "_metadata"
MAGIC: Final = b"PENSTOCK"
FORMAT_VERSION: Final = 1
_HEADER_BYTES: Final = len(MAGIC) + 2
_CHECKSUM_BYTES: Final = 8

#: Replaces the metadata of a checkpoint that was abandoned while the outcome of its write was uncertain.
REVOKED: Final = b"This checkpoint was given up. No job begins from it.\n"


class RevokedError(CheckpointError):
    """The checkpoint was abandoned and is not valid."""


class MissingMetadataError(CheckpointError):
    """The metadata is missing: the checkpoint was deleted, or never completed."""


class StateFile(msgspec.Struct, frozen=True):
    """Bytes of state: either inline, or in a file at `path`. `checksum` is xxh3-64 of the bytes."""

    length: int
    checksum: int
    path: str | None = None
    data: bytes | None = None


class KeyedStateHandle(msgspec.Struct, frozen=True):
    """One keyed state of one subtask for key groups first..last, inclusive: a history of files, oldest first.

    `schema` is the state's declaration as JSON (see `penstock.state.schema`), empty if it has no declaration.
    """

    first_key_group: int
    last_key_group: int
    files: tuple[StateFile, ...]
    schema: str = ""

    @property
    def length(self) -> int:
        return sum(file.length for file in self.files)


class OperatorStateHandle(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operator state of one subtask: an Arrow IPC stream of items; `mode` determines how it is redistributed (D2).

    If it is dealt out to several subtasks, each takes every `step`th item, starting with `first`.
    """

    mode: str  # split | union | broadcast | committable | channel
    items: int
    file: StateFile
    first: int = 0
    step: int = 1


class NativeStateHandle(msgspec.Struct, frozen=True):
    """All keyed state of one subtask in a backend's own files, by file name; savepoints hold no such state."""

    backend: str
    first_key_group: int
    last_key_group: int
    files: dict[str, StateFile]
    #: the declared schemas of the states, by state name
    schemas: dict[str, str] = {}


class OperatorSubtaskState(msgspec.Struct, frozen=True):
    """All state of one operator in one subtask, by state name."""

    keyed: dict[str, tuple[KeyedStateHandle, ...]] = {}
    operator: dict[str, tuple[OperatorStateHandle, ...]] = {}
    native: tuple[NativeStateHandle, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keyed or self.operator or self.native)

    def state_files(self) -> list[StateFile]:
        """Return every state file, including inline ones."""
        files = [f for handles in self.keyed.values() for h in handles for f in h.files]
        files += [h.file for handles in self.operator.values() for h in handles]
        return files + [file for handle in self.native for file in handle.files.values()]


class OperatorState(msgspec.Struct, frozen=True):
    """One operator in a checkpoint. `finished` lists the subtasks that had finished permanently (G10).

    The fields from `kind` on describe the operator as the program declared it (see `OperatorInfo`). A restore uses them
    to check an id that was derived from the operator's position. A `kind` of "" means that the writer of the checkpoint
    did not record it.
    """

    operator_id: str
    uid: str | None
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: dict[int, OperatorSubtaskState]
    finished: tuple[int, ...] = ()
    coordinator: StateFile | None = None
    kind: str = ""
    function: str = ""
    key_type: str = ""
    has_placed_id: bool = False
    #: by subtask: the watermarks (ms) at the input and at the output, if the checkpoint records them
    watermarks: dict[int, tuple[int, int]] = {}
    #: a description of the operator, from the program or a query
    description: str = ""

    @property
    def holds_state(self) -> bool:
        """Whether the operator has any state."""
        return any(self.subtasks.values()) or self.coordinator is not None

    @property
    def fully_finished(self) -> bool:
        return len(self.finished) == self.parallelism


class CheckpointMetadata(msgspec.Struct, frozen=True):
    """The contents of a completed checkpoint.

    `external_path` is the directory of a savepoint. A checkpoint with `ends_job` is the last of its job: a job master
    that finds it among the job's own checkpoints only has to commit its contents.
    """

    checkpoint_id: int
    job_id: str
    job_name: str
    timestamp_ms: int
    is_savepoint: bool
    operators: tuple[OperatorState, ...]
    external_path: str | None = None
    ends_job: bool = False
    #: The names of the job's edges, in the order of their numbers; in-flight records belong to edges.
    edges: tuple[str, ...] = ()
    #: The number of the job master that completed the checkpoint (`storage.leadership`).
    job_master: int = 0

    def state_files(self) -> list[StateFile]:
        """Return every state file, including inline ones."""
        files = [op.coordinator for op in self.operators if op.coordinator is not None]
        return files + [f for op in self.operators for state in op.subtasks.values() for f in state.state_files()]

    def as_savepoint(self, path: str) -> CheckpointMetadata:
        """Return a copy as a savepoint with its own directory."""
        return msgspec.structs.replace(self, is_savepoint=True, external_path=path)

    def without_event_time(self) -> CheckpointMetadata:
        """Return a copy without watermarks, so that event time starts over."""
        return msgspec.structs.replace(
            self, operators=tuple(msgspec.structs.replace(state, watermarks={}) for state in self.operators)
        )

    @property
    def is_drained(self) -> bool:
        """Whether every operator had finished permanently, so that only commits remain."""
        return all(operator.fully_finished for operator in self.operators)

    @property
    def state_bytes(self) -> int:
        return sum(f.length for f in self.state_files())

    def with_files(self, replace: Callable[[StateFile], StateFile]) -> CheckpointMetadata:
        """Return a copy with every state file replaced, including inline ones."""

        def subtask(state: OperatorSubtaskState) -> OperatorSubtaskState:
            return OperatorSubtaskState(
                {
                    name: tuple(msgspec.structs.replace(h, files=tuple(map(replace, h.files))) for h in handles)
                    for name, handles in state.keyed.items()
                },
                {
                    name: tuple(msgspec.structs.replace(h, file=replace(h.file)) for h in handles)
                    for name, handles in state.operator.items()
                },
                tuple(
                    msgspec.structs.replace(h, files={name: replace(file) for name, file in h.files.items()})
                    for h in state.native
                ),
            )

        operators = tuple(
            msgspec.structs.replace(
                op,
                subtasks={index: subtask(state) for index, state in op.subtasks.items()},
                coordinator=None if op.coordinator is None else replace(op.coordinator),
            )
            for op in self.operators
        )
        return msgspec.structs.replace(self, operators=operators)


def checksum(data: bytes) -> int:
    """Return the checksum that metadata records for `data`."""
    return xxhash.xxh3_64_intdigest(data)


def check_file(file: StateFile, data: bytes) -> bytes:
    """Return `data` if it has the recorded length and checksum; raises `CheckpointError` otherwise."""
    where = file.path or "inline state"
    if len(data) != file.length:
        raise CheckpointError(f"{where}: {file.length} bytes were written, but the file has {len(data)}")
    if checksum(data) != file.checksum:
        raise CheckpointError(f"{where}: the checksum of its {file.length} bytes does not match: the file is damaged")
    return data


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CheckpointMetadata)


def encode_metadata(metadata: CheckpointMetadata) -> bytes:
    """Return the bytes of a `_metadata` file."""
    body = _encoder.encode(metadata)
    return MAGIC + FORMAT_VERSION.to_bytes(2, "big") + body + checksum(body).to_bytes(_CHECKSUM_BYTES, "big")


def decode_metadata(data: bytes, where: str) -> CheckpointMetadata:
    """Decode the bytes of a `_metadata` file.

    Raises:
        RevokedError: if the checkpoint was abandoned.
        CheckpointError: if the bytes are damaged; the message names `where`.
    """
    if data == REVOKED:
        raise RevokedError(f"{where} says that the checkpoint was given up as it was written: no job begins from it")
    if len(data) < _HEADER_BYTES + _CHECKSUM_BYTES or not data.startswith(MAGIC):
        raise CheckpointError(f"{where} is not a checkpoint's metadata (it is too short, or begins differently)")
    version = int.from_bytes(data[len(MAGIC) : _HEADER_BYTES], "big")
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{where} has format version {version}; this release reads version {FORMAT_VERSION}")
    body = data[_HEADER_BYTES:-_CHECKSUM_BYTES]
    if checksum(body) != int.from_bytes(data[-_CHECKSUM_BYTES:], "big"):
        raise CheckpointError(f"{where}: the checksum does not match: the metadata is damaged")
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{where}: {error}") from error


#: The mode of an operator state with records in flight.
CHANNEL_MODE: Final = "channel"
_PREFIX: Final = "_penstock_in_flight"


class Direction(enum.Enum):
    """The end of a channel where its records were captured; the values are used in the stored form."""

    IN = "in"
    OUT = "out"


class ChannelState(NamedTuple):
    """The records in flight in one channel of a subtask; `peer` is the subtask at the other end."""

    direction: Direction
    edge: int
    peer: int

    @property
    def stored_name(self) -> str:
        """The name of the state in a checkpoint; `parse_channel` parses it."""
        return f"{_PREFIX}.{self.direction.value}.{self.edge}.{self.peer}"


def parse_channel(stored_name: str) -> ChannelState:
    """Return the channel of a state in a checkpoint, given the state's name."""
    prefix, direction, edge, peer = stored_name.split(".")
    assert prefix == _PREFIX, f"{stored_name!r} names no records in flight"
    return ChannelState(Direction(direction), int(edge), int(peer))


def state_of_subtask(
    operator: OperatorState,
    subtask: int,
    parallelism: int,
    max_parallelism: int,
    rescaled_edges: Collection[int] = (),
) -> OperatorSubtaskState:
    """Return one subtask's share of an operator's state (D4).

    Keyed state: every handle whose key groups overlap the subtask's. Lists: at the same parallelism, each subtask gets
    its own. At another parallelism the items of split lists are distributed one by one, and committables by the subtask
    that wrote them. Union lists: all handles. Broadcast maps: the map of one subtask. In-flight records go to the same
    subtask, except on rescaled edges, where they are partitioned again. Finished subtasks left their last state, which
    is distributed like any other (G10).
    """
    first, last = key_group_range(subtask, max_parallelism, parallelism)
    keyed: dict[str, tuple[KeyedStateHandle, ...]] = {}
    lists: dict[str, tuple[OperatorStateHandle, ...]] = {}
    native: tuple[NativeStateHandle, ...] = ()
    dealt: dict[str, int] = {}
    for old_subtask, state in sorted(operator.subtasks.items()):
        for name, keyed_handles in state.keyed.items():
            mine = tuple(h for h in keyed_handles if h.first_key_group <= last and h.last_key_group >= first)
            if mine:
                keyed[name] = keyed.get(name, ()) + mine
        native += tuple(h for h in state.native if h.first_key_group <= last and h.last_key_group >= first)
        for name, handles in state.operator.items():
            for handle in handles:
                share: OperatorStateHandle | None = handle
                if handle.mode == SPLIT_MODE and parallelism != operator.parallelism:
                    before = dealt.get(name, 0)
                    dealt[name] = before + handle.items
                    share = _share(handle, (subtask - before) % parallelism, parallelism)
                elif handle.mode == BROADCAST_MODE:
                    share = handle if old_subtask == _broadcaster(operator, name, subtask, parallelism) else None
                elif handle.mode == CHANNEL_MODE:
                    stays = old_subtask == subtask and parse_channel(name)[1] not in rescaled_edges
                    share = handle if stays else None
                elif handle.mode != UNION_MODE:
                    share = handle if old_subtask % parallelism == subtask else None
                if share is not None:
                    lists[name] = (*lists.get(name, ()), share)
    return OperatorSubtaskState(keyed, lists, native)


def _share(handle: OperatorStateHandle, first: int, step: int) -> OperatorStateHandle | None:
    """Return every `step`th item of a list, from `first` on; None if the list is too short."""
    return msgspec.structs.replace(handle, first=first, step=step) if first < handle.items else None


def _broadcaster(operator: OperatorState, name: str, subtask: int, parallelism: int) -> int:
    """Return the old subtask whose broadcast state a new one takes: its own, else an unfinished one's, else any.

    The states are equal, with two exceptions. A finished subtask may hold nothing at all. And if records were in flight
    to some subtasks, each of those needs its own state: this occurs in unaligned checkpoints of versions where barriers
    overtook broadcast records.
    """
    counts = {
        i: sum(handle.items for handle in state.operator[name])
        for i, state in sorted(operator.subtasks.items())
        if state.operator.get(name)
    }
    is_own = parallelism == operator.parallelism and subtask in counts
    if is_own and (counts[subtask] or subtask not in operator.finished):
        return subtask
    return min(counts, key=lambda i: (i in operator.finished, i))


#: The checkpoint id and the name of a file in a job's directory.
CHECKPOINT_FILE = re.compile(r"(?:^|/)chk-(\d+)/([^/]+)$")


def garbage(
    listing: Iterable[str],
    retained: Iterable[CheckpointMetadata],
    oldest_live_id: int,
    revoked: Collection[int] = (),
) -> list[str]:
    """Return the files to delete, metadata first, so that a half-deleted checkpoint never looks complete.

    The record that a checkpoint was revoked stays, because its metadata may still be written.

    Needed are: all files of checkpoints from `oldest_live_id` on, which may still be pending; the metadata of kept
    checkpoints; and every state file that a kept checkpoint refers to, whichever checkpoint wrote it.
    """
    retained = list(retained)
    needed = {file.path for metadata in retained for file in metadata.state_files() if file.path is not None}
    ids = {metadata.checkpoint_id for metadata in retained}
    metadata_files, state_files = [], []
    for path in listing:
        match = CHECKPOINT_FILE.search(path)
        if match is None or int(match[1]) >= oldest_live_id or path in needed:
            continue
        if match[2] == METADATA_NAME:
            if int(match[1]) not in ids and int(match[1]) not in revoked:
                metadata_files.append(path)
        else:
            state_files.append(path)
    return sorted(metadata_files) + sorted(state_files)
