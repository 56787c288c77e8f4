"""The tester of random queries itself: what it draws is replayed, and what it looks for is found."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.table.differential.chance import Chance
from tests.table.differential.dialects import both, in_duckdb, in_flink
from tests.table.differential.invariants import Expected, faults_of
from tests.table.differential.kinds import DOUBLE, INT, MAP, comparable, identity
from tests.table.differential.kinds import SECOND_NS as SECOND
from tests.table.differential.lateness import sessions_of
from tests.table.differential.memory import Change
from tests.table.differential.operators import FEW, MANY, THRESHOLDS, operators_of
from tests.table.differential.oracle import answer
from tests.table.differential.outputs import Result
from tests.table.differential.plans import PlanFacts
from tests.table.differential.relations import Column
from tests.table.differential.settings import (
    NO_BATCHES,
    REFERENCE,
    VALUES,
    PairCounts,
    Setting,
    draw_setting,
    is_impossible,
    restricted,
)
from tests.table.differential.shrink import Case, shrunk
from tests.table.differential.tables import Table, TableChange, without_groups
from tests.table.differential.tester import Failure
from tests.table.differential.worlds import World, draw_world

NAN = math.nan
TYPES = (INT.type, DOUBLE.type)
ONE_ROW = World({}, "SELECT 1 AS c0", (Column("c0", INT),))


# --- what is drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(20))
def test_a_seed_and_its_choices_make_the_same_world(number: int) -> None:
    chance = Chance(f"7/{number}")
    world = draw_world(chance)
    assert draw_world(Chance(f"7/{number}")) == world
    replayed = draw_world(Chance(None, chance.record))
    assert (replayed.query, repr(replayed.tables)) == (world.query, repr(world.tables))


def test_other_choices_of_one_branch_leave_its_siblings_as_they_are() -> None:
    chance = Chance("7/3")
    before = [chance.branch("one").below(100), chance.branch("other").below(100)]
    changed = Chance("7/3", {"/one": [before[0] + 1]})
    assert [changed.branch("one").below(1000), changed.branch("other").below(100)] == [before[0] + 1, before[1]]


def test_a_replay_takes_the_simplest_choice_where_its_record_ends() -> None:
    chance = Chance(None, {"": [5]})
    assert [chance.below(10), chance.number(3, 9), chance.pick("abc"), chance.flag()] == [5, 3, "a", False]


def test_each_dialect_sees_its_own_form_of_a_text() -> None:
    text = f"SELECT {both('A(' + both('x', 'y') + ')', 'B(' + both('x', 'y') + ')')} FROM t"
    assert in_flink(text) == "SELECT A(x) FROM t"
    assert in_duckdb(text) == "SELECT B(y) FROM t"


# --- settings ---------------------------------------------------------------------------------------------------------


def test_each_pair_of_values_can_be_drawn() -> None:
    counts = PairCounts()
    chance = Chance("pairs")
    for number in range(12_000):
        counts.add(draw_setting(chance.branch(str(number)), ONE_ROW, NO_BATCHES))
    missing = {pair for pair, count in counts.table().items() if not count}
    # Early results need a query with them, and batches need Spark.
    assert {pair for pair in missing if "results=early" not in pair and "mode=BATCH" not in pair} == set()
    assert {name for pair in counts.table() for name in pair} == {
        f"{name}={value}" for name, values in VALUES.items() for value in values
    }


def test_settings_that_exclude_each_other_are_not_drawn() -> None:
    assert restricted(Setting(disturbance="failure"), ONE_ROW).checkpoints == "aligned"
    assert restricted(Setting(disturbance="savepoint"), ONE_ROW).output == "INSERT of changes"
    assert restricted(Setting("MICRO_BATCH", checkpoints="unaligned"), ONE_ROW).checkpoints == "none"
    late = replace(ONE_ROW, tables={"l": Table("l", (), delay_ms=1000, has_late_rows=True)})
    assert restricted(Setting(parallelism=3), late).parallelism == 1
    assert is_impossible(("disturbance=savepoint", "output=collect"))


@pytest.mark.parametrize("operators", [FEW, MANY])
def test_thresholds_exist_and_are_restored(operators: str) -> None:
    """A threshold that was renamed has to be renamed in `operators`, too."""
    before = {threshold: threshold.value() for threshold in THRESHOLDS}
    with operators_of(operators):
        assert all(threshold.value() != value for threshold, value in before.items())
    assert {threshold: threshold.value() for threshold in THRESHOLDS} == before


# --- oracles ----------------------------------------------------------------------------------------------------------


def late_table(*seconds: float, delay_ms: int = 2000) -> Table:
    changes = tuple(TableChange("+I", (1, int(second * SECOND)), 0, number) for number, second in enumerate(seconds))
    rows = tuple(change.values for change in changes)
    return Table("l", (), changes, rows, delay_ms, has_late_rows=True, groups=tuple(range(len(rows))))


def test_a_late_row_is_dropped_unless_it_meets_an_open_session() -> None:
    """The watermark is 8 s after the row of 10 s. The session of 7 s is open until 9 s, that of 1 s is over."""
    rows = late_table(1, 7, 10, 1.5, 6)
    found = {number: (start / SECOND, end / SECOND) for number, start, end in sessions_of(rows, 2000, [0])}
    assert found == {0: (1, 3), 1: (6, 9), 4: (6, 9), 2: (10, 12)}
    in_batch = {number: (start / SECOND, end / SECOND) for number, start, end in sessions_of(rows, 2000, [0], False)}
    assert in_batch == {0: (1, 3.5), 3: (1, 3.5), 1: (6, 9), 4: (6, 9), 2: (10, 12)}


def test_sessions_that_touch_are_one() -> None:
    assert {end - start for _, start, end in sessions_of(late_table(1, 3, 5), 2000, [0])} == {6 * SECOND}


def test_equal_values_are_equal_and_retractions_are_exact() -> None:
    same, exact = comparable(DOUBLE.type), identity(DOUBLE.type)
    assert (same(NAN), same(0.0), exact(NAN)) == (same(-NAN), same(-0.0), exact(NAN))
    assert exact(0.0) != exact(-0.0)
    assert comparable(MAP.type)([("a", 1), ("b", None)]) == comparable(MAP.type)([("b", None), ("a", 1)])


def test_duckdb_has_the_rows_that_are_left() -> None:
    table = Table(
        "t",
        (Column("k", INT), Column("d", DOUBLE)),
        (TableChange("+I", (1, NAN), 0, 1), TableChange("+I", (2, 1.5), 0, 2), TableChange("-D", (1, NAN), 0, 1)),
        ((2, 1.5),),
        groups=(2,),
    )
    world = World({"t": table}, "SELECT k, d FROM t", table.columns)
    assert answer(world) == [(2, 1.5)]
    assert without_groups(table, {1}).changes == (TableChange("+I", (2, 1.5), 0, 2),)


# --- invariants -------------------------------------------------------------------------------------------------------


def faults(changes: list[Change], rows: list[tuple[object, ...]], facts: PlanFacts | None = None) -> str:
    result = Result(["k", "d"], list(TYPES), "collect", changes)
    return "; ".join(faults_of(result, Expected(TYPES, rows), facts))


def test_a_right_changelog_has_no_faults() -> None:
    changes: list[Change] = [("+I", (1, NAN)), ("-U", (1, NAN)), ("+U", (1, -0.0)), ("+I", (2, None))]
    assert faults(changes, [(1, 0.0), (2, None)], PlanFacts(False, ((0,),))) == ""


@pytest.mark.parametrize(
    ("changes", "rows", "facts", "fault"),
    [
        ([("+I", (1, 1.5))], [], None, "missing nothing; unexpected (1, 1.5)"),
        ([], [(1, 1.5), (1, 1.5)], None, "missing (1, 1.5) 2 times"),
        ([("+I", (1, -0.0)), ("-D", (1, 0.0))], [], None, "-D(1, 0.0), retracts a row that is not there"),
        ([("-D", (1, 1.5)), ("+I", (1, 1.5))], [], None, "change 0, -D(1, 1.5), retracts"),
        ([("+I", (1, 1.5)), ("+I", (1, 2.5))], [(1, 1.5), (1, 2.5)], PlanFacts(True, ((0,),)), "(k) = (1) twice"),
        ([("+I", (1, 1.5)), ("+U", (1, 2.5))], [(1, 1.5), (1, 2.5)], PlanFacts(True, ()), "inserts alone, but +U"),
        ([("+I", (1, 1.5)), ("+I", (1, 2.5))], [(1, 1.5), (1, 2.5)], PlanFacts(False, ((0,),)), "tell rows apart"),
    ],
)
def test_a_wrong_changelog_is_found(
    changes: list[Change], rows: list[tuple[object, ...]], facts: PlanFacts | None, fault: str
) -> None:
    assert fault in faults(changes, rows, facts)


def test_rows_that_replace_others_by_key_are_found_where_a_deletion_is_lost() -> None:
    result = Result(["k", "d"], list(TYPES), "upsert stream", [("+I", (1, 1.5)), ("+U", (1, 2.5))], key=(0,))
    assert faults_of(result, Expected(TYPES, []), None) == ["missing nothing; unexpected (1, 2.5)"]


# --- smaller cases ----------------------------------------------------------------------------------------------------


def test_a_failing_case_gets_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the third row of a table is what fails, it alone is left."""

    def fails(world: World, setting: Setting) -> Failure | None:
        is_there = any(change.group == 2 for table in world.tables.values() for change in table.changes)
        return Failure(setting, "rows: the third row") if is_there else None

    monkeypatch.setattr("tests.table.differential.shrink.find_failure", fails)
    chance = Chance("7/1")
    world = draw_world(chance)
    assert fails(world, REFERENCE) is not None
    setting = Setting(parallelism=3, batch=64)
    smallest = shrunk(Case(world, chance.record, Failure(setting, "rows: the third row")), 20)
    assert smallest.failure.setting == REFERENCE
    assert sum(len(table.changes) for table in smallest.world.tables.values()) <= 2
