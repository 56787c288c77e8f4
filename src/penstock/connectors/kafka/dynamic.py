"""`DynamicKafkaSource`: reads streams whose topics and clusters change while the job runs.

A `KafkaMetadataService` says which topics of which clusters a stream has at present. The source asks it again and
again. The enumerator hosts a `KafkaEnumerator` for each cluster, and a reader hosts a `KafkaReader` for each cluster.

**A change** is a *mark*, a split without a partition, which carries all metadata. The enumerator assigns it to every
reader before any split of a new topic. A reader that gets a mark stops reading what the metadata no longer has, and
sends the positions there in an event. An event may be in no snapshot, so the reader keeps these splits in its own
snapshots until the enumerator has confirmed them with another mark.

**A topic that comes back** continues where it was left, on whichever reader. Until the position has arrived, the
enumerator takes the partition for one that a reader has. When the position arrives, and the topic is there again, the
enumerator assigns the split anew. So no partition is ever read by two readers.

**Positions of what is gone** stay in the enumerator's snapshots for a while
(`stream-metadata-removed-cluster-retention-ms`).

Source: Flink's "Dynamic Kafka Source" (FLIP-246).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, Self, TypedDict, TypeVar

from penstock.base.errors import ConfigurationError, OperationError, PenstockError, UnsupportedError
from penstock.connectors.kafka import client, source
from penstock.connectors.kafka.metadata_service import Cluster, KafkaMetadataService, Metadata, StreamSettings
from penstock.connectors.kafka.partitions import KafkaPartitionSplit, KafkaTopicPartition
from penstock.connectors.kafka.reader import KafkaReader
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.runtime import connector
from penstock.runtime.columns import SplitColumnBatch
from penstock.runtime.records import Batch

T = TypeVar("T")

DISCOVERY_INTERVAL: Final = "stream-metadata-discovery-interval-ms"
FAILURES_MAX: Final = "stream-metadata-discovery-failure-threshold"
MODE: Final = "stream-enumerator-mode"
RETENTION: Final = "stream-metadata-removed-cluster-retention-ms"
#: A week. Flink forgets at once by default: metadata that flickers then repeats records, or loses them.
_RETENTION_MS: Final = 604_800_000
#: How long an inactive cluster is left alone, unless the metadata is looked at more often.
_INACTIVE_MS: Final = 1_000
_BETWEEN: Final = "/"


class _Key(NamedTuple):
    cluster: str
    partition: KafkaTopicPartition


@dataclass(frozen=True)
class _Mark:
    """All metadata, and the splits whose positions the enumerator has received."""

    metadata: Metadata
    received: frozenset[_Key] = frozenset()


@dataclass(frozen=True)
class DynamicKafkaSplit:
    """A partition of a cluster, or a mark; `has_left` for one that the metadata no longer had."""

    cluster: str = ""
    split: KafkaPartitionSplit | None = None
    has_left: bool = False
    mark: _Mark | None = None


def _key(split: DynamicKafkaSplit) -> _Key:
    assert split.split is not None
    return _Key(split.cluster, split.split.partition)


class _Gone(NamedTuple):
    """The position in a partition that the metadata no longer has, and when (ms) the enumerator received it."""

    split: KafkaPartitionSplit
    since_ms: int


class DynamicKafkaState(TypedDict):
    """The state of an enumerator: that of each cluster's enumerator, and what the metadata no longer has.

    `away` are partitions whose positions have not arrived; `gone` the others, with their positions.
    """

    clusters: dict[str, source.KafkaEnumeratorState]
    away: set[_Key]
    gone: dict[_Key, _Gone]


class _DynamicEnumerator(connector.SplitEnumerator[DynamicKafkaSplit]):
    """See the module docstring."""

    def __init__(
        self,
        settings: StreamSettings,
        context: connector.SplitEnumeratorContext[DynamicKafkaSplit],
        restored: DynamicKafkaState | None,
    ) -> None:
        self.settings, self.context = settings, context
        self.interval_ms = settings.interval_ms if context.receives_source_events else None
        self._metadata: Metadata | None = None
        self._enumerators: dict[str, source.KafkaEnumerator] = {}
        self._states: dict[str, source.KafkaEnumeratorState] = dict(restored["clusters"]) if restored else {}
        self._away: set[_Key] = set(restored["away"]) if restored else set()
        self._gone: dict[_Key, _Gone] = dict(restored["gone"]) if restored else {}
        self._readers: set[int] = set()
        #: by reader, the clusters that have no more splits for it
        self._ended: dict[int, set[str]] = {}
        self._failures = 0
        self._is_closed = False

    def start(self) -> None:
        self._look_after(0)

    def _look_after(self, delay_ms: int) -> None:
        def look() -> tuple[Metadata, int]:
            return self.settings.read_metadata(self.interval_ms), int(time.time() * 1000)

        self.context.call_async(look, self._take, delay_ms)

    def _take(self, answer: tuple[Metadata, int] | None, error: BaseException | None) -> None:
        settings = self.settings
        if error is not None:
            self._failures += 1
            if self._failures >= settings.failures_max or self.interval_ms is None:
                raise OperationError(
                    f"the Kafka metadata service {type(settings.service).__name__} has failed {self._failures} times "
                    f"in a row for {settings.streams} ({FAILURES_MAX}): {type(error).__name__}: {error}"
                ) from error
            client.LOG.warning("the Kafka metadata service fails (%s); the source asks again", error)
            self._look_after(self.interval_ms)
            return
        assert answer is not None
        self._failures = 0
        metadata, now_ms = answer
        self._gone = {key: gone for key, gone in self._gone.items() if now_ms - gone.since_ms < settings.retention_ms}
        if metadata != self._metadata:
            self._apply(metadata, now_ms)
        if self.interval_ms is not None:
            self._look_after(self.interval_ms)

    # --- a change --------------------------------------------------------------------------------------------------

    def _apply(self, metadata: Metadata, now_ms: int) -> None:
        before, self._metadata = self._metadata or {}, metadata
        if not metadata:
            client.LOG.warning("the Kafka metadata service knows no topic of %s", self.settings.streams)
        for reader in sorted(self._readers):
            self._tell(reader)
        for cluster_id in before.keys() - metadata.keys():
            client.LOG.info("cluster %s is no longer read", cluster_id)
            self._leave(cluster_id)
        for cluster_id in {*self._states} - metadata.keys():  # of the job before
            self._forget(cluster_id, self._states.pop(cluster_id), {}, now_ms)
        for cluster_id, cluster in metadata.items():
            if before.get(cluster_id) != cluster:
                client.LOG.info("cluster %s is read: %s", cluster_id, ", ".join(cluster.topics))
                self._begin(cluster_id, cluster, self._leave(cluster_id), now_ms)

    def _leave(self, cluster_id: str) -> source.KafkaEnumeratorState | None:
        """Close the enumerator of a cluster, if there is one, and return its state."""
        enumerator = self._enumerators.pop(cluster_id, None)
        for ended in self._ended.values():
            ended.discard(cluster_id)
        if enumerator is None:
            return self._states.pop(cluster_id, None)
        state = enumerator.snapshot_state(0)
        enumerator.close()
        if self._metadata is None or cluster_id not in self._metadata:
            self._forget(cluster_id, state, {}, int(time.time() * 1000))
        return state

    def _begin(self, cluster_id: str, cluster: Cluster, state: source.KafkaEnumeratorState | None, now_ms: int) -> None:
        if state is not None:
            state = self._forget(cluster_id, state, cluster.topics, now_ms)
        back = [key for key in self._gone if key.cluster == cluster_id and key.partition.topic in cluster.topics]
        away = [key for key in self._away if key.cluster == cluster_id and key.partition.topic in cluster.topics]
        if back or away:
            splits = [self._gone.pop(key).split for key in back]
            state = state or source.KafkaEnumeratorState(pending=[], known=[], has_looked=True)
            state["pending"] += [split for split in splits if not split.is_read]
            state["known"] += {*(key.partition for key in [*back, *away])} - {*state["known"]}
        context = _ClusterContext(self, cluster_id)
        enumerator = self._enumerators[cluster_id] = source.KafkaEnumerator(cluster.plan, context, state)
        context.enumerator = enumerator
        enumerator.start()
        for reader in sorted(self._readers):
            enumerator.handle_split_request(reader)

    def _forget(
        self, cluster_id: str, state: source.KafkaEnumeratorState, topics: Collection[str], now_ms: int
    ) -> source.KafkaEnumeratorState:
        """Return the state without other topics. Splits that no reader has got are gone, and the others away."""
        for partition in state["known"]:
            if partition.topic not in topics:
                self._away.add(_Key(cluster_id, partition))
        for split in state["pending"]:
            if split.partition.topic not in topics:
                key = _Key(cluster_id, split.partition)
                self._gone[key] = _Gone(split, now_ms)
                self._away.discard(key)
        return source.KafkaEnumeratorState(
            pending=[split for split in state["pending"] if split.partition.topic in topics],
            known=[partition for partition in state["known"] if partition.topic in topics],
            has_looked=state["has_looked"],
        )

    # --- readers ---------------------------------------------------------------------------------------------------

    def handle_split_request(self, subtask_index: int) -> None:
        self._readers.add(subtask_index)
        if self._metadata is None:
            return
        self._tell(subtask_index)
        for enumerator in list(self._enumerators.values()):
            enumerator.handle_split_request(subtask_index)

    def _tell(self, reader: int, received: frozenset[_Key] = frozenset()) -> None:
        """Assign a mark."""
        assert self._metadata is not None
        self.context.assign_split(DynamicKafkaSplit(mark=_Mark(self._metadata, received)), reader)

    def handle_source_event(self, subtask_index: int, event: Any) -> None:
        """Take the positions of splits that a reader has given up."""
        now_ms = int(time.time() * 1000)
        splits = {_key(left): left.split for left in event}
        self._tell(subtask_index, frozenset(splits))
        for key, split in splits.items():
            self._away.discard(key)
            if self._metadata is not None and key.partition.topic in self._topics(key.cluster):
                self._enumerators[key.cluster].take_back(split)
            else:
                self._gone[key] = _Gone(split, now_ms)

    def _topics(self, cluster_id: str) -> Collection[str]:
        cluster = None if self._metadata is None else self._metadata.get(cluster_id)
        return () if cluster is None else cluster.topics

    def end_cluster(self, cluster_id: str, reader: int) -> None:
        """Note that a cluster has no more splits for a reader."""
        ended = self._ended.setdefault(reader, set())
        ended.add(cluster_id)
        if self.interval_ms is None and self._metadata is not None and ended >= self._metadata.keys():
            self.context.signal_no_more_splits(reader)

    def add_splits_back(self, splits: Sequence[DynamicKafkaSplit], subtask_index: int) -> None:
        raise OperationError("readers of a DynamicKafkaSource restart together")

    def snapshot_state(self, checkpoint_id: int) -> DynamicKafkaState:
        states = {cluster: each.snapshot_state(checkpoint_id) for cluster, each in self._enumerators.items()}
        return DynamicKafkaState(clusters={**self._states, **states}, away=set(self._away), gone=dict(self._gone))

    def is_current(self, cluster_id: str, enumerator: source.KafkaEnumerator | None) -> bool:
        """Return whether this is the enumerator of a cluster at present."""
        return not self._is_closed and enumerator is not None and self._enumerators.get(cluster_id) is enumerator

    def close(self) -> None:
        self._is_closed = True
        for enumerator in self._enumerators.values():
            enumerator.close()
        self.settings.service.close()


class _ClusterContext:
    """The context of a cluster's enumerator; its calls have no effect once another has taken its place."""

    def __init__(self, host: _DynamicEnumerator, cluster_id: str) -> None:
        self._host, self._cluster_id = host, cluster_id
        self.enumerator: source.KafkaEnumerator | None = None

    receives_source_events = False

    @property
    def parallelism(self) -> int:
        return self._host.context.parallelism

    def assign_split(self, split: KafkaPartitionSplit, subtask_index: int) -> None:
        self._host.context.assign_split(DynamicKafkaSplit(self._cluster_id, split), subtask_index)

    def signal_no_more_splits(self, subtask_index: int) -> None:
        self._host.end_cluster(self._cluster_id, subtask_index)

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        def work_if_active() -> T | None:
            try:
                return work()
            except PenstockError as error:
                if self._host.settings.service.is_cluster_active(self._cluster_id):
                    raise
                client.LOG.warning("the inactive cluster %s cannot be read: %s", self._cluster_id, error)
                return None

        def handle(result: T | None, error: BaseException | None) -> None:
            if not self._host.is_current(self._cluster_id, self.enumerator):
                return
            if result is None and error is None:
                self.call_async(work, handler, self._host.interval_ms or _INACTIVE_MS)
            else:
                handler(result, error)

        self._host.context.call_async(work_if_active, handle, delay_ms)


