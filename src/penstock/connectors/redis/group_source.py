"""`RedisGroupSource`: reads streams of Redis or Valkey as a member of a consumer group.

**Acknowledgement.** The server remembers which entries a group has delivered, and to whom. A reader acknowledges an
entry (XACK) when a checkpoint that covers it has completed (`penstock.connectors.subscriptions`): at least once. Until
then the entry is pending. Ids of pending entries are part of a checkpoint, and a reader drops entries that it has; with
one reader it is exactly once.

**Consumers.** Each split is a consumer, `NAME-0`, `NAME-1` and so on, and keeps its name across restarts and rescaling.
A reader that starts, or has lost its connection, first reads the pending entries of its own consumers again. It claims
entries that are pending for another consumer for longer than `claim_idle_ms`, such as a reader that no longer exists,
or another program. So that time must be longer than it takes from one checkpoint to the end of the next.

**Trimmed entries.** A pending entry that the stream has trimmed comes back empty (XREADGROUP), or not at all (XCLAIM,
which also forgets it). So the source looks an entry up before it claims it. If no checkpoint covers a missing entry,
the source fails. It also fails if entries were trimmed before the group has delivered them, which the counts of the
stream and the group show; see `penstock.connectors.redis.stream_source`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.base.errors import ConfigurationError, OperationError
from penstock.connectors import subscriptions
from penstock.connectors.redis.client import Command, RedisAddress, RedisConnections, load_library
from penstock.connectors.redis.stream_source import (
    START,
    RedisStreamEntry,
    StreamSplit,
    check_streams,
    check_version,
    find_lost_entries,
    id_parts,
    read_state,
)
from penstock.connectors.subscriptions import Delivery, Subscription, SubscriptionSource, SubscriptionSplit
from penstock.runtime.connector import SourceReaderContext
from penstock.runtime.records import Batch

CLAIM_IDLE_MS: Final = 300_000
#: how many entries of a stream a request asks for, and how many wait in a reader before it asks for no more
READ: Final = 2_000
WAITING_MAX: Final = 8_000
#: how long a reader waits after it got nothing
_PAUSE_S: Final = 0.02
#: how often a reader looks for entries to claim, at most and at least
_CLAIM_PAUSE_S: Final = (0.1, 30.0)
_CLAIM: Final = 500
_EntryId = tuple[str, str]


class RedisGroupSource(SubscriptionSource):
    """Reads the entries of streams that a consumer group delivers; at least once, with one reader exactly once.

    Args:
        url: the server: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://…` with TLS.
        *keys: the streams, which need not exist yet.
        group: the consumer group, which is created if it does not exist.
        consumer: the beginning of the names of consumers. Two jobs with the same group need different ones.
        starts_at: `earliest` for all entries, `latest` for those that are added after the job has started; for a group
            that exists, its own state.
        claim_idle_ms: after how long (ms) without an acknowledgement an entry of another consumer is claimed.
        deserialize: returns the record of a `RedisStreamEntry`; by default the entry.

    Raises:
        ConfigurationError: for a URL of another kind, for no keys or no group, another start, a time that is not
            positive, and without the package redis.

    Examples:
        >>> from penstock.datastream.connectors.redis import RedisGroupSource
        >>> source = RedisGroupSource("redis://localhost:6379", "cups", group="bar", deserialize=lambda cup: cup.id)
        >>> source.group
        'bar'
    """

    drops_repeated = True

    def __init__(
        self,
        url: str,
        *keys: str,
        group: str,
        consumer: str = "penstock",
        starts_at: str = "earliest",
        claim_idle_ms: int = CLAIM_IDLE_MS,
        deserialize: Callable[[RedisStreamEntry], Any] | None = None,
    ) -> None:
        check_streams(keys, starts_at)
        if not group or not consumer:
            raise ConfigurationError("give the names of a consumer group and of a consumer")
        if claim_idle_ms <= 0:
            raise ConfigurationError(f"claim_idle_ms is {claim_idle_ms}; it must be positive")
        load_library(type(self).__name__)
        self.address = RedisAddress(url)
        self.keys, self.group, self.consumer = keys, group, consumer
        self.starts_at, self.claim_idle_ms = starts_at, claim_idle_ms
        self.reading = _EntryReading(deserialize, group)

    def max_parallelism(self) -> int | None:
        """Return None: the members of a group share its entries."""
        return None

    def create_subscription(self, split: SubscriptionSplit) -> Subscription:
        """See `SubscriptionSource`."""
        return _Member(self, split)


class _EntryReading(subscriptions.FunctionReading):
    def __init__(self, deserialize: Callable[[RedisStreamEntry], Any] | None, group: str) -> None:
        super().__init__(deserialize, _keep, get_timestamp)
        self._group = group

    def read(self, messages: Sequence[Any], context: SourceReaderContext) -> Batch | None:
        """See `MessageReading`."""
        refuse_trimmed(messages, self._group)
        return super().read(messages, context)


def _keep(entry: RedisStreamEntry) -> RedisStreamEntry:
    return entry


def get_timestamp(entry: RedisStreamEntry) -> int:
    """Return the time (ms) of an entry's id."""
    return id_parts(entry.id)[0]


