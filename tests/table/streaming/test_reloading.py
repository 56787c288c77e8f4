"""When a table that is held as a whole is read again, and what answers meanwhile."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from datetime import UTC, datetime, time, timedelta, timezone
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from tests.table.streaming.looked_up import Asking, spec

from penstock.connectors.collection import ColumnsSource
from penstock.sql.data.errors import ValidationError
from penstock.sql.stream.lookups.cache import ReloadingReader
from penstock.sql.stream.lookups.lookup_join import LookupJoinOperator
from penstock.sql.stream.lookups.settings import LookupSettings, Periodic, Reload, Timed, lookup_settings
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.connector import HeldTable, RowsByKey

FULL = "lookup.full-cache."
HOUR = 3_600_000


def settings(**options: str) -> Reload | None:
    given = {f"{FULL}{key.replace('__', '.').replace('_', '-')}": value for key, value in options.items()}
    return lookup_settings({}, {"lookup.cache": "FULL", **given}, {}, "t").reload


# --- options ----------------------------------------------------------------------------------------------------------


def test_options_say_when_a_table_is_read_again() -> None:
    assert settings(periodic_reload__interval="1 h") == Periodic(HOUR)
    assert settings(periodic_reload__interval="1 h", periodic_reload__schedule_mode="FIXED_RATE") == Periodic(
        HOUR, True
    )
    assert settings(reload_strategy="timed", timed_reload__iso_time="10:15") == Timed(time(10, 15))
    found = settings(reload_strategy="TIMED", timed_reload__iso_time="10:15+07:00", timed_reload__interval_in_days="3")
    assert found == Timed(time(10, 15, tzinfo=timezone(timedelta(hours=7))), 3)
    assert lookup_settings({}, {}, {}, "t").reload is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Missing 'lookup.full-cache.periodic-reload.interval' of table t"),
        ({"reload_strategy": "TIMED"}, "Missing 'lookup.full-cache.timed-reload.iso-time' of table t"),
        ({"reload_strategy": "NEVER"}, "reload-strategy"),
        ({"periodic_reload__interval": "0 s"}, "it must be above 0"),
        ({"reload_strategy": "TIMED", "timed_reload__iso_time": "noon"}, "'noon' is no time of day"),
        (
            {"reload_strategy": "TIMED", "timed_reload__iso_time": "10:15", "timed_reload__interval_in_days": "0"},
            "it must be above 0",
        ),
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(**options)


# --- times ------------------------------------------------------------------------------------------------------------


def at(text: str, zone: Any = UTC) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


def test_a_delay_counts_from_the_end_and_a_rate_from_the_beginning() -> None:
    assert Periodic(100).next(due_ms=1_000, ended_ms=1_030, zone=UTC) == 1_130
    assert Periodic(100, True).next(due_ms=1_000, ended_ms=1_030, zone=UTC) == 1_100


def test_a_time_of_day_is_one_of_the_session_unless_it_has_a_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    timed = Timed(time(10, 15))
    assert timed.first(at("2024-05-01T10:00"), UTC) == at("2024-05-01T10:15")
    assert timed.first(at("2024-05-01T10:16"), UTC) == at("2024-05-02T10:15")
    assert timed.first(at("2024-05-01T10:00"), berlin) == at("2024-05-02T10:15", berlin)
    assert Timed(time(10, 15, tzinfo=UTC)).first(at("2024-05-01T10:00"), berlin) == at("2024-05-01T10:15")


def test_days_go_by_the_calendar_when_clocks_change() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    due = at("2024-03-30T10:15", berlin)
    assert Timed(time(10, 15), 2).next(due, due, berlin) == at("2024-04-01T10:15", berlin) == due + 47 * HOUR


# --- reading ----------------------------------------------------------------------------------------------------------


class Threads(Executor):
    """Runs what was submitted when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any]] = []
        self.is_shut = False

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, work))
        return future

    def run(self) -> None:
        for future, work in self.waiting:
            try:
                future.set_result(work())
            except OSError as error:
                future.set_exception(error)
        self.waiting = []

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.is_shut = True


