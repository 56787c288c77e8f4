"""What every driver's job does for those who wait for it."""

from __future__ import annotations

import pytest
from tests.datastream.environments import local_environment

from penstock.base.errors import JobExecutionError


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_what_must_be_done_before_the_result(fails: bool, mode: str) -> None:
    """E7: it is done by the time that anyone hears of the end, because the program may end then."""

    def maybe_fail(number: int) -> int:
        if fails:
            raise ValueError(number)
        return number

    env = local_environment(execution__runtime_mode=mode, restart_strategy__type="none")
    env.from_collection([1, 2]).map(maybe_fail).print()
    job = env.execute_async()
    seen: list[tuple[bool, bool]] = []
    job.before_result(lambda failure: seen.append((failure is None, job.get_job_execution_result().done())))
    if fails:
        with pytest.raises(JobExecutionError):
            job.wait()
    else:
        job.wait()
    assert seen == [(not fails, False)]
