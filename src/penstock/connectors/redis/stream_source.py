"""`RedisStreamSource`: reads streams of Redis or Valkey, one split a stream.

**Positions.** A position is the id of the last entry that was read; XREAD continues after it. Readers have no consumer
group, so nothing is acknowledged and nothing is removed: a checkpoint has the positions, and after a failure reading
continues exactly there, as long as the stream keeps its entries.

**Trimmed entries.** A stream that is trimmed (MAXLEN, MINID) loses its oldest entries, perhaps before they are read,
and XREAD does not say so. The server counts the entries ever added and those it has; the difference is lost. A split
has the number of entries up to its position: if more are lost, unread ones are among them, and the source fails. The
count is read with the entries, in one transaction. It is exact if entries go from the front. Single entries that are
removed (XDEL) are not missed while the entry at the position exists. After that the source may fail although only such
entries are lost; it corrects its count whenever it reaches the end of the stream.

Redis 7 and later, and all of Valkey, have these counts.

**Failures.** While the server is away or starts, a reader has no records; after a minute it fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.connectors.redis.client import Command, RedisAddress, RedisConnections, load_library
from penstock.connectors.subscriptions import MessageReading
from penstock.runtime import connector
from penstock.runtime.columns import SplitColumnBatch
from penstock.runtime.records import Batch

#: The position before all entries.
START: Final = "0-0"
#: how long a reader waits for a server that is away before it fails, and how long until it tries again
PATIENCE_MS: Final = 60_000
RETRY_MS: Final = 500


class RedisStreamEntry(NamedTuple):
    """An entry of a stream. Its timestamp is that of its id.

    Attributes:
        stream: the key of the stream.
        id: the id, such as `1526919030474-55`.
        fields: the fields, as bytes.

    Examples:
        >>> from penstock.datastream.connectors.redis import RedisStreamEntry
        >>> RedisStreamEntry("cups", "1526919030474-55", {b"kind": b"tea"}).fields[b"kind"].decode()
        'tea'
    """

    stream: str
    id: str
    fields: dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class StreamSplit:
    """A stream from a position on.

    Attributes:
        key: the key of the stream.
        position: the id of the last entry that was read.
        count: how many entries were added up to the position.
        stop: the id of the last entry to read; None for no end.
    """

    key: str
    position: str
    count: int
    stop: str | None = None


class StreamState(NamedTuple):
    """The state of a stream, according to the server.

    Attributes:
        added: how many entries were ever added.
        gone: how many of them were removed.
        first: the id of the oldest entry; None for an empty stream.
        last: the id of the entry that was added last.
    """

    added: int
    gone: int
    first: str | None
    last: str


def check_streams(keys: Sequence[str], starts_at: str) -> None:
    """Raise `ConfigurationError` for streams that cannot be read, or for another start than earliest and latest."""
    if starts_at not in ("earliest", "latest"):
        raise ConfigurationError(f"a stream is read from 'earliest' or 'latest' on, not from {starts_at!r}")
    if not keys or len(set(keys)) < len(keys):
        raise ConfigurationError(f"name each stream to be read once, and at least one, not {list(keys)}")


class RedisStreamSource(connector.Source[Any, StreamSplit]):
    """Reads the entries of streams, in order, exactly once as long as the streams keep them.

    Args:
        url: the server: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://…` with TLS.
        *keys: the streams, which need not exist yet.
        starts_at: `earliest` for all entries, `latest` for those that are added after the job has started.
        bounded: whether to end after the entries that a stream has when the job starts.
        deserialize: returns the record of a `RedisStreamEntry`; by default the entry.

    Raises:
        ConfigurationError: for a URL of another kind, for no keys, another start, and without the package redis.

    Examples:
        >>> from penstock.datastream.connectors.redis import RedisStreamSource
        >>> source = RedisStreamSource("redis://localhost:6379", "cups", deserialize=lambda cup: cup.fields[b"kind"])
    """

    def __init__(
        self,
        url: str,
        *keys: str,
        starts_at: str = "earliest",
        bounded: bool = False,
        deserialize: Callable[[RedisStreamEntry], Any] | None = None,
    ) -> None:
        check_streams(keys, starts_at)
        load_library(type(self).__name__)
        self.address = RedisAddress(url)
        self.keys = keys
        self.starts_at = starts_at
        self.bounded = bounded
        self.deserialize = deserialize
        #: makes batches of entries, in place of `deserialize`
        self.reading: MessageReading | None = None

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded with `bounded`."""
        return connector.Boundedness.BOUNDED if self.bounded else connector.Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[StreamSplit], restored: Any | None
    ) -> connector.SplitEnumerator[StreamSplit]:
        """See `Source`."""
        return _StreamEnumerator(self, context, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, StreamSplit]:
        """See `Source`."""
        return _StreamReader(self, context)

    def find_splits(self) -> list[StreamSplit]:
        """Return a split for each stream."""
        connections = RedisConnections(self.address, type(self).__name__)
        try:
            check_version(connections)
            states = [read_state(connections.execute([("XINFO", "STREAM", key)])[0], key) for key in self.keys]
        finally:
            connections.close()
        return [self._build_split(key, state) for key, state in zip(self.keys, states, strict=True)]

    def _build_split(self, key: str, state: StreamState) -> StreamSplit:
        stop = state.last if self.bounded else None
        if self.starts_at == "latest":
            return StreamSplit(key, state.last, state.added, stop)
        return StreamSplit(key, START, state.gone, stop)


