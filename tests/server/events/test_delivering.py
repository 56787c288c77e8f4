"""Events reach those who listen: all of them, off the job's thread, and whatever a listener does (A1)."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment

from penstock.base.errors import ConfigurationError
from penstock.common import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.server.events import EventListener, JobEvent, JobStatusChangeEvent

HERE = __name__
HEARD: list[JobEvent] = []
THREADS: set[str] = set()
CLOSED: list[str] = []


class Remembers(EventListener):
    def on_event(self, event: JobEvent) -> None:
        HEARD.append(event)
        THREADS.add(threading.current_thread().name)

    def close(self) -> None:
        CLOSED.append("Remembers")


class Raises(EventListener):
    def on_event(self, event: JobEvent) -> None:
        raise ZeroDivisionError("of a listener")


class CannotBeMade(EventListener):
    def __init__(self) -> None:
        raise OSError("no socket")

    def on_event(self, event: JobEvent) -> None:
        raise AssertionError


class IsNone:
    pass


@pytest.fixture(autouse=True)
def _forget() -> None:
    HEARD.clear()
    THREADS.clear()
    CLOSED.clear()


def environment(*listeners: str, **options: Any) -> StreamExecutionEnvironment:
    names = ", ".join(f"{HERE}:{name}" for name in listeners)
    env = local_environment(penstock__event_listeners=names, **options)
    env.from_collection([1, 2, 3]).print()
    return env


def statuses() -> list[str]:
    return [event.new_status for event in HEARD if isinstance(event, JobStatusChangeEvent)]


def test_a_listener_has_heard_everything_when_the_program_goes_on() -> None:
    """Also of a job that is over at once."""
    environment("Remembers").execute("quick")
    assert statuses() == ["CREATED", "RUNNING", "FINISHED"]
    assert {event.job_name for event in HEARD} == {"quick"}
    assert {"penstock-events-quick"} == THREADS
    assert CLOSED == ["Remembers"]


def test_a_listener_that_raises_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.events"):
        environment("Raises", "Remembers").execute("raising")
    assert statuses() == ["CREATED", "RUNNING", "FINISHED"]
    assert "event listener Raises raised ZeroDivisionError('of a listener')" in caplog.text


def test_a_listener_that_cannot_be_made_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    environment("CannotBeMade", "Remembers").execute("without")
    assert "an event listener cannot be made: OSError: no socket" in caplog.text
    assert statuses()[-1] == "FINISHED"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("IsNone", "is no EventListener"), ("Missing", "cannot be imported: AttributeError"), ("", "is no EventListener")],
)
def test_what_is_no_listener_is_refused_before_the_job_begins(name: str, problem: str) -> None:
    names = f"{HERE}:{name}" if name else "builtins:int"
    env = local_environment(penstock__event_listeners=names)
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=f"penstock.event-listeners: .*{problem}"):
        env.execute("never")


def test_the_events_file_has_a_json_object_a_line(tmp_path: Path) -> None:
    """It is appended to, and shows no secret of the options."""
    file = tmp_path / "logs" / "events.json"
    for _ in range(2):
        env = local_environment(penstock__events__file=file, s3__secret_key="division")
        env.set_restart_strategy(RestartStrategies.no_restart())
        env.from_collection([0]).map(lambda number: 1 // number).print()
        with pytest.raises(Exception, match=r"ZeroDivisionError: integer \*{6} or modulo"):
            env.execute("failing")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({line["job_id"] for line in lines}) == 2
    changes = [line["new_status"] for line in lines if line["event"] == "JobStatusChange"]
    assert changes == ["CREATED", "RUNNING", "FAILING", "FAILED"] * 2
    (failure, _) = [line for line in lines if line["event"] == "JobFailure"]
    assert "ZeroDivisionError" in failure["text"]
    assert "division" not in file.read_text()
    assert "******" in failure["text"]
