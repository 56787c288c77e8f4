"""What follows a failure: which are tried again, and how often."""

from __future__ import annotations

import errno

import pytest
from tests.runtime.job.master_rig import MasterRig, running

from penstock.base.errors import CheckpointError, ConfigurationError, UserFunctionError
from penstock.runtime.failure import is_final, is_final_at_first, is_outside
from penstock.runtime.job.failover import IdenticalFailures, likeness
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.protocol import DeclineCheckpoint, Failure
from penstock.runtime.task.failures import describe_failure
from penstock.runtime.task.operator_chain import ProgramError, load_program
from penstock.wire.buffers import RecordTooLargeError

OPTION = "penstock.restart.identical-failures-max"
FOR_EVER = {"restart-strategy.fixed-delay.attempts": "1000000"}


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def of_map(text: str = "no", **more: object) -> Failure:
    made = {"reason": f"ValueError: {text}", "operator_name": "map", "traceback": f"ValueError: {text}"}
    return Failure(**(made | {"user_code": True} | more))  # type: ignore[arg-type]


# --- what heals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "final", "at_first", "outside"),
    [
        (ValueError("1"), False, False, False),
        (ConfigurationError("no such option"), True, False, False),
        (RecordTooLargeError("2 GiB"), True, False, False),
        (ProgramError("no module"), True, False, False),
        (PermissionError(errno.EACCES, "denied"), False, True, False),
        (NotADirectoryError(errno.ENOTDIR, "a file"), False, True, False),
        (OSError(errno.EROFS, "read-only"), False, True, False),
        (ModuleNotFoundError("no module"), False, True, False),
        (FileNotFoundError(errno.ENOENT, "gone"), False, False, False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), False, False, True),
        (TimeoutError("late"), False, False, True),
        (OSError(errno.ENOSPC, "full"), False, False, True),
        (caused(CheckpointError("not written"), PermissionError(errno.EACCES, "denied")), False, True, False),
        (caused(UserCodeError("map", 1), ConnectionResetError("gone")), False, False, True),
    ],
)
def test_which_errors_heal(error: Exception, final: bool, at_first: bool, outside: bool) -> None:
    """G8: an error, or what caused it, tells whether another attempt would meet it again; a failure carries that."""
    assert (is_final(error), is_final_at_first(error), is_outside(error)) == (final, at_first, outside)
    failure = describe_failure(error, "map")
    assert (failure.suppresses_restart, failure.is_final_at_first, failure.is_outside) == (final, at_first, outside)


def test_a_program_that_cannot_be_loaded_says_so() -> None:
    """G8: the error names the task, the module that is missing and what to do."""
    with pytest.raises(ProgramError, match=r"map -> sink cannot be loaded .*named 'no_such'.*python.files"):
        load_program(b"cno_such\nthing\n.", "map -> sink")


# --- which are alike ------------------------------------------------------------------------------------------------


def test_neither_record_nor_addresses_nor_ids_make_a_difference() -> None:
    """G8: the same error of the same operator is the same failure, with another record or in another worker."""
    assert likeness(of_map(record="1"), "task") == likeness(of_map(record="2"), "task")
    assert likeness(of_map("<X at 0x7f10>"), None) == likeness(of_map("<X at 0x7f25>"), None)
    lost = "worker worker-{}-{} (process {} on host) was lost: its Python process died"
    one, other = (Failure(lost.format(*ids)) for ids in ((1, "0123abcd", 77), (12, "ff00ff00", 8)))
    assert likeness(one, None) == likeness(other, None)
    blocked = [Failure(f"worker {w} on host-{w} was lost", blocked_at=at) for w, at in ((1, "f"), (2, "f"), (2, "g"))]
    assert likeness(blocked[0], None) == likeness(blocked[1], None) != likeness(blocked[2], None)


def test_operator_type_and_words_make_a_difference() -> None:
    """G8: other data in the message, another error, another operator: another failure."""
    failures = [of_map("1"), of_map("2"), of_map("1", operator_name="filter"), of_map("1", reason="KeyError: 1")]
    assert len({likeness(failure, None) for failure in failures}) == 4


def test_the_count_begins_anew_with_progress() -> None:
    """G8: a checkpoint, or an attempt that ran well for long, is progress; another failure between is not."""
    alike = IdenticalFailures(3, reset_ms=1000)
    assert [alike.on_failure("a", 0, 0), alike.on_failure("b", 0, 1), alike.on_failure("a", 0, 2)] == [False] * 3
    assert alike.on_failure("a", 0, 3)
    assert not alike.on_failure("a", 1, 4), "a checkpoint has completed"
    assert not alike.on_failure("a", 1, 5)
    alike.on_running(6)
    assert not alike.on_failure("a", 1, 1006), "it ran for 1000 ms"
    alike.on_running(1007)
    assert not alike.on_failure("a", 1, 1008)
    assert alike.on_failure("a", 1, 1009)