def check_version(connections: RedisConnections) -> None:
    """Raise `UnsupportedError` for a server that does not count the entries of streams."""
    (info,) = connections.execute_all([("INFO", "server")])
    fields = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    version = fields.get("redis_version", "0")
    if int(version.partition(".")[0]) < 7:
        raise UnsupportedError(f"streams are read from Redis 7.0 or later, or Valkey: the server is Redis {version}")


def read_state(reply: Any, key: str) -> StreamState:
    """Return what XINFO STREAM says; a key that does not exist is an empty stream.

    Raises:
        OperationError: if the key has another type, or the server refuses.
    """
    if isinstance(reply, Exception):
        if "no such key" in str(reply):
            return StreamState(0, 0, None, START)
        raise OperationError(f"stream {key!r} cannot be read: {reply}") from reply
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    added, length = fields[b"entries-added"], fields[b"length"]
    first = fields[b"first-entry"][0].decode() if length else None
    return StreamState(added, added - length, first, fields[b"last-generated-id"].decode())


def id_parts(entry_id: str) -> tuple[int, int]:
    """Return the two numbers of an id, which order it."""
    time, _, number = entry_id.partition("-")
    return int(time), int(number or 0)


class _StreamEnumerator(connector.SplitEnumerator[StreamSplit]):
    """Asks for the ends of the streams once, and then assigns them."""

    def __init__(
        self,
        source: RedisStreamSource,
        context: connector.SplitEnumeratorContext[StreamSplit],
        restored: list[StreamSplit] | None,
    ) -> None:
        self._source = source
        self._context = context
        self._splits = restored
        #: splits that come back are for the reader that had them: the others may have ended
        self._returned: dict[int, list[StreamSplit]] = {}
        self._waiting: list[int] = []

    def start(self) -> None:
        """Find the splits."""
        if self._splits is None:
            self._context.call_async(self._source.find_splits, self._on_found)

    def _on_found(self, splits: list[StreamSplit] | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._splits = splits
        waiting, self._waiting = self._waiting, []
        for subtask_index in waiting:
            self.handle_split_request(subtask_index)

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the subtask's share of the splits, and no more."""
        if self._splits is None:
            self._waiting.append(subtask_index)
            return
        for split in self._returned.pop(subtask_index, ()):
            self._context.assign_split(split, subtask_index)
        keys = self._source.keys
        share = [split for split in self._splits if keys.index(split.key) % self._context.parallelism == subtask_index]
        self._splits = [split for split in self._splits if split not in share]
        for split in share:
            self._context.assign_split(split, subtask_index)
        self._context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[StreamSplit], subtask_index: int) -> None:
        """Take splits back."""
        self._waiting = [other for other in self._waiting if other != subtask_index]
        self._returned.setdefault(subtask_index, []).extend(splits)

    def snapshot_state(self, checkpoint_id: int) -> list[StreamSplit] | None:
        """Return the splits that were not assigned."""
        if self._splits is None:
            return None
        return [*self._splits, *(split for splits in self._returned.values() for split in splits)]


