"""Discovers the partitions of a source, determines where each starts and stops, and assigns them to readers.

A partition goes to the reader that Flink's rule names, once that reader has registered. Offsets are resolved to numbers
when a partition is discovered, and never again, so that a source that restarts reads the same records.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypedDict

from penstock.base.errors import OperationError
from penstock.connectors.kafka.consumer_settings import MISSING_PARTITION, ConsumerOptions
from penstock.connectors.kafka.library import LOG
from penstock.connectors.kafka.metadata import KafkaMetadata, ask_patiently
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer
from penstock.connectors.kafka.partitions import KafkaPartitionSplit, KafkaTopicPartition, assign_reader
from penstock.connectors.kafka.subscription import MissingTopicError, Subscription
from penstock.core.connector import SplitEnumerator, SplitEnumeratorContext

WHAT = "the Kafka source"


@dataclass(frozen=True)
class ReadingPlan:
    """The partitions to read, and their start and stop offsets; without `stopping` they are read without end."""

    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    options: ConsumerOptions


class KafkaEnumeratorState(TypedDict):
    """The state of an enumerator: unassigned splits, and all discovered partitions."""

    pending: list[KafkaPartitionSplit]
    known: list[KafkaTopicPartition]
    has_looked: bool


@dataclass(frozen=True)
class _Found:
    partitions: Collection[KafkaTopicPartition]
    splits: list[KafkaPartitionSplit]


class KafkaEnumerator(SplitEnumerator[KafkaPartitionSplit]):
    """See the module docstring.

    Args:
        plan: the partitions and offsets to read.
        context: the context of the enumerator.
        restored: the state to resume from.
    """

    def __init__(
        self,
        plan: ReadingPlan,
        context: SplitEnumeratorContext[KafkaPartitionSplit],
        restored: KafkaEnumeratorState | None,
    ) -> None:
        self._plan = plan
        self._context = context
        options = plan.options
        patience_ms = options.unavailable_timeout_ms
        self._metadata = KafkaMetadata(options.of_admin(), options.group_id, options.reads_committed, patience_ms)
        self._pending: list[KafkaPartitionSplit] = list(restored["pending"]) if restored else []
        self._known: set[KafkaTopicPartition] = set(restored["known"]) if restored else set()
        self._has_looked = restored is not None and restored["has_looked"]
        self._is_settled = False  # whether discovery has run since the start
        self._missing: set[KafkaTopicPartition] = set()
        self._readers: set[int] = set()
        self._told: set[int] = set()
        self._closed = False

    def start(self) -> None:
        """Discover partitions, unless one discovery is enough and has already run."""
        if self._has_looked and self._plan.options.discovery_interval_ms is None:
            self._is_settled = True
        else:
            self._look_after(0)

    def handle_split_request(self, subtask_index: int) -> None:
        """Register a reader, which gets its splits now and later."""
        self._readers.add(subtask_index)
        self._assign()

    def add_splits_back(self, splits: Sequence[KafkaPartitionSplit], subtask_index: int) -> None:
        """Keep the splits for the reader, which asks again."""
        self._readers.discard(subtask_index)
        self._told.discard(subtask_index)
        self._pending += splits

    def snapshot_state(self, checkpoint_id: int) -> KafkaEnumeratorState:
        """Return the pending splits and the discovered partitions."""
        return KafkaEnumeratorState(pending=list(self._pending), known=sorted(self._known), has_looked=self._has_looked)

    def close(self) -> None:
        """Stop a discovery that waits for brokers."""
        self._closed = True

    def _look_after(self, delay_ms: int) -> None:
        known, is_first = frozenset(self._known), not self._has_looked
        self._context.call_async(lambda: self._look(known, is_first), self._take, delay_ms)

    def _look(self, known: frozenset[KafkaTopicPartition], is_first: bool) -> _Found:
        """Discover partitions. Runs in the background, so it touches no mutable state."""
        plan = self._plan

        def ask() -> _Found:
            partitions = plan.subscription.partitions(self._metadata)
            new = sorted(partitions - known)
            # A partition discovered later is new: its first record belongs to the stream.
            starting = plan.starting if is_first else KafkaOffsetsInitializer.earliest()
            starts = starting.resolve(new, self._metadata)
            stops = {} if plan.stopping is None else plan.stopping.resolve(new, self._metadata)
            return _Found(
                partitions,
                [KafkaPartitionSplit(partition, starts[partition], stops.get(partition)) for partition in new],
            )

        activity = f"{WHAT} looks for partitions of {plan.subscription}"
        return ask_patiently(ask, activity, plan.options.unavailable_timeout_ms, lambda: self._closed, self._metadata)

    def _take(self, discovered: _Found | None, error: BaseException | None) -> None:
        interval_ms = self._plan.options.discovery_interval_ms
        if isinstance(error, MissingTopicError) and self._has_looked and not self._plan.options.fails_on_missing:
            LOG.warning("%s: %s; the source goes on without", WHAT, error)
        elif isinstance(error, MissingTopicError) and self._has_looked:
            raise OperationError(self._missing_sentence(str(error))) from error
        elif error is not None:
            raise error
        if discovered is not None:
            self._check_missing(discovered.partitions)
            if self._has_looked and discovered.splits:
                LOG.info(
                    "%s has found new partitions: %s", WHAT, ", ".join(str(s.partition) for s in discovered.splits)
                )
            elif not discovered.partitions:
                LOG.warning("%s has found no partition of %s", WHAT, self._plan.subscription)
            self._known.update(split.partition for split in discovered.splits)
            self._pending += [split for split in discovered.splits if not split.is_read]
            self._has_looked = True
        self._is_settled = True
        self._assign()
        if interval_ms is not None:
            self._look_after(interval_ms)

    def _check_missing(self, partitions: Collection[KafkaTopicPartition]) -> None:
        missing = self._known - set(partitions)
        new = missing - self._missing
        self._missing = missing
        if not new:
            return
        problem = f"{', '.join(map(str, sorted(new)))} cannot be found any more"
        if self._plan.options.fails_on_missing:
            raise OperationError(self._missing_sentence(problem))
        LOG.warning("%s: %s; the source goes on without", WHAT, problem)

    def _missing_sentence(self, problem: str) -> str:
        return (
            f"{WHAT}: {problem}. Records that were not read are lost if the topic was deleted. To go on without, set "
            "the "
            f"property {MISSING_PARTITION} to 'ignore'"
        )

    def _assign(self) -> None:
        left: list[KafkaPartitionSplit] = []
        for split in self._pending:
            reader = assign_reader(split.partition, self._context.parallelism)
            if reader in self._readers:
                self._context.assign_split(split, reader)
            else:
                left.append(split)
        self._pending = left
        if self._is_settled and self._plan.stopping is not None and self._plan.options.discovery_interval_ms is None:
            for reader in sorted(self._readers - self._told):
                self._told.add(reader)
                self._context.signal_no_more_splits(reader)
