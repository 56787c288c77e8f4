"""The dispatcher: what is known of the jobs of a process, without asking them too often (A1)."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from threading import Timer
from typing import Any, cast

from tests.runtime.job.master_rig import MasterRig

from penstock.base.configuration import Configuration
from penstock.base.job import JobID, JobStatus
from penstock.drivers.running_job import RunningJob, completed
from penstock.runtime.job.view import JobView
from penstock.server.dispatcher import ENDED_MAX, DispatchedJob, Dispatcher


class Handle:
    """A job that answers when it is told to."""

    def __init__(self) -> None:
        self.rig = MasterRig(workers=1)
        self.job_id = JobID.generate()
        self.asked: list[Future[JobView]] = []
        self.ended: JobView | None = None

    def get_job_id(self) -> JobID:
        return self.job_id

    def get_view(self) -> Future[JobView]:
        self.asked.append(Future())
        return self.asked[-1]

    def last_view(self) -> JobView | None:
        return self.ended

    def get_job_execution_result(self) -> Future[Any]:
        return completed(None) if self.ended is not None else Future()

    def answer(self, status: JobStatus = JobStatus.RUNNING) -> JobView:
        view = replace(self.rig.master.view(), status=status)
        self.asked[-1].set_result(view)
        return view


class Now:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def dispatched(handle: Handle, now: Now) -> DispatchedJob:
    return DispatchedJob(cast("RunningJob", handle), handle.rig.master.job_graph, Configuration(), now)


def test_a_job_is_asked_at_most_twice_a_second() -> None:
    handle, now = Handle(), Now()
    job = dispatched(handle, now)
    handle.get_view = lambda: completed(handle.rig.master.view())  # type: ignore[method-assign]
    first = job.view()
    assert first is not None
    now.seconds = 0.4
    assert job.view() is first
    now.seconds = 0.6
    later = job.view()
    assert later is not None
    assert later is not first


def test_a_job_that_answers_late_shows_what_is_known() -> None:
    handle, now = Handle(), Now()
    job = dispatched(handle, now)
    view = handle.rig.master.view()
    handle.get_view = lambda: completed(view)  # type: ignore[method-assign]
    assert job.view() is view
    handle.get_view = Handle.get_view.__get__(handle)  # type: ignore[method-assign]
    now.seconds = 1.0
    assert job.view() is view
    now.seconds = 2.0
    assert job.view() is view
    assert len(handle.asked) == 1
    newer = handle.answer()
    assert job.view() is newer


def test_who_looks_after_a_while_sees_the_job_as_it_is_now() -> None:
    """A scrape once a minute must not show what was a minute ago."""
    handle, now = Handle(), Now()
    job = dispatched(handle, now)
    handle.get_view = lambda: completed(handle.rig.master.view())  # type: ignore[method-assign]
    first = job.view()
    handle.get_view = Handle.get_view.__get__(handle)  # type: ignore[method-assign]
    now.seconds = 60.0
    answers = Timer(0.02, handle.answer)
    answers.start()
    later = job.view()
    answers.join()
    assert later is not None
    assert later is not first


def test_a_job_that_has_ended_shows_its_end() -> None:
    handle, now = Handle(), Now()
    job = dispatched(handle, now)
    handle.ended = replace(handle.rig.master.view(), status=JobStatus.CANCELED)
    view = job.view()
    assert view is not None
    assert view.status is JobStatus.CANCELED
    assert job.has_ended
    now.seconds = 10.0
    assert job.view() is view


def test_the_oldest_jobs_that_have_ended_are_forgotten() -> None:
    dispatcher, handles = Dispatcher(), [Handle() for _ in range(ENDED_MAX + 3)]
    for handle in handles[1:]:
        handle.ended = handle.rig.master.view()
    for handle in handles:
        dispatcher.add(dispatched(handle, Now()))
    known = [job.job_id for job in dispatcher.jobs()]
    assert known == [str(handle.job_id) for handle in [handles[0], *handles[3:]]]
    assert dispatcher.job(str(handles[1].job_id)) is None
    assert dispatcher.job(known[0]) is not None


def test_jobs_that_ended_long_ago_are_forgotten() -> None:
    now = Now()
    dispatcher, handles = Dispatcher(10, 60.0, now), [Handle(), Handle()]
    for handle in handles:
        dispatcher.add(dispatched(handle, Now()))
    handles[0].ended = handles[0].rig.master.view()
    assert len(dispatcher.jobs()) == 2
    now.seconds = 59.0
    assert len(dispatcher.jobs()) == 2
    now.seconds = 60.0
    assert [job.job_id for job in dispatcher.jobs()] == [str(handles[1].job_id)]