class DynamicKafkaSource(connector.Source[T, DynamicKafkaSplit], Generic[T]):
    """Reads streams whose topics and clusters change; created with `DynamicKafkaSource.builder()`.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.dynamic_kafka import DynamicKafkaSource
        >>> from penstock.datastream.connectors.dynamic_kafka import SingleClusterTopicMetadataService
        >>> service = SingleClusterTopicMetadataService("east", {"bootstrap.servers": "east:9092"})
        >>> builder = DynamicKafkaSource.builder().set_stream_ids({"orders"}).set_kafka_metadata_service(service)
        >>> source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
        >>> source.boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    # The enumerator takes splits back from readers that go on.
    restarts_by_reader = False

    def __init__(
        self, settings: StreamSettings, schema: KafkaRecordDeserializationSchema[T], boundedness: connector.Boundedness
    ) -> None:
        self._settings, self._schema, self._boundedness = settings, schema, boundedness

    @staticmethod
    def builder() -> DynamicKafkaSourceBuilder[Any]:
        """Return a builder."""
        return DynamicKafkaSourceBuilder()

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded after `set_bounded`."""
        return self._boundedness

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Refuse MICRO_BATCH, whose readers cannot answer."""
        if mode == "MICRO_BATCH":
            raise ConfigurationError(
                "a DynamicKafkaSource runs in STREAMING, and in BATCH if it is bounded: set execution.runtime-mode, or "
                "read the topics with a KafkaSource"
            )

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[DynamicKafkaSplit], restored: Any | None
    ) -> connector.SplitEnumerator[DynamicKafkaSplit]:
        """Return a new enumerator, or one that resumes from a value that `snapshot_state` returned."""
        return _DynamicEnumerator(self._settings, context, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, DynamicKafkaSplit]:
        """Return a new reader for one subtask."""
        return _DynamicReader(context, self._schema)


class DynamicKafkaSourceBuilder(source.ConsumerBuilder[T]):
    """Builder for `DynamicKafkaSource`. It needs streams, a metadata service and a deserializer.

    Examples:
        >>> from penstock.datastream.connectors.dynamic_kafka import DynamicKafkaSource
        >>> builder = DynamicKafkaSource.builder().set_stream_pattern("orders-.*")
        >>> builder = builder.set_property("stream-metadata-discovery-interval-ms", "10000")
    """

    def __init__(self) -> None:
        super().__init__()
        self._service: KafkaMetadataService | None = None
        self._stream_ids: frozenset[str] | None = None
        self._stream_pattern: str | None = None

    def set_kafka_metadata_service(self, kafka_metadata_service: KafkaMetadataService) -> Self:
        """Set who says where the streams are.

        Raises:
            ConfigurationError: if it is not a `KafkaMetadataService`.
        """
        if not isinstance(kafka_metadata_service, KafkaMetadataService):
            raise ConfigurationError(
                f"set_kafka_metadata_service takes a KafkaMetadataService, not {kafka_metadata_service!r}"
            )
        self._service = kafka_metadata_service
        return self

    def set_stream_ids(self, stream_ids: Collection[str]) -> Self:
        """Read these streams.

        Raises:
            ConfigurationError: if there is none, or it is a text.
        """
        if isinstance(stream_ids, str) or not stream_ids:
            raise ConfigurationError(f"set_stream_ids takes a set of ids, not {stream_ids!r}")
        self._stream_ids, self._stream_pattern = frozenset(stream_ids), None
        return self

    def set_stream_pattern(self, stream_pattern: str) -> Self:
        """Read all streams whose full ids match a regular expression.

        Raises:
            ConfigurationError: if the pattern is not a regular expression.
        """
        try:
            re.compile(stream_pattern)
        except re.error as error:
            raise ConfigurationError(f"{stream_pattern!r} is no regular expression: {error}") from None
        self._stream_ids, self._stream_pattern = None, stream_pattern
        return self

    def build(self) -> DynamicKafkaSource[T]:
        """Build the source.

        Raises:
            ConfigurationError: if streams, service or schema are missing, or a property is unknown or invalid.
            UnsupportedError: for splits that are balanced over all clusters.
        """
        if self._service is None:
            raise ConfigurationError("a DynamicKafkaSource needs set_kafka_metadata_service")
        if self._stream_ids is None and self._stream_pattern is None:
            raise ConfigurationError("a DynamicKafkaSource needs set_stream_ids or set_stream_pattern")
        if self._properties.get(MODE, "per_cluster").lower() != "per_cluster":
            raise UnsupportedError(
                f"{MODE} is {self._properties[MODE]!r}: partitions are spread over the readers cluster by cluster, as "
                "with per_cluster"
            )
        own = (DISCOVERY_INTERVAL, FAILURES_MAX, RETENTION, MODE)
        numbers = {name: _read_number(self._properties, name) for name in own[:3]}
        properties = {name: value for name, value in self._properties.items() if name not in own}
        schema = self._get_schema()
        self._check(
            client.consumer_options({"bootstrap.servers": "-", **properties}, self._client_id_prefix, looks_once=True)
        )
        # A bounded source asks once: it would never end otherwise.
        is_bounded = self._boundedness is connector.Boundedness.BOUNDED
        interval_ms, failures, retention_ms = numbers[DISCOVERY_INTERVAL], numbers[FAILURES_MAX], numbers[RETENTION]
        settings = StreamSettings(
            service=self._service,
            stream_ids=self._stream_ids,
            stream_pattern=self._stream_pattern,
            properties=properties,
            starting=self._starting,
            stopping=self._stopping,
            interval_ms=interval_ms if interval_ms is not None and interval_ms > 0 and not is_bounded else None,
            failures_max=1 if failures is None else failures,
            retention_ms=_RETENTION_MS if retention_ms is None else retention_ms,
            client_id_prefix=self._client_id_prefix,
        )
        return DynamicKafkaSource(settings, schema, self._boundedness)


def _read_number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    try:
        return None if text is None else int(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a whole number, not {text!r}") from None


class _DynamicReader(connector.SourceReader[Any, DynamicKafkaSplit]):
    """See the module docstring."""

    def __init__(self, context: connector.SourceReaderContext, schema: KafkaRecordDeserializationSchema[Any]) -> None:
        self._context, self._schema = context, schema
        self._metadata: Metadata | None = None
        self._readers: dict[str, KafkaReader] = {}
        self._contexts: dict[str, _ReaderContext] = {}
        self._ended: set[str] = set()
        #: restored splits, before the first mark
        self._waiting: list[DynamicKafkaSplit] = []
        #: splits that the metadata no longer has, until the enumerator has their positions
        self._left: list[DynamicKafkaSplit] = []
        #: the keys of the splits that were sent
        self._sent: set[_Key] = set()
        self._is_last = False
        self._turn = 0
        self._measures: dict[str, dict[str, Callable[[], int | float]]] = {}
        context.gauge("kafkaClustersCount", lambda: len(self._readers))
        context.gauge("pendingRecords", lambda: sum(measures["pendingRecords"]() for measures in self._measured()))

    def _measured(self) -> list[dict[str, Callable[[], int | float]]]:
        return [measures for measures in list(self._measures.values()) if "pendingRecords" in measures]

    def start(self) -> None:
        self._context.request_split()

    def add_splits(self, splits: Sequence[DynamicKafkaSplit]) -> None:
        for split in splits:
            if split.mark is not None:
                self._apply(split.mark)
            elif split.has_left:
                self._left.append(split)
            elif self._metadata is None:
                self._waiting.append(split)
            else:
                self._add(split)

    def _add(self, split: DynamicKafkaSplit) -> None:
        assert self._metadata is not None
        assert split.split is not None
        cluster = self._metadata.get(split.cluster)
        if cluster is None or split.split.partition.topic not in cluster.topics:
            self._left.append(replace(split, has_left=True))
            return
        if split.cluster not in self._readers:
            context = self._contexts[split.cluster] = _ReaderContext(self._context, split.cluster)
            self._measures[split.cluster] = context.measures
            options = cluster.options
            reset = options.reset or cluster.starting.reset
            self._readers[split.cluster] = KafkaReader(context, options, reset, self._schema)
        self._ended.discard(split.cluster)
        self._readers[split.cluster].add_splits([split.split])

    def _apply(self, mark: _Mark) -> None:
        self._left = [split for split in self._left if _key(split) not in mark.received]
        self._sent -= mark.received
        before, self._metadata = self._metadata or {}, mark.metadata
        again = self._waiting
        self._waiting = []
        for cluster_id, reader in list(self._readers.items()):
            if not _goes_on(before.get(cluster_id), mark.metadata.get(cluster_id)):
                splits = [split for split in reader.snapshot_state(0) if not split.is_read]
                again += [DynamicKafkaSplit(cluster_id, split) for split in splits]
                self._close_reader(cluster_id)
        for split in again:
            self._add(split)
        new = [split for split in self._left if _key(split) not in self._sent]
        if new:
            self._sent.update(map(_key, new))
            self._context.send_source_event(new)
        if self._is_last:
            self.no_more_splits()

    def _close_reader(self, cluster_id: str) -> None:
        self._readers.pop(cluster_id).close()
        self._contexts.pop(cluster_id).close_splits()
        del self._measures[cluster_id]
        self._ended.discard(cluster_id)

    def no_more_splits(self) -> None:
        self._is_last = True
        for reader in self._readers.values():
            reader.no_more_splits()

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        names = [name for name in self._readers if name not in self._ended]
        self._turn += 1
        for offset in range(len(names)):
            cluster_id = names[(self._turn + offset) % len(names)]
            result = self._readers[cluster_id].poll_next(max_records)
            if result is connector.InputStatus.END_OF_INPUT:
                self._ended.add(cluster_id)
            elif not isinstance(result, connector.InputStatus):
                assert isinstance(result, connector.SplitBatch | SplitColumnBatch)
                result.split_id = f"{cluster_id}{_BETWEEN}{result.split_id}"
                return result
        if self._is_last and self._metadata is not None and self._ended >= self._readers.keys():
            return connector.InputStatus.END_OF_INPUT
        return connector.InputStatus.NOTHING_AVAILABLE

    def retry_after_ms(self) -> int:
        for reader in self._readers.values():
            reader.polls_in_vain = self.polls_in_vain
        return min((reader.retry_after_ms() for reader in self._readers.values()), default=super().retry_after_ms())

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        for cluster_id, reader in self._readers.items():
            prefix = f"{cluster_id}{_BETWEEN}"
            pause, resume = (
                [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
                for names in (splits_to_pause, splits_to_resume)
            )
            reader.pause_or_resume_splits(pause, resume)

    def snapshot_state(self, checkpoint_id: int) -> list[DynamicKafkaSplit]:
        present = [
            DynamicKafkaSplit(cluster_id, split)
            for cluster_id, reader in self._readers.items()
            for split in reader.snapshot_state(checkpoint_id)
        ]
        return [*present, *self._waiting, *self._left]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for reader in self._readers.values():
            reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


def _goes_on(before: Cluster | None, now: Cluster | None) -> bool:
    """Return whether a reader that was made for a cluster as it was can read it as it is now."""
    if before is None or now is None:
        return False
    return before.options == now.options and {*before.topics} <= {*now.topics}


class _ReaderContext:
    """The context of a cluster's reader: its splits and metrics have the name of the cluster in front."""

    def __init__(self, context: connector.SourceReaderContext, cluster_id: str) -> None:
        self._context, self._cluster_id = context, cluster_id
        self._open: dict[str, None] = {}
        self.measures: dict[str, Callable[[], int | float]] = {}
        self.subtask_index, self.parallelism = context.subtask_index, context.parallelism
        self.now_ms, self.count, self.collect_side = context.now_ms, context.count, context.collect_side

    def request_split(self) -> None:
        """Do nothing: the host requests splits."""

    def send_source_event(self, event: Any) -> None:
        raise OperationError("the reader of a cluster sends no events")

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        self.measures[name] = function
        if name != "pendingRecords":  # the host reports the sum
            self._context.gauge(f"DynamicKafkaSource.kafkaCluster.{self._cluster_id}.{name}", function)

    def open_split(self, split_id: str) -> None:
        name = f"{self._cluster_id}{_BETWEEN}{split_id}"
        self._open[name] = None
        self._context.open_split(name)

    def close_split(self, split_id: str) -> None:
        name = f"{self._cluster_id}{_BETWEEN}{split_id}"
        self._open.pop(name, None)
        self._context.close_split(name)

    def close_splits(self) -> None:
        """Close all splits that the reader has open."""
        for name in list(self._open):
            del self._open[name]
            self._context.close_split(name)
