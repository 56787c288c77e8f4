"""The embedded scheduler, which refreshes materialized tables by cron expressions of Quartz, as Flink's does.

It lives as long as the process. A thread waits for the next workflow and hands it to a thread of its own, so a long
refresh delays no other table; a workflow that still runs when it is due again skips that turn.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.base.errors import WrongValueError
from penstock.sql.data.errors import ValidationError

_log = logging.getLogger("penstock.materialized-tables")

GROUP: Final = "default_group"
#: The beginning of the names of workflows, before the name of the table.
PREFIX: Final = "quartz_job_"
#: The ranges of the fields of a cron expression: seconds, minutes, hours, days, months, days of the week and years.
_RANGES: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (1, 7), (1970, 2199))
_NO_DAY_MAX: Final = 366 * 8


class Cron:
    """A cron expression of Quartz, with numbers, `*`, `?`, lists, ranges and steps."""

    def __init__(self, text: str) -> None:
        fields = text.split()
        if len(fields) == len(_RANGES) - 1:
            fields.append("*")
        if len(fields) != len(_RANGES):
            raise ValidationError(f"CronExpression '{text}' is invalid.")
        try:
            parsed = [_values(entry, *limits) for entry, limits in zip(fields, _RANGES, strict=True)]
        except ValueError as error:
            raise ValidationError(f"CronExpression '{text}' is invalid.") from error
        self.text = text
        self._seconds, self._minutes, self._hours, self._days, self._months, self._weekdays, self._years = parsed

    def next_time(self, after: datetime.datetime) -> datetime.datetime:
        """Return the first time after another one. Raises `ValidationError` if there is none within eight years."""
        time = after.replace(microsecond=0) + datetime.timedelta(seconds=1)
        for _ in range(_NO_DAY_MAX):
            if self._has_day(time):
                for hour in sorted(hour for hour in self._hours if hour >= time.hour):
                    same_hour = hour == time.hour
                    for minute in sorted(self._minutes):
                        if same_hour and minute < time.minute:
                            continue
                        first = time.second if same_hour and minute == time.minute else 0
                        seconds = [second for second in self._seconds if second >= first]
                        if seconds:
                            return time.replace(hour=hour, minute=minute, second=min(seconds))
            time = (time + datetime.timedelta(days=1)).replace(hour=0, minute=0, second=0)
        raise ValidationError(f"CronExpression '{self.text}' names no time in the next years")

    def _has_day(self, time: datetime.datetime) -> bool:
        weekday = time.isoweekday() % 7 + 1  # Quartz counts from Sunday
        return (
            time.day in self._days
            and time.month in self._months
            and weekday in self._weekdays
            and time.year in self._years
        )


def _values(text: str, lowest: int, highest: int) -> frozenset[int]:
    """Return the numbers of a field. Raises `ValueError` for other text."""
    values: set[int] = set()
    for part in text.split(","):
        base, slash, step = part.partition("/")
        first, dash, last = base.partition("-")
        if base in ("*", "?"):
            begin, end = lowest, highest
        else:
            begin = int(first)
            end = int(last) if dash else highest if slash else begin
        if not lowest <= begin <= end <= highest or (slash and int(step) < 1):
            raise WrongValueError(text)
        values.update(range(begin, end + 1, int(step) if slash else 1))
    return frozenset(values)


def system_now() -> datetime.datetime:
    """Return the time of this machine, with its zone."""
    return datetime.datetime.now().astimezone()


#: refreshes a table; gets the scheduled time
Refresh = Callable[[datetime.datetime], None]


@dataclass
class Workflow:
    """A refresh that the scheduler repeats."""

    name: str
    cron: Cron
    refresh: Refresh
    zone: datetime.tzinfo | None
    due: datetime.datetime
    is_suspended: bool = False
    is_running: bool = False
    ended: threading.Condition = field(default_factory=threading.Condition)


class EmbeddedScheduler:
    """See the module docstring. `now`: the clock."""

    def __init__(self, now: Callable[[], datetime.datetime] = system_now) -> None:
        self._now = now
        self._workflows: dict[str, Workflow] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def create(
        self, name: str, cron: Cron, refresh: Refresh, zone: datetime.tzinfo | None = None, is_due: bool = False
    ) -> None:
        """Add a workflow. `zone`: where its times are; `is_due`: whether it also runs at once.

        Raises:
            ValidationError: if there is one of its name.
        """
        with self._changed:
            if name in self._workflows:
                raise ValidationError(
                    f"Materialized table {name.removeprefix(PREFIX)} quartz schedule job already exist, job info: "
                    f"{GROUP}.{name}."
                )
            due = self._now() if is_due else self._next(cron, zone)
            self._workflows[name] = Workflow(name, cron, refresh, zone, due)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="penstock-refresh-scheduler", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _next(self, cron: Cron, zone: datetime.tzinfo | None) -> datetime.datetime:
        return cron.next_time(self._now().astimezone(zone))

    def names(self) -> list[str]:
        """Return the names of the workflows."""
        with self._changed:
            return sorted(self._workflows)

    def suspend(self, name: str) -> None:
        """Let a workflow run no more. Raises `ValidationError` if there is none of this name."""
        with self._changed:
            self._find(name, "suspend").is_suspended = True

    def resume(self, name: str) -> None:
        """Let a workflow run again. Raises `ValidationError` if there is none of this name."""
        with self._changed:
            workflow = self._find(name, "resume")
            if workflow.is_suspended:
                workflow.is_suspended = False
                workflow.due = self._next(workflow.cron, workflow.zone)
            self._changed.notify_all()

    def _find(self, name: str, verb: str) -> Workflow:
        if name not in self._workflows:
            raise ValidationError(f"Failed to {verb} a non-existent quartz schedule job: {GROUP}.{name}.")
        return self._workflows[name]

    def delete(self, name: str) -> None:
        """Remove a workflow, if there is one, after the refresh that runs."""
        with self._changed:
            workflow = self._workflows.pop(name, None)
        if workflow is not None:
            with workflow.ended:
                workflow.ended.wait_for(lambda: not workflow.is_running)

    def _work(self) -> None:
        while True:
            with self._changed:
                now = self._now()
                for workflow in self._workflows.values():
                    if not workflow.is_suspended and workflow.due <= now:
                        self._start(workflow)
                waiting = [workflow.due for workflow in self._workflows.values() if not workflow.is_suspended]
                seconds = max(0.0, (min(waiting) - self._now()).total_seconds()) if waiting else None
                self._changed.wait(seconds)

    def _start(self, workflow: Workflow) -> None:
        time, workflow.due = workflow.due, self._next(workflow.cron, workflow.zone)
        if workflow.is_running:
            _log.warning("%s still runs, and skips its turn of %s", workflow.name, time)
            return
        workflow.is_running = True
        threading.Thread(target=_refresh, args=(workflow, time), name="penstock-refresh", daemon=True).start()


def _refresh(workflow: Workflow, time: datetime.datetime) -> None:
    try:
        workflow.refresh(time.astimezone(workflow.zone))
    except Exception:  # noqa: BLE001 - the next turn tries again, and the log tells
        _log.exception("%s of %s has failed: the table stays as it was until the next turn", workflow.name, time)
    finally:
        with workflow.ended:
            workflow.is_running = False
            workflow.ended.notify_all()


#: the scheduler of this process
SCHEDULER: Final = EmbeddedScheduler()
