"""Planted bugs in the Kafka sink, which runs in simulated jobs as it is, on a model of the brokers (G9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from tests.simulation.planting import Mutant, around

from penstock.connectors.kafka import sink as transactional_writer
from penstock.connectors.kafka.producer import KafkaCommitter, NumberPool, TransactionNames, end_former
from penstock.connectors.kafka.sink import KafkaSink, TransactionalWriter


def leave_open_what_former_runs_left() -> Any:
    """Readers wait for what nobody will end."""
    return mock.patch.object(transactional_writer, "end_former", return_value=[])


def abort_what_others_have_yet_to_commit() -> Any:
    """Each writer knows only of a share of what was prepared, as if it were a share of the work."""
    return mock.patch.object(KafkaSink, "shares_writer_state", False)


def abort_what_the_checkpoint_names() -> Any:
    def forgetful(brokers: Any, names: Any, kept: Any) -> Any:
        return end_former(brokers, names, frozenset())

    return mock.patch.object(transactional_writer, "end_former", forgetful)


def use_one_id_for_all_transactions() -> Any:
    return mock.patch.object(NumberPool, "take", return_value=0)


def share_ids_between_attempts() -> Any:
    """A new attempt takes over the id of what the checkpoint names."""

    def of_all(original: Callable[..., str], names: TransactionNames, number: int) -> str:
        return f"{names.prefix}-{names.job}-{names.operator}-{names.subtask}-0-{'0' * 12}-{number}"

    return around(TransactionNames, "format_transactional_id", of_all)


def prepare_without_a_flush() -> Any:
    return mock.patch.object(TransactionalWriter, "flush", return_value=None)


def commit_when_it_is_prepared() -> Any:
    """Before the checkpoint is complete."""

    def early(original: Callable[..., list[Any]], writer: TransactionalWriter) -> list[Any]:
        committables = original(writer)
        KafkaCommitter(writer._brokers, writer._names).commit(committables)
        return committables

    return around(TransactionalWriter, "prepare_commit", early)


def take_over_from_any_job() -> Any:
    """Also from the successor, when a job goes on that all others think dead."""

    def any_job(original: Callable[..., bool], names: TransactionNames, transactional_id: str) -> bool:
        name = names.parse(transactional_id)
        if name is None or name.job == names.job:
            return original(names, transactional_id)
        return name.operator == names.operator and name.subtask % names.parallelism == names.subtask

    return around(TransactionNames, "is_of_former", any_job)


def end_what_other_sinks_of_former_jobs_have_prepared() -> Any:
    """A writer has the snapshots of its own operator only."""

    def any_operator(original: Callable[..., bool], names: TransactionNames, transactional_id: str) -> bool:
        name = names.parse(transactional_id)
        return (name is not None and name.job in names.forerunners) or original(names, transactional_id)

    return around(TransactionNames, "is_of_former", any_operator)


#: Those that jobs of epochs find, with a seed.
MUTANTS_OF_KAFKA_EPOCHS: dict[Mutant, int] = {
    take_over_from_any_job: 34,
    end_what_other_sinks_of_former_jobs_have_prepared: 54,
}
#: Each mutant, the kinds of violation that give it away, and a seed that is known to find it.
MUTANTS_OF_KAFKA: dict[Mutant, tuple[tuple[str, ...], int]] = {
    leave_open_what_former_runs_left: (("output",), 2),
    use_one_id_for_all_transactions: (("failed", "task-failed"), 1),
    share_ids_between_attempts: (("failed", "task-failed"), 1),
    prepare_without_a_flush: (("lost", "task-failed"), 1),
    commit_when_it_is_prepared: (("output",), 5),
}
#: Those that only matter when a subtask opens before another one has committed what it got of a third: the hostile job
#: of `tests.connectors.kafka` opens them so, which simulated jobs seldom do.
MUTANTS_OF_OWNERS: tuple[Mutant, ...] = (abort_what_others_have_yet_to_commit, abort_what_the_checkpoint_names)
