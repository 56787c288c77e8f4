"""Reading what the job wrote, and finding every difference."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.demo.flights import hour_ms
from penstock.cli.demo.program import (
    COLUMNS,
    HOURLY,
    LATE_FOR_DAY,
    LATE_FOR_HOUR,
    WORST,
    Answer,
    by_carrier,
    by_origin,
    differences,
    read_output,
)

TEN = "2013-01-01T10:00:00Z"
TEN_MS = hour_ms(TEN)


def write(output: Path, what: str, name: str, *rows: str) -> None:
    (output / what).mkdir(parents=True, exist_ok=True)
    (output / what / name).write_text("\n".join([",".join(COLUMNS[what]), *rows]) + "\n")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    write(tmp_path, HOURLY, "part-0-0-a.csv", f"EWR,{TEN},3,12", f"JFK,{TEN},1,-4")
    write(tmp_path, WORST, "part-0-0-a.csv", "UA,2013-01-01,9", "UA,2013-01-02,9", "AA,2013-01-01,-3")
    return tmp_path


def test_rows_of_all_visible_files_count(output: Path) -> None:
    write(output, HOURLY, "part-1-0-a.csv", f"LGA,{TEN},2,2")
    write(output, HOURLY, ".part-1-1-a.csv.inprogress", f"LGA,{TEN},2,2")
    answer = read_output(output)
    assert answer.hourly == {("EWR", TEN): (3, 12), ("JFK", TEN): (1, -4), ("LGA", TEN): (2, 2)}
    assert answer.worst == {("UA", "2013-01-01"): 9, ("UA", "2013-01-02"): 9, ("AA", "2013-01-01"): -3}
    assert answer.late == 0


def test_late_flights_are_added_to_their_hour(output: Path) -> None:
    write(output, LATE_FOR_HOUR, "part-0-0-a.csv", f"EWR,UA,{TEN_MS},20,400", f"LGA,UA,{TEN_MS},0,500")
    answer = read_output(output)
    assert answer.hourly["EWR", TEN] == (4, 412)
    assert answer.hourly["LGA", TEN] == (1, 500)
    assert answer.late == 2


def test_a_late_flight_raises_the_worst_delay_of_its_day_and_those_after(output: Path) -> None:
    write(output, LATE_FOR_DAY, "part-0-0-a.csv", f"EWR,UA,{TEN_MS},20,400", f"EWR,HA,{TEN_MS},20,1")
    answer = read_output(output)
    assert answer.worst["UA", "2013-01-01"] == answer.worst["UA", "2013-01-02"] == 400
    assert answer.worst["AA", "2013-01-01"] == -3
    assert answer.worst["HA", "2013-01-01"] == 1


def test_equal_answers_have_no_differences(output: Path) -> None:
    answer = read_output(output)
    assert differences(answer, replace(answer, late=7)) == []


def test_each_difference_has_a_line(output: Path) -> None:
    ours = read_output(output)
    hourly = dict(ours.hourly)
    hourly["EWR", TEN] = (3, 13)
    del hourly["JFK", TEN]
    found = differences(ours, Answer(hourly, {**ours.worst, ("ZZ", "2013-01-01"): 0}))
    assert found == [
        f"departures and minutes of delay of EWR {TEN}: Penstock (3, 12), check (3, 13)",
        f"departures and minutes of delay of JFK {TEN}: Penstock (1, -4), check nothing",
        "worst delay of ZZ 2013-01-01: Penstock nothing, check 0",
    ]


def test_a_row_written_twice_is_a_difference(output: Path) -> None:
    right = read_output(output)
    write(output, HOURLY, "part-0-1-b.csv", f"EWR,{TEN},3,12")
    write(output, WORST, "part-0-1-b.csv", "UA,2013-01-01,9")
    found = differences(read_output(output), right)
    assert found == [
        "worst delay of UA 2013-01-01: Penstock wrote it twice",
        f"departures and minutes of delay of EWR {TEN}: Penstock (6, 24), check (3, 12)",
    ]


def test_totals(output: Path) -> None:
    answer = read_output(output)
    assert by_origin(answer) == {"EWR": (3, 12), "JFK": (1, -4)}
    assert by_carrier(answer) == {"AA": -3, "UA": 9}
