"""Shards of a stream and who reads them: `ShardEnumerator`. It serves streams of Kinesis and of DynamoDB alike.

A split is a shard with a position. When shards are split or merged, the children are read when their parents have been
read to the end, so that the records of a partition key come in order, also across checkpoints and restarts.

**When a parent is read to its end.** A closed shard ends at a reader, and the enumerator must know. Before it assigns a
child, it asks: a `ParentQuestion` goes to a reader as if it were a split. The reader answers by requesting a split,
once it does not have the shard, and the task has taken its last records. It has one question at a time, so the
enumerator knows which it answers. A reader that never had the parent answers at once. Questions are in no snapshot:
after a restart the enumerator asks again, and no reader has a parent whose end was read before.

Shards go to readers by the number in their ids: reader i of n reads the numbers i, i + n, i + 2n and so on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

from penstock.runtime import connector

TRIM_HORIZON: Final = "TRIM_HORIZON"
LATEST: Final = "LATEST"
AT_TIMESTAMP: Final = "AT_TIMESTAMP"
AT_SEQUENCE_NUMBER: Final = "AT_SEQUENCE_NUMBER"
AFTER_SEQUENCE_NUMBER: Final = "AFTER_SEQUENCE_NUMBER"

_NUMBER: Final = re.compile(r"shardId-(\d+)$")
#: The hash keys of a whole stream.
ALL_HASH_KEYS: Final = (0, 2**128 - 1)


class Shard(NamedTuple):
    """A shard, as the service lists it.

    Attributes:
        shard_id: its id.
        parents: the shards that were split or merged into it; they may have expired.
        is_closed: whether it gets no more records.
        hash_keys: the first and the last hash key of its records.
    """

    shard_id: str
    parents: tuple[str, ...] = ()
    is_closed: bool = False
    hash_keys: tuple[int, int] = ALL_HASH_KEYS


@dataclass(frozen=True, slots=True)
class ShardSplit:
    """A shard from a position on.

    Attributes:
        shard: the shard.
        start: where it begins: `TRIM_HORIZON` or `AT_TIMESTAMP`.
        timestamp_ms: the time of `AT_TIMESTAMP`.
        sequence_number: the number of the last record that was read; None before the first.
        emitted: how many user records of that record were read, if it is aggregated and was not read to its end.
    """

    shard: Shard
    start: str = TRIM_HORIZON
    timestamp_ms: int | None = None
    sequence_number: str | None = None
    emitted: int | None = None

    @property
    def shard_id(self) -> str:
        """The id of the shard."""
        return self.shard.shard_id


@dataclass(frozen=True, slots=True)
class ParentQuestion:
    """The question whether a reader has read a shard to its end, or never had it."""

    shard_id: str


@dataclass(slots=True)
class EnumeratorState:
    """The state of an enumerator.

    Attributes:
        has_looked: whether shards were listed.
        seen: the shards that were assigned, are pending, or were left out at the start; only those still listed.
        pending: the splits that were not assigned.
        unfinished: the assigned shards that may not have been read to the end.
    """

    has_looked: bool = False
    seen: set[str] = field(default_factory=set)
    pending: list[ShardSplit] = field(default_factory=list)
    unfinished: set[str] = field(default_factory=set)


class Listing(NamedTuple):
    """The shards of a stream, and the time of the service (ms)."""

    shards: Sequence[Shard]
    now_ms: int


def choose_reader(shard_id: str, parallelism: int) -> int:
    """Return the reader of a shard."""
    match = _NUMBER.match(shard_id)
    return (int(match[1]) if match else crc32(shard_id.encode())) % parallelism


class ShardEnumerator(connector.SplitEnumerator[ShardSplit | ParentQuestion]):
    """See the module docstring.

    Args:
        context: its context.
        restored: the state to continue from.
        list_shards: lists the shards; called in the background.
        release: releases what that needs.
        start: where the stream is read from: `LATEST`, `TRIM_HORIZON` or `AT_TIMESTAMP`.
        timestamp_ms: the time of `AT_TIMESTAMP`.
        interval_ms: how long after each listing the next one follows.
    """

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[ShardSplit | ParentQuestion],
        restored: EnumeratorState | None,
        list_shards: Callable[[], Listing],
        release: Callable[[], None],
        start: str,
        timestamp_ms: int | None,
        interval_ms: int,
    ) -> None:
        self._context = context
        self._list_shards, self._release = list_shards, release
        self._start, self._timestamp_ms = start, timestamp_ms
        self._interval_ms = interval_ms
        state = restored or EnumeratorState()
        self._has_looked = state.has_looked
        self._seen = set(state.seen)
        self._pending = list(state.pending)
        self._unfinished = set(state.unfinished)
        self._readers: set[int] = set()
        #: the readers of shards that were assigned in this run
        self._owners: dict[str, int] = {}
        #: by reader, the parent that it is asked about
        self._asked: dict[int, str] = {}
        #: by parent, the readers that do not have it any more
        self._answers: dict[str, set[int]] = {}

    def start(self) -> None:
        """List the shards, at once and then from time to time."""
        self._look_after(0)

    def _look_after(self, delay_ms: int) -> None:
        self._context.call_async(self._list_shards, self._take, delay_ms)

    def _take(self, listing: Listing | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        assert listing is not None
        for shard in listing.shards:
            if shard.shard_id not in self._seen:
                self._seen.add(shard.shard_id)
                if self._has_looked or self._start != LATEST or not shard.is_closed:
                    self._pending.append(self._build_split(shard, listing.now_ms))
        listed = {shard.shard_id for shard in listing.shards}
        self._seen &= listed | self._unfinished | {split.shard_id for split in self._pending}
        self._has_looked = True
        self._advance()
        self._look_after(self._interval_ms)

    def _build_split(self, shard: Shard, now_ms: int) -> ShardSplit:
        if self._start == AT_TIMESTAMP:
            return ShardSplit(shard, AT_TIMESTAMP, self._timestamp_ms)
        if self._start == LATEST and not self._has_looked:
            # The latest record of now, not of the moment when a reader begins, perhaps after a restart.
            return ShardSplit(shard, AT_TIMESTAMP, now_ms)
        return ShardSplit(shard, TRIM_HORIZON)

    def handle_split_request(self, subtask_index: int) -> None:
        """Register a reader, or take its answer."""
        if subtask_index in self._readers:
            parent = self._asked.pop(subtask_index, None)
            if parent is not None:
                self._answers.setdefault(parent, set()).add(subtask_index)
        self._readers.add(subtask_index)
        self._advance()

    def _advance(self) -> None:
        """Assign the shards whose parents are read to their ends, and ask about the parents of the others."""
        for parent in list(self._answers):
            if self._find_holders(parent) <= self._answers[parent]:
                self._unfinished.discard(parent)
                del self._answers[parent]
        waiting = {split.shard_id for split in self._pending}
        left: list[ShardSplit] = []
        for split in self._pending:
            reader = choose_reader(split.shard_id, self._context.parallelism)
            if self._unfinished.union(waiting).isdisjoint(split.shard.parents) and reader in self._readers:
                self._unfinished.add(split.shard_id)
                self._owners[split.shard_id] = reader
                self._context.assign_split(split, reader)
            else:
                left.append(split)
        self._pending = left
        self._ask(parent for split in left for parent in split.shard.parents if parent in self._unfinished)

    def _find_holders(self, parent: str) -> set[int]:
        """Return the readers that may have a shard: after a restart, any."""
        owner = self._owners.get(parent)
        return set(range(self._context.parallelism)) if owner is None else {owner}

    def _ask(self, parents: Iterable[str]) -> None:
        for parent in dict.fromkeys(parents):
            for reader in sorted(self._find_holders(parent) & self._readers - set(self._asked)):
                if reader not in self._answers.get(parent, ()):
                    self._asked[reader] = parent
                    self._context.assign_split(ParentQuestion(parent), reader)

    def add_splits_back(self, splits: Sequence[ShardSplit | ParentQuestion], subtask_index: int) -> None:
        """Take shards back; all readers start together, so that none reads a child while another repeats the parent."""
        self._readers.discard(subtask_index)
        self._asked.pop(subtask_index, None)
        back = [split for split in splits if isinstance(split, ShardSplit)]
        self._unfinished.difference_update(split.shard_id for split in back)
        self._pending = [*back, *self._pending]

    def snapshot_state(self, checkpoint_id: int) -> EnumeratorState:
        """Return the seen shards, the pending shards, and the shards that may be unfinished."""
        return EnumeratorState(self._has_looked, set(self._seen), list(self._pending), set(self._unfinished))

    def close(self) -> None:
        """Close the connections."""
        self._release()