class _StreamReader(connector.SourceReader[Any, StreamSplit]):
    """Reads its streams side by side, in turns."""

    def __init__(self, source: RedisStreamSource, context: connector.SourceReaderContext) -> None:
        self._source = source
        self._context = context
        self._connections = RedisConnections(source.address, type(source).__name__)
        self._splits: dict[str, StreamSplit] = {}
        #: the keys in the order of their turns
        self._turns: deque[str] = deque()
        self._paused: set[str] = set()
        #: streams that are read to their ends, but whose last batch the task may not have taken yet
        self._ended: list[str] = []
        self._is_last = False
        #: since when the server is away, and when to try again; None while it answers
        self._away: tuple[int, int] | None = None

    def start(self) -> None:
        """Ask for splits; those restored may not be all."""
        self._context.request_split()

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        """See `SourceReader`."""
        while self._ended:
            self._context.close_split(self._ended.pop())
        if self._away is not None and self._context.now_ms() < self._away[1]:
            return connector.InputStatus.NOTHING_AVAILABLE
        for _ in range(len(self._turns)):
            key = self._turns[0]
            self._turns.rotate(-1)
            if key in self._splits and key not in self._paused:
                batch = self._read(key, max_records)
                if batch is not None:
                    return batch
        if self._splits:
            return connector.InputStatus.NOTHING_AVAILABLE
        return connector.InputStatus.END_OF_INPUT if self._is_last else connector.InputStatus.NOTHING_AVAILABLE

    def _read(self, key: str, max_records: int) -> Batch | None:
        """Return the next entries of a stream; None if it has none at present, or at all."""
        split = self._splits[key]
        if split.stop is not None and id_parts(split.position) >= id_parts(split.stop):
            self._end(key)
            return None
        fetched = self._fetch(split, max_records)
        if fetched is None:
            return None
        entries, state = fetched
        if not entries:
            if split.stop is not None:
                self._end(key)  # its last entries were removed one by one
            return None
        is_at_end = entries[-1].id == state.last
        count = state.added if is_at_end else split.count + len(entries)
        if split.stop is not None:
            stop = id_parts(split.stop)
            entries = [entry for entry in entries if id_parts(entry.id) <= stop]
            if not entries:
                self._end(key)
                return None
        self._splits[key] = split = replace(split, position=entries[-1].id, count=count)
        if split.stop == split.position:
            self._end(key)
        if self._source.reading is not None:
            batch: Any = self._source.reading.read(entries, self._context)
            return SplitColumnBatch(batch, key)
        deserialize = self._source.deserialize
        values: list[Any] = list(entries)
        if deserialize is not None:
            values = connector.call_each(deserialize, entries, f"deserialize of {type(self._source).__name__}")
        return connector.SplitBatch(values, [id_parts(entry.id)[0] for entry in entries], key)

    def _fetch(self, split: StreamSplit, max_records: int) -> tuple[list[RedisStreamEntry], StreamState] | None:
        """Return the next entries of a stream and its state, both at one moment; None while the server is away.

        Fails if unread entries are lost.
        """
        key = split.key
        commands: list[Command] = [
            ("MULTI",),
            ("XINFO", "STREAM", key),
            ("XREAD", "COUNT", max_records, "STREAMS", key, split.position),
            ("EXEC",),
        ]
        try:
            info, streams = self._connections.execute_all(commands)[-1]
        except OperationError as error:
            self._wait_for_server(error)
            return None
        self._away = None
        state = read_state(info, key)
        if isinstance(streams, Exception):
            raise OperationError(f"stream {key!r} cannot be read: {streams}") from streams
        check_complete(split, state)
        entries = []
        for entry_id, parts in streams[0][1] if streams else ():
            if parts is None:
                raise OperationError(f"entry {entry_id.decode()} of stream {key!r} was removed while it was read")
            entries.append(RedisStreamEntry(key, entry_id.decode(), dict(zip(parts[::2], parts[1::2], strict=True))))
        return entries, state

    def _wait_for_server(self, error: OperationError) -> None:
        """Note that the server is away; raise the error if it does not pass."""
        now_ms = self._context.now_ms()
        since_ms = now_ms if self._away is None else self._away[0]
        cause = error.__cause__
        if not isinstance(cause, Exception) or not self._connections.is_passing(cause):
            raise error
        if now_ms - since_ms > PATIENCE_MS:
            raise error
        self._context.count("numConnectionFailures")
        self._away = since_ms, now_ms + RETRY_MS

    def _end(self, key: str) -> None:
        del self._splits[key]
        self._turns.remove(key)
        self._ended.append(key)

    def add_splits(self, splits: Sequence[StreamSplit]) -> None:
        """See `SourceReader`."""
        for split in splits:
            self._splits[split.key] = split
            self._turns.append(split.key)
            self._context.open_split(split.key)

    def no_more_splits(self) -> None:
        """See `SourceReader`."""
        self._is_last = True

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        """See `SourceReader`."""
        self._paused = (self._paused | set(splits_to_pause)) - set(splits_to_resume)

    def snapshot_state(self, checkpoint_id: int) -> list[StreamSplit]:
        """See `SourceReader`."""
        return list(self._splits.values())

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()


def check_complete(split: StreamSplit, state: StreamState) -> None:
    """Raise `OperationError` if a stream has lost entries after the position, or is another one by now."""
    if state.added < split.count or id_parts(state.last) < id_parts(split.position):
        raise OperationError(
            f"stream {split.key!r} was removed, or made anew, after entry {split.position} was read: the position of "
            "the checkpoint means nothing in it. Start the job without the checkpoint to read the new stream"
        )
    lost = find_lost_entries(split, state)
    if lost:
        raise OperationError(
            f"stream {split.key!r} was trimmed: {lost} entries after {split.position} were removed before they were "
            "read. Let it keep more (a larger MAXLEN, an earlier MINID), and start the job without the checkpoint, or "
            "with starts_at='latest', to go on without them"
        )


def find_lost_entries(split: StreamSplit, state: StreamState) -> int:
    """Return how many entries were removed after the position, before they were read."""
    is_trimmed = state.first is None or id_parts(state.first) > id_parts(split.position)
    return max(0, state.gone - split.count) if is_trimmed else 0