def refuse_trimmed(entries: Sequence[RedisStreamEntry], group: str) -> None:
    """Raise `OperationError` for a pending entry that the stream no longer has."""
    gone = [entry for entry in entries if not entry.fields]
    if gone:
        stream, id = gone[0].stream, gone[0].id
        raise OperationError(
            f"{len(gone)} pending entries of group {group!r} were trimmed before a checkpoint covered them, such as "
            f"{id} of stream {stream!r}. Let the stream keep more (a larger MAXLEN, an earlier MINID). To go on "
            f"without them, acknowledge them: XACK {stream} {group} {id}"
        )


class _Member(Subscription):
    """A consumer of the group. All requests are made by its thread."""

    keeps_session = True

    def __init__(self, source: RedisGroupSource, split: SubscriptionSplit) -> None:
        super().__init__(f"{type(source).__name__} of group {source.group!r} at {source.address.shown}")
        self._source = source
        self._consumer = f"{source.consumer}-{split.number}"
        #: whether a checkpoint knows the group
        self._is_restored = split.position is not None
        self._connections = RedisConnections(source.address, type(source).__name__)
        #: entries in the inbox, or with the job
        self._delivered: set[_EntryId] = set()
        #: entries to acknowledge
        self._done: deque[_EntryId] = deque()
        self._claims_at_s = 0.0
        self.pending = 0

    def consume(self) -> None:
        """See `Subscription`. While the server is away, it tries again for a minute."""
        away_since_s: float | None = None
        steps: Iterator[bool] = iter(())
        try:
            while not self.is_closing:
                try:
                    is_idle = next(steps, None)
                    if is_idle is None:
                        steps = self._receive()
                        continue
                except Exception as error:
                    if not self._is_passing(error):
                        raise
                    now_s = time.monotonic()
                    away_since_s = away_since_s or now_s
                    if now_s - away_since_s > subscriptions.PATIENCE_S:
                        raise
                    self.failures += 1
                    self._closing.wait(subscriptions.RETRY_S)
                    continue
                away_since_s = None
                if is_idle:
                    self._closing.wait(_PAUSE_S)
            if self.is_connected:
                self._send_acknowledgements()
        except OperationError:
            if not self.is_closing:
                raise
        finally:
            self._connections.close()

    def _is_passing(self, error: Exception) -> bool:
        cause = error.__cause__ if isinstance(error, OperationError) else error
        return isinstance(cause, Exception) and self._connections.is_passing(cause)

    def _receive(self) -> Iterator[bool]:
        """Receive entries, in steps; yield whether to wait before the next one.

        An answer that is lost with the connection has entries that are pending now, so each time it begins with these.
        """
        if not self.is_connected:
            check_version(self._connections)
            for key in self._source.keys:
                self._prepare_group(key)
            self.connected()
        for key in self._source.keys:
            position = START
            while True:
                self._send_acknowledgements()
                entries = self._ask_group(key, position)
                if not entries:
                    break
                self._deliver(key, entries)
                position = entries[-1][0].decode()
                while len(self.inbox) >= WAITING_MAX:
                    yield True
                yield False
        while True:
            self._send_acknowledgements()
            if len(self.inbox) >= WAITING_MAX:
                yield True
                continue
            if time.monotonic() >= self._claims_at_s:
                self._claim()
            yield not self._read_new()

    def _prepare_group(self, key: str) -> None:
        """Create the group unless it exists; fail if a checkpoint knows it."""
        source = self._source
        (info, groups) = self._connections.execute([("XINFO", "STREAM", key), ("XINFO", "GROUPS", key)])
        state = read_state(info, key)
        known = () if isinstance(groups, Exception) else map(_fields, groups)
        if any(group[b"name"].decode() == source.group for group in known):
            return
        if self._is_restored:
            raise OperationError(
                f"{self.title}: the group, or stream {key!r}, was removed after the checkpoint. Start the job without "
                "the checkpoint to create it again"
            )
        is_late = source.starts_at == "latest"
        start, count = (state.last, state.added) if is_late else (START, state.gone)
        command: Command = ("XGROUP", "CREATE", key, source.group, start, "MKSTREAM", "ENTRIESREAD", count)
        (reply,) = self._connections.execute([command])
        if isinstance(reply, Exception) and "BUSYGROUP" not in str(reply):  # another reader was faster
            raise OperationError(f"{self.title}: stream {key!r} cannot be read: {reply}") from reply

    def _ask_group(self, key: str, position: str) -> list[Any]:
        """Return entries of this consumer after a position that are pending; their fields may be None."""
        source = self._source
        command: Command = (
            "XREADGROUP",
            "GROUP",
            source.group,
            self._consumer,
            "COUNT",
            READ,
            "STREAMS",
            key,
            position,
        )
        (streams,) = self._connections.execute_all([command])
        return streams[0][1] if streams else []

    def _read_new(self) -> bool:
        """Receive entries that were not delivered to anyone; return whether there are any."""
        source = self._source
        if not self._check_streams(self._connections.execute(self._inspect())):
            return False
        keys = source.keys
        read: Command = ("XREADGROUP", "GROUP", source.group, self._consumer, "COUNT", READ, "STREAMS", *keys)
        commands = [("MULTI",), *self._inspect(), (*read, *[">"] * len(keys)), ("EXEC",)]
        replies = self._connections.execute_all(commands)[-1]
        streams = replies.pop() or []
        if isinstance(streams, Exception):
            raise OperationError(f"{self.title}: {streams}") from streams
        for key, entries in streams:
            self._deliver(key.decode(), entries)
        self._check_streams(replies)  # entries may have been trimmed just before
        return bool(streams)

    def _inspect(self) -> list[Command]:
        return [
            command for key in self._source.keys for command in (("XINFO", "STREAM", key), ("XINFO", "GROUPS", key))
        ]

    def _check_streams(self, replies: Sequence[Any]) -> bool:
        """Return whether the group has entries to deliver; fail if some were trimmed."""
        source, pending, has_more = self._source, 0, False
        for key, info, groups in zip(source.keys, replies[::2], replies[1::2], strict=True):
            if isinstance(info, Exception) or isinstance(groups, Exception):
                error = info if isinstance(info, Exception) else groups
                raise OperationError(f"{self.title}: stream {key!r} cannot be read: {error}") from error
            state = read_state(info, key)
            fields = next((each for each in map(_fields, groups) if each[b"name"].decode() == source.group), None)
            if fields is None:
                raise OperationError(f"{self.title}: the group was removed from stream {key!r}")
            position, count = fields[b"last-delivered-id"].decode(), fields.get(b"entries-read")
            has_more = has_more or id_parts(state.last) > id_parts(position)
            pending += fields.get(b"lag") or 0
            lost = 0 if count is None else find_lost_entries(StreamSplit(key, position, count), state)
            if lost:
                raise OperationError(
                    f"stream {key!r} was trimmed: {lost} entries after {position} were removed before group "
                    f"{source.group!r} had them. Let it keep more (a larger MAXLEN, an earlier MINID). To go on "
                    f"without them, run XGROUP SETID {key} {source.group} {position} ENTRIESREAD {state.gone}"
                )
        self.pending = pending
        return has_more

    def _claim(self) -> None:
        """Take over entries that were delivered long ago."""
        idle_ms = self._source.claim_idle_ms
        least_s, most_s = _CLAIM_PAUSE_S
        self._claims_at_s = time.monotonic() + min(max(idle_ms / 4_000, least_s), most_s)
        for key in self._source.keys:
            for ids in self._list_idle(key):
                present = self._connections.execute_all([("XRANGE", key, id, id) for id in ids])
                here = [id for id, entries in zip(ids, present, strict=True) if entries]
                self._deliver(key, [(id.encode(), None) for id in ids if id not in set(here)])
                if here:
                    group = self._source.group
                    claim: Command = ("XCLAIM", key, group, self._consumer, idle_ms, *here)
                    (entries,) = self._connections.execute_all([claim])
                    self._deliver(key, [entry for entry in entries if entry])

    def _list_idle(self, key: str) -> Iterator[list[str]]:
        """Yield ids of entries that are pending for long, and not with this reader."""
        start = "-"
        while True:
            command: Command = (
                "XPENDING", key, self._source.group, "IDLE", self._source.claim_idle_ms, start, "+", _CLAIM,
            )  # fmt: skip
            (rows,) = self._connections.execute_all([command])
            ids = [row[0].decode() for row in rows]
            others = [id for id in ids if (key, id) not in self._delivered]
            if others:
                yield others
            if len(ids) < _CLAIM:
                return
            start = f"({ids[-1]}"

    def _deliver(self, key: str, entries: Iterable[Any]) -> None:
        """Put entries into the inbox, unless the inbox or the job has them."""
        delivered = self._delivered
        for packed_id, parts in entries:
            id = packed_id.decode()
            mark = key, id
            if mark in delivered:
                continue
            delivered.add(mark)
            fields = _fields(parts or ())  # without any, the stream no longer has the entry
            self.inbox.append(Delivery(RedisStreamEntry(key, id, fields), mark, mark))

    def acknowledge(self, tags: Sequence[Any]) -> None:
        """Hand entries to the thread, which acknowledges them; when the server is away, once it is back."""
        self._done.extend(tags)

    def _send_acknowledgements(self) -> None:
        while self._done:
            some = [self._done[index] for index in range(min(len(self._done), READ))]
            by_key: dict[str, list[str]] = {}
            for key, id in some:
                by_key.setdefault(key, []).append(id)
            self._connections.execute_all([("XACK", key, self._source.group, *ids) for key, ids in by_key.items()])
            for mark in some:
                self._done.popleft()
                self._delivered.discard(mark)

    def interrupt(self) -> None:
        """See `Subscription`: the thread looks for itself."""


def _fields(reply: Sequence[Any]) -> dict[bytes, Any]:
    return dict(zip(reply[::2], reply[1::2], strict=True))
