"""Ends the transactions of an exactly-once Kafka sink: the second phase of its commit (G9)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from penstock.connectors.kafka.transactions import (
    FENCED_TIMEOUT_MS,
    ONGOING,
    Brokers,
    KafkaCommittable,
    TransactionLostError,
    TransactionNames,
    TransactionUnknownError,
)
from penstock.core.connector import Committer

_log = logging.getLogger("penstock.connectors.kafka")

FAIL: Final = "fail"
IGNORE: Final = "ignore"


class KafkaCommitter(Committer[KafkaCommittable]):
    """Commits transactions; repeating a commit has no effect.

    Args:
        brokers: the cluster.
        names: the transactional ids of the writers.
        unknown: how to handle a transaction whose outcome is unknown: FAIL or IGNORE.
    """

    def __init__(self, brokers: Brokers, names: TransactionNames, unknown: str = FAIL) -> None:
        self._brokers = brokers
        self._names = names
        self._unknown = unknown

    def commit(self, committables: Sequence[KafkaCommittable]) -> None:
        """Commit all in order; some may have been committed long ago.

        Raises:
            TransactionLostError: if one was aborted.
            TransactionUnknownError: if the outcome of one is unknown, and this must not be ignored.
        """
        for committable in committables:
            if self._brokers.commit(committable.key):
                continue
            is_committed = self._brokers.find_marker(committable)
            if is_committed is None:
                self._on_unknown(committable)
            elif not is_committed:
                raise self._lost(committable)

    def _on_unknown(self, committable: KafkaCommittable) -> None:
        text = (
            f"{_describe(committable)}: the broker has forgotten the transaction, and the topic does not reach back to "
            "its end, so nobody can tell whether it was committed or lost"
        )
        if self._unknown == FAIL:
            raise TransactionUnknownError(
                f"{text}. If it was committed, or may be lost, set with_unknown_transactions('ignore') on the sink's "
                "builder; else start from an earlier checkpoint, which writes the records again"
            )
        _log.warning("%s", text)

    def _lost(self, committable: KafkaCommittable) -> TransactionLostError:
        name = committable.key.transactional_id
        state = self._brokers.describe([name]).get(name)
        if state is not None and state.timeout_ms == FENCED_TIMEOUT_MS:
            why = (
                f"Another job with the transactional id prefix {self._names.prefix!r}, or a later attempt of the job "
                "that began from an earlier checkpoint, has aborted it. Give each job a prefix of its own"
            )
        else:
            why = (
                "It was open for longer than transaction.timeout.ms. Set that above the longest time for which the job "
                "may stand still (set_property; at most the brokers' transaction.max.timeout.ms)"
            )
        return TransactionLostError(
            f"{_describe(committable)}: the transaction was aborted before it was committed, so these records are lost "
            f"to readers. {why}. To write them again, start from the checkpoint or savepoint before"
        )

    def end_job(self) -> None:
        """Abort the open transactions of this job's runs, which no longer count."""
        listed = self._brokers.list_transactions(f"{self._names.prefix}-{self._names.job}-")
        for name, state in listed.items():
            if state == ONGOING and self._names.is_of_job(name):
                self._brokers.fence(name)

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()


def _describe(committable: KafkaCommittable) -> str:
    since = f"after checkpoint {committable.since}" if committable.since else "before the first checkpoint"
    return (
        f"{committable.records} records that a Kafka sink wrote {since} (topic {committable.topic}, transactional id "
        f"{committable.key.transactional_id}, producer {committable.key.producer_id}, epoch "
        f"{committable.key.producer_epoch})"
    )
