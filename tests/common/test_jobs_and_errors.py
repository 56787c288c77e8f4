"""Job words, watermark strategies, errors and futures."""

import datetime
import operator
import pickle

import pytest

from penstock.base.errors import (
    RECORD_TEXT_CHARS_MAX,
    JobExecutionError,
    PenstockError,
    SlotsUnavailableError,
    UserFunctionError,
)
from penstock.base.watermark_strategy import NO_TIMESTAMP, WatermarkAlignment
from penstock.common import (
    CompletableFuture,
    Duration,
    JobExecutionResult,
    JobID,
    JobStatus,
    Time,
    TimestampAssigner,
    WatermarkStrategy,
)


def test_a_job_id_is_32_hexadecimal_digits():
    job_id = JobID.generate()
    assert JobID(str(job_id)) == job_id
    assert JobID.generate() != job_id
    with pytest.raises(ValueError, match="32"):
        JobID("42")


def test_which_states_are_final():
    """E5: failed, canceled and finished are final everywhere, suspended only locally."""
    final = {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}
    assert {s for s in JobStatus if s.is_globally_terminal_state()} == final
    assert {s for s in JobStatus if s.is_terminal_state()} == final | {JobStatus.SUSPENDED}
    under_way = ("CREATED", "RUNNING", "RESTARTING", "RECONCILING", "FAILING", "CANCELLING")
    assert not any(JobStatus[name].is_terminal_state() for name in under_way)


def test_a_result_tells_runtime_and_accumulators():
    result = JobExecutionResult(JobID.generate(), 1_500, {"lines": 3})
    assert result.get_net_runtime() == 1_500
    assert result.get_accumulator_result(accumulator_name="lines") == 3
    assert result.get_accumulator_result("other") is None
    assert result.get_all_accumulator_results() == {"lines": 3}


def test_only_the_first_completion_of_a_future_counts():
    future: CompletableFuture[int] = CompletableFuture()
    assert future.complete(1)
    assert not future.complete(2)
    assert not future.complete_exceptionally(ValueError())
    assert future.done()
    assert not future.cancelled()
    assert (future.result(), future.exception()) == (1, None)
    failed: CompletableFuture[int] = CompletableFuture()
    assert failed.complete_exceptionally(ValueError("no"))
    assert str(failed.exception()) == "no"
    cancelled: CompletableFuture[int] = CompletableFuture()
    assert cancelled.cancel()
    assert cancelled.cancelled()
    assert not cancelled.complete(1)


def test_watermark_strategies_are_descriptions():
    assert WatermarkStrategy.no_watermarks().kind == "none"
    assert WatermarkStrategy.for_monotonous_timestamps() == WatermarkStrategy.for_bounded_out_of_orderness(0)
    strategy = (
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        .with_idleness(datetime.timedelta(minutes=1))
        .with_watermark_alignment(
            watermark_group="g", max_allowed_watermark_drift=Time.seconds(20), update_interval=Duration.of_seconds(1)
        )
    )
    assert (strategy.kind, strategy.out_of_orderness_ms, strategy.idleness_ms) == ("bounded", 5_000, 60_000)
    assert strategy.alignment == WatermarkAlignment("g", 20_000, 1_000)
    assert strategy.timestamp_assigner is None
    with pytest.raises(ValueError, match="idle timeout"):
        strategy.with_idleness(0)
    with pytest.raises(ValueError, match="out-of-orderness"):
        WatermarkStrategy.for_bounded_out_of_orderness(-1)
    assert pickle.loads(pickle.dumps(strategy)) == strategy
    assert WatermarkStrategy.for_generator(list).kind == "custom"  # type: ignore[arg-type]


class Assigner(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] if record_timestamp == NO_TIMESTAMP else record_timestamp


@pytest.mark.parametrize(
    ("assigner", "without", "having"),
    [
        (Assigner(), 7, 9),
        (lambda value: value[1], 7, 7),
        (lambda value, timestamp: timestamp, NO_TIMESTAMP, 9),
        (lambda value, position=1: value[position], 7, 7),
        (operator.itemgetter(1), 7, 7),
    ],
)
def test_every_form_of_timestamp_assigner_is_called_alike(assigner, without, having):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)
    assert strategy.timestamp_assigner is not None
    assert strategy.timestamp_assigner(("a", 7), None) == without
    assert strategy.timestamp_assigner(("a", 7), 9) == having


@pytest.mark.parametrize("assigner", [7, lambda a, b, c: 1])
def test_what_is_no_timestamp_assigner_is_refused(assigner):
    with pytest.raises(TypeError, match="timestamp assigner"):
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(assigner)


def test_a_user_error_shows_operator_subtask_record_and_traceback():
    error = UserFunctionError("job", "map", 2, 4, repr("x" * 1_000), "Traceback ...\nValueError: no\n")
    lines = str(error).splitlines()
    assert lines[0] == "operator 'map', subtask 3/4"
    assert lines[1].startswith("record: 'xxx")
    assert lines[2:] == ["Traceback ...", "ValueError: no"]
    assert len(error.record_text) == RECORD_TEXT_CHARS_MAX
    assert error.cause_text == "ValueError: no"


@pytest.mark.parametrize(
    "error",
    [
        JobExecutionError("job", "no"),
        UserFunctionError("job", "map", 0, 1, "1", "ValueError: no"),
        SlotsUnavailableError("job", 8, 3),
    ],
)
def test_errors_travel_between_processes(error):
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)
    assert isinstance(error, PenstockError)


def test_missing_slots_are_named_by_number():
    assert str(SlotsUnavailableError("job", 8, 3)) == "job 'job' failed: wanted 8 slots, got 3"
