"""Who owns which transaction, on a model of the brokers: kills at any step, other parallelism, zombies, time-outs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.connectors.kafka.hostile import TOPIC, HostileJob, ModelSink
from tests.simulation.mutants_of_kafka import MUTANTS_OF_KAFKA, MUTANTS_OF_OWNERS

from penstock.base.errors import PenstockError
from penstock.connectors.kafka.producer import (
    IGNORE,
    NumberPool,
    ProducerKey,
    TransactionEndedError,
    TransactionLostError,
    TransactionNames,
    TransactionState,
    TransactionUnknownError,
)
from penstock.connectors.kafka.sink import PrefixTakenError
from penstock.drivers.simulation.outside_world import KafkaModel
from penstock.testing.connectors import SinkHost


def check(job: HostileJob) -> None:
    """Each record once; and what a savepoint names is seen, or beginning from it is an error."""
    job.run()
    assert job.visible == job.expected
    committer = job.sink.create_committer(SinkHost())
    assert committer is not None
    for named in job.savepoints:
        try:
            committer.recommit(named)
        except TransactionLostError:
            continue
        assert all(map(job.model.is_committed, named))
    assert job.visible == job.expected


@pytest.mark.parametrize("zombies", [False, True])
@pytest.mark.parametrize("parallelisms", [[1], [2], [3, 1, 2], [1, 3]])
def test_a_kill_before_any_step_changes_nothing_visible(parallelisms: list[int], zombies: bool) -> None:
    """G9: for a kill at each step, and at two more close to it."""
    whole = HostileJob(30, set(), parallelisms)
    check(whole)
    for death in range(1, whole.calls + 1):
        for more in (set[int](), {death + 5, death + 17}, {death + 40}):
            check(HostileJob(30, {death, *more}, parallelisms, zombies))


@settings(max_examples=150, deadline=None)
@given(
    st.sets(st.integers(1, 400), max_size=25),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(0, 120),
    st.booleans(),
)
def test_any_kills(deaths: set[int], parallelisms: list[int], records: int, zombies: bool) -> None:
    """G9: any number of kills, rescaling in between."""
    check(HostileJob(records, deaths, parallelisms, zombies))


@pytest.mark.parametrize("mutant", [*MUTANTS_OF_KAFKA, *MUTANTS_OF_OWNERS], ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Callable[[], Any]) -> None:
    def all_kills() -> None:
        whole = HostileJob(30, set(), [2, 3])
        whole.run()
        for death in range(1, whole.calls + 1):
            check(HostileJob(30, {death}, [2, 3]))

    with mutant(), pytest.raises((AssertionError, PenstockError)):
        all_kills()


def one_writer(model: KafkaModel, sink: ModelSink | None = None, **host: Any) -> tuple[ModelSink, Any, Any]:
    sink = sink or ModelSink(model)
    context = SinkHost(**host)
    return sink, sink.create_writer(context), sink.create_committer(context)


def prepared(writer: Any, values: list[int]) -> list[Any]:
    writer.write_batch(values, None)
    writer.flush(False)
    committables: list[Any] = writer.prepare_commit()
    writer.snapshot_state(1)
    return committables


def test_a_transaction_that_timed_out_before_its_commit_is_an_error_that_names_the_loss_and_the_remedy() -> None:
    model = KafkaModel()
    _, writer, committer = one_writer(model)
    prepared(writer, [0])
    committables = prepared(writer, [1, 2])
    model.time_out(committables[0].key.transactional_id)
    with pytest.raises(TransactionLostError) as caught:
        committer.commit(committables)
    text = str(caught.value)
    assert text.startswith(
        "2 records that a Kafka sink wrote after checkpoint 1 (topic topic, transactional id prefix-"
    )
    assert "these records are lost to readers" in text
    assert "Set that above the longest time for which the job may stand still" in text
    assert TransactionLostError.suppresses_restart


def test_a_transaction_that_timed_out_before_it_was_prepared_is_written_again() -> None:
    model = KafkaModel()
    _, writer, _ = one_writer(model)
    writer.write_batch([1], None)
    writer.flush(False)
    model.time_out(model.open_ids()[0])
    with pytest.raises(TransactionEndedError, match=r"is CompleteAbort at the broker.*records are written again"):
        writer.prepare_commit()
    assert not TransactionEndedError.__dict__.get("suppresses_restart")


def test_an_id_that_was_used_again_does_not_hide_that_the_first_transaction_was_committed() -> None:
    model = KafkaModel()
    _, writer, committer = one_writer(model)
    former: list[Any] = []
    ids = set()
    for number in range(12):
        committables = prepared(writer, [number])
        former += committables
        ids.add(committables[0].key.transactional_id)
        committer.commit(committables)
        committer.recommit(former)
    assert len(ids) <= 5
    assert model.seen["refused"] > 0
    assert model.visible(TOPIC) == list(range(12))


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_the_broker_has_forgotten_the_log_knows(is_committed: bool) -> None:
    model = KafkaModel()
    _, writer, committer = one_writer(model)
    committables = prepared(writer, [1])
    name = committables[0].key.transactional_id
    if is_committed:
        committer.commit(committables)
    else:
        model.time_out(name)
    model.forget(name)
    if is_committed:
        committer.recommit(committables)
    else:
        with pytest.raises(TransactionLostError):
            committer.recommit(committables)


def test_what_nobody_knows_any_more_is_an_error_unless_it_is_to_be_ignored(caplog: pytest.LogCaptureFixture) -> None:
    model = KafkaModel()
    _, writer, committer = one_writer(model)
    committables = prepared(writer, [1])
    committer.commit(committables)
    model.forget(committables[0].key.transactional_id)
    model.logs[TOPIC] = []
    with pytest.raises(TransactionUnknownError, match=r"nobody can tell.*with_unknown_transactions"):
        committer.recommit(committables)
    one_writer(model, ModelSink(model, unknown=IGNORE))[2].recommit(committables)
    assert "nobody can tell whether it was committed or lost" in caplog.text


def test_a_second_job_with_the_same_prefix_fences_the_first_and_that_is_an_error() -> None:
    model = KafkaModel()
    _, writer, committer = one_writer(model)
    committables = prepared(writer, [1])
    writer.write_batch([2], None)
    writer.flush(False)
    _, other, _ = one_writer(model, job_id="another")
    other.write_batch([3], None)
    with pytest.raises(PrefixTakenError, match="another job with the transactional id prefix 'prefix' has begun"):
        prepared(writer, [4])
    with pytest.raises(TransactionLostError, match="Another job with the transactional id prefix 'prefix'"):
        committer.commit(committables)


def test_two_sinks_of_one_job_share_a_prefix_in_peace() -> None:
    model = KafkaModel()
    _, first, committer = one_writer(model, operator="one")
    committables = prepared(first, [1])
    _, second, _ = one_writer(model, operator="two", attempt=3)
    committer.commit([*committables, *prepared(second, [2])])
    assert model.visible(TOPIC) == [1, 2]


def test_an_id_is_fenced_once_and_not_again_at_every_start() -> None:
    model = KafkaModel()
    prepared(one_writer(model)[1], [1])
    for attempt in range(1, 6):
        fenced = model.seen["fenced"]
        writer = one_writer(model, attempt=attempt)[1]
        writer.flush(False)
        assert model.seen["fenced"] - fenced == (2 if attempt == 1 else 0)  # the prepared one, and the spare


def test_names_of_other_programs_are_left_alone() -> None:
    names = TransactionNames.of(SinkHost(attempt=1), "prefix")
    assert names.is_of_former(TransactionNames.of(SinkHost(), "prefix").format_transactional_id(0))
    for other in (
        "prefix",
        "prefix-0",
        "prefix-mine-" + names.format_transactional_id(0).removeprefix("prefix-"),
        names.format_transactional_id(0),
        TransactionNames.of(SinkHost(attempt=2), "prefix").format_transactional_id(0),
        TransactionNames.of(SinkHost(), "prefi").format_transactional_id(0),
        TransactionNames.of(SinkHost(operator="another"), "prefix").format_transactional_id(0),
        TransactionNames.of(SinkHost(job_id="another"), "prefix").format_transactional_id(0),
    ):
        assert not names.is_of_former(other), other


def test_a_job_takes_over_from_those_that_it_continues_and_as_it_begins_from_others() -> None:
    former = TransactionNames.of(SinkHost(job_id="former", attempt=7), "prefix").format_transactional_id(0)
    other_sink = TransactionNames.of(SinkHost(job_id="former", operator="another"), "prefix").format_transactional_id(0)
    for attempt, forerunners, takes_over in ((0, (), True), (1, (), False), (1, ("former",), True)):
        names = TransactionNames.of(SinkHost(attempt=attempt, forerunners=forerunners), "prefix")
        assert names.is_of_former(former) == takes_over
        assert not names.is_of_former(other_sink)


def test_a_number_is_used_again_only_when_no_checkpoint_to_begin_from_names_it() -> None:
    """A checkpoint may complete that still names a transaction that was committed while it was under way."""
    pool = NumberPool()

    def committed(*numbers: int) -> dict[str, TransactionState]:
        return {f"id-{n}": TransactionState("CompleteCommit", n, 0, 1) for n in numbers}

    def prepare() -> int:
        number = pool.take()
        pool.prepared(ProducerKey(f"id-{number}", number, 0), number)
        return number

    pool.at_snapshot({})
    assert prepare() == 0
    pool.at_snapshot({})
    assert prepare() == 1
    pool.at_snapshot(committed(0))  # the third snapshot does not name 0 any more
    assert prepare() == 2
    pool.at_snapshot(committed(0, 1))
    assert prepare() == 3
    pool.at_snapshot(committed(0, 1, 2))  # the third is complete
    assert prepare() == 0