def test_no_limit() -> None:
    """G8: with 0 nothing is ever too often."""
    alike = IdenticalFailures(0, reset_ms=1000)
    assert not any(alike.on_failure("a", 0, now) for now in range(1000))


# --- a job ----------------------------------------------------------------------------------------------------------


def fail_and_restart(rig: MasterRig, failure: Failure) -> None:
    """One attempt fails; the next one runs, if there is one."""
    rig.say("FAILED", rig.executions[0], failure=failure)
    rig.end_cancelled()
    if rig.status == "RESTARTING":
        rig.advance(100)
        rig.run_all()


def test_the_same_failure_again_and_again_ends_the_job() -> None:
    """G8: with so many failures that are alike a job fails, whatever its restart strategy, and says why."""
    rig = running(conf={**FOR_EVER, OPTION: "4"})
    for attempt in range(3):
        fail_and_restart(rig, of_map(record=str(attempt)))
        assert rig.status == "RUNNING"
    fail_and_restart(rig, of_map())
    assert rig.status == "FAILED"
    said = f"not restarted: the same failure occurred 4 times with no checkpoint in between ({OPTION})"
    assert rig.logs[-1] == said
    assert isinstance(rig.master.failure, UserFunctionError)
    assert rig.master.failure.__notes__ == [said]


def test_ten_of_them_by_default() -> None:
    """G8: the option's default is 10."""
    rig = running(conf=FOR_EVER)
    for _ in range(9):
        fail_and_restart(rig, of_map())
    assert rig.status == "RUNNING"
    fail_and_restart(rig, of_map())
    assert rig.status == "FAILED"


def test_a_completed_checkpoint_between_begins_the_count_anew() -> None:
    """G8: a job that gets on is restarted as often as its strategy says."""
    rig = running(conf={**FOR_EVER, OPTION: "2"})
    for _ in range(5):
        fail_and_restart(rig, of_map())
        assert rig.status == "RUNNING"
        rig.advance(1000)
        rig.acknowledge(rig.triggered()[-1])


@pytest.mark.parametrize("option", ["10", "0"])
def test_what_lies_outside_is_tried_again_for_as_long_as_the_strategy_says(option: str) -> None:
    """G8: a server that refuses connections may be back at any time."""
    rig = running(conf={**FOR_EVER, OPTION: option})
    for _ in range(30):
        fail_and_restart(rig, of_map(is_outside=True))
        assert rig.status == "RUNNING"


def test_checkpoints_that_take_too_long_are_tried_again() -> None:
    """G8: a time-out may pass, so a job that is slow for a while is not given up for it."""
    rig = running(conf={**FOR_EVER, OPTION: "2", "execution.checkpointing.timeout": "500 ms"})
    for _ in range(5):
        rig.advance(1500)
        assert rig.status == "FAILING"
        rig.end_cancelled()
        rig.advance(100)
        rig.run_all()
        assert rig.status == "RUNNING"


def test_what_is_final_at_first_ends_a_job_that_has_never_worked() -> None:
    """G8: a directory that may not be written will not be writable at the next attempt."""
    rig = running(conf=FOR_EVER)
    fail_and_restart(rig, Failure("PermissionError: out", is_final_at_first=True))
    assert rig.status == "FAILED"
    assert rig.logs[-1] == "not restarted: every attempt would fail with the same error"


def test_what_is_final_at_first_is_tried_again_once_the_job_has_worked() -> None:
    """G8: a job that has had a checkpoint waits for somebody to mend its directory."""
    rig = running(conf=FOR_EVER)
    rig.advance(1000)
    rig.acknowledge(1)
    fail_and_restart(rig, Failure("PermissionError: out", is_final_at_first=True))
    assert rig.status == "RUNNING"


def test_a_checkpoint_directory_that_cannot_be_written_ends_a_job_at_its_first_checkpoint() -> None:
    """G8: whether a task finds that out."""
    rig = running(conf=FOR_EVER)
    rig.advance(1000)
    rig.master.on_message(DeclineCheckpoint(rig.executions[2], 1, "NotADirectoryError: chk", True, True))
    rig.end_cancelled()
    assert rig.status == "FAILED"
    assert "NotADirectoryError: chk" in str(rig.master.failure)


def test_metadata_that_cannot_be_written_ends_a_job_at_its_first_checkpoint() -> None:
    """G8: or the job master."""
    rig = running(conf=FOR_EVER)

    def complete(*_: object) -> str:
        raise NotADirectoryError(errno.ENOTDIR, "a file", "checkpoints")

    rig.store.complete = complete
    rig.advance(1000)
    rig.acknowledge(1)
    rig.end_cancelled()
    assert rig.status == "FAILED"
    assert "its metadata could not be written: NotADirectoryError" in str(rig.master.failure)