class Numbers(HeldTable):
    """A table of one key whose value tests change."""

    def __init__(self) -> None:
        self.value: int | None = 1
        super().__init__(ColumnsSource(self._batch(1)), self._batch(1).schema, (0,))

    def _batch(self, value: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([7]), pa.array([value])], ["c0", "c1"])

    def read(self) -> RowsByKey:
        if self.value is None:
            raise OSError("the table is away")
        return RowsByKey([self._batch(self.value)], self._schema, (0,))


class Reading:
    """A reader with a clock."""

    def __init__(self, reload: Reload) -> None:
        self.now_ms = 0
        self.table = Numbers()
        self.threads = Threads()
        self.reader = ReloadingReader(self.table, reload, lambda: self.now_ms, UTC, lambda: self.threads)
        self.reader.open()

    def asked(self) -> list[Any]:
        found: list[Any] = self.reader.lookup(pa.RecordBatch.from_arrays([pa.array([7])], ["k"])).rows[1].to_pylist()
        return found


def test_rows_from_before_answer_until_the_new_ones_are_there() -> None:
    reading = Reading(Periodic(100))
    reading.table.value = 2
    reading.now_ms = 99
    assert (reading.asked(), reading.threads.waiting, reading.reader.due_ms()) == ([1], [], 100)
    reading.now_ms = 100
    assert reading.asked() == [1]
    assert len(reading.threads.waiting) == 1
    assert reading.asked() == [1]
    reading.now_ms = 130
    reading.threads.run()
    assert reading.asked() == [2]
    assert reading.reader.due_ms() == 230


def test_a_timer_alone_reads_again_and_again() -> None:
    """Nobody asks, and still the rows are no older than the interval."""
    reading = Reading(Periodic(100, is_fixed_rate=True))
    for value in range(2, 5):
        reading.table.value = value
        reading.now_ms = reading.reader.due_ms()
        reading.reader.go_on()
        reading.threads.run()
        reading.now_ms = reading.reader.due_ms()
        reading.reader.go_on()
    assert reading.asked() == [4]


def test_a_reading_that_fails_is_told_to_who_asks_next() -> None:
    reading = Reading(Periodic(100))
    reading.table.value = None
    reading.now_ms = 100
    assert reading.asked() == [1]
    reading.threads.run()
    with pytest.raises(OSError, match="the table is away"):
        reading.asked()


def test_the_thread_ends_with_the_reader() -> None:
    reading = Reading(Periodic(100))
    reading.now_ms = 100
    reading.asked()
    reading.reader.close()
    assert reading.threads.is_shut


def test_a_thread_of_its_own_reads() -> None:
    now_ms = 0
    table = Numbers()
    reader = ReloadingReader(table, Periodic(100), lambda: now_ms, UTC)
    reader.open()
    table.value, now_ms = 2, 100
    reader.go_on()
    assert reader._reading is not None
    reader._reading.result(timeout=30)
    found = reader.lookup(pa.RecordBatch.from_arrays([pa.array([7])], ["k"])).rows[1].to_pylist()
    reader.close()
    assert found == [2]


def test_an_operator_reads_again_by_its_timer() -> None:
    table = Names()
    settings = LookupSettings(reload=Periodic(100))
    operator = partial(LookupJoinOperator, spec(), lambda: table, settings, StreamSession())
    asking = Asking(operator)
    assert asking.send(("+I", 1, 7)) == [("+I", 1, "one")]
    table.value = "two"
    asking.wait(100)
    reading = asking.harness.operator._reloading._reading  # type: ignore[attr-defined]
    reading.result(timeout=30)
    assert asking.send(("+I", 2, 7)) == [("+I", 2, "two")]
    asking.harness.close()


class Names(HeldTable):
    """A table of one key whose name tests change."""

    def __init__(self) -> None:
        self.value = "one"
        super().__init__(ColumnsSource(self._batch()), self._batch().schema, (0,))

    def _batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([7], pa.int32()), pa.array([self.value])], ["c0", "c1"])

    def read(self) -> RowsByKey:
        return RowsByKey([self._batch()], self._schema, (0,))
