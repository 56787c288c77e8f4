"""The benchmarks compare like with like: both sides of a workload give as many records, and the guard sees a fall."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from benchmarks import builds, by_hand, cep, columnar, guard
from benchmarks.events import EventsSpec, get_events
from benchmarks.measuring import Figures, Settings, run_penstock, run_twin
from benchmarks.nexmark_sql.beside_build import NexmarkSubject
from benchmarks.nexmark_sql.regimes import Regime
from benchmarks.registry import WORKLOADS
from benchmarks.sparse import SPARSE
from benchmarks.sweeps import maps, numbers

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

pytestmark = pytest.mark.slow

SPEC = EventsSpec(30_000)
FIGURES = Figures("map + filter", "bare loop", 1_000, 2e6, 1e6, [0.5], [0.8, 0.7, 0.9], 0.2, 0.3, None, None)


@pytest.mark.parametrize("key", [key for key in WORKLOADS if key != "W5"])
def test_both_sides_of_a_workload_emit_as_many_records(key: str) -> None:
    """And some at all."""
    workload = WORKLOADS[key]
    spec = workload.spec(SPEC)
    assert run_twin(workload, spec).records == run_penstock(workload, spec, Settings()).records > 0


@pytest.mark.parametrize("key", SPARSE)
def test_both_sides_of_a_sparse_workload_give_the_same_results(key: str) -> None:
    """Not only as many; in whatever order."""
    workload = WORKLOADS[key]
    spec = workload.spec(SPEC)
    by_hand: list[Any] = []
    workload.twin(workload.input_of(spec), by_hand.append)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    assert sorted(workload.build(env, spec).execute_and_collect()) == sorted(by_hand)


@pytest.mark.parametrize("name", cep.WORKLOADS)
def test_patterns_and_state_machines_by_hand_give_the_same_results(name: str) -> None:
    """Not only as many; in whatever order."""
    workload, spec = cep.WORKLOADS[name], EventsSpec(15_000)
    by_hand: list[Any] = []
    workload.twin(workload.input_of(spec), by_hand.append)
    settings = Configuration.from_dict({"execution.target": "local", "parallelism.default": 1})
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    assert sorted(workload.build(env, spec).execute_and_collect()) == sorted(by_hand) != []


def test_the_columnar_workload_emits_a_record_for_each_auction_and_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its twin does, which needs DuckDB."""
    monkeypatch.setattr(columnar, "FOLDER", tmp_path)
    auctions, _, times = SPEC.columns()
    wanted = len(set(zip(auctions.tolist(), (times // 10_000).tolist(), strict=True)))
    assert run_penstock(WORKLOADS["W5"], SPEC, Settings()).records == wanted > 0


@pytest.mark.parametrize("key", by_hand.LOOPS)
def test_two_processes_by_hand_emit_as_many_records_as_one(key: str) -> None:
    """Each has half of the events, as text, and hands the other what is for it."""
    job = by_hand.Job(key, SPEC.count, 1, is_text=True)
    assert by_hand.run(job).records == by_hand.run(job._replace(processes=2)).records > 0


@pytest.mark.parametrize("is_chained", [True, False])
def test_maps_in_a_row_emit_every_event(is_chained: bool) -> None:
    """In one chain, and in tasks of their own."""
    assert run_penstock(maps(3, is_chained), SPEC, Settings()).records == SPEC.count


def test_events_are_the_same_for_the_same_specification() -> None:
    """Another process makes the events that this one has."""
    events = list(get_events(SPEC))
    assert get_events(EventsSpec(10)) == EventsSpec(10).make()
    assert get_events(SPEC) == events
    keys = [key for key, _, _ in events]
    assert 0 <= min(keys) <= max(keys) < SPEC.keys
    assert keys.count(0) > 100 * keys.count(SPEC.keys // 2)


def test_the_guard_names_what_fell_below_a_part_of_the_recorded_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the ratio of processor time."""
    monkeypatch.setattr(guard, "PATH", tmp_path / "ratios.json")
    guard.record({"W1": FIGURES})
    assert guard.fallen({"W1": FIGURES, "W2": FIGURES}) == ["W2 map + filter: no ratio is recorded; --record writes it"]
    assert guard.fallen({"W1": replace(FIGURES, cpu_ratios=[0.69])}) == []
    (line,) = guard.fallen({"W1": replace(FIGURES, cpu_ratios=[0.67])})
    assert line.startswith("W1 map + filter: ratio 0.67, recorded 0.80")


def test_numbers_of_a_sweep() -> None:
    """One by one, or from one to another."""
    assert numbers("1,2,4") == [1, 2, 4]
    assert numbers("1..4") == [1, 2, 3, 4]
    assert numbers("1000..100000", by_tens=True) == [1_000, 10_000, 100_000]


# --- builds side by side ----------------------------------------------------------------------------------------------


def test_interval_of_a_median_holds_it_with_95_percent() -> None:
    """The places follow from the binomial distribution: the first of 8 values, the 6th of 20, the 14th of 40."""
    assert builds.median_interval([1.0] * 5) == (-math.inf, math.inf)
    assert builds.median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)
    for count, place in ((8, 0), (20, 5), (40, 13)):
        assert builds.median_interval([float(value) for value in range(count)]) == (place, count - 1 - place)


def test_build_has_fallen_if_the_whole_interval_is_too_low() -> None:
    assert builds.Compared("w", [0.96] * 8).has_fallen
    assert not builds.Compared("w", [0.96] * 7 + [0.98, 0.98]).has_fallen
    assert not builds.Compared("w", [0.9, 0.98] * 8).has_fallen
    assert not builds.Compared("w", [0.9, 1.1] * 8).is_known
    assert builds.Compared("w", [1.0, 1.02] * 8).is_known


def test_build_of_a_revision_runs_a_workload_and_leaves_nothing() -> None:
    """The last commit beside the working tree."""
    subjects = {"W1": builds.WorkloadSubject("W1", 2_000)}
    ((key, compared),) = builds.compare("HEAD", subjects, pairs_min=2, pairs_max=2)
    assert (key, compared.name) == ("W1", "map + filter")
    assert compared.ratios == [other / this for other, this in compared.seconds]
    assert len(compared.ratios) == 2
    assert all(ratio > 0 for ratio in compared.ratios)
    assert not list((builds.ROOT / "build").glob("base-*"))
    with pytest.raises(RuntimeError, match="no-such: there is no such revision"), builds.checkout("no-such"):
        pass


def test_guard_compares_queries_of_nexmark_with_checkpoints_where_it_has_their_files(tmp_path: Path) -> None:
    """On both backends, over fewer events than the workloads."""
    assert list(guard.find_subjects(10, "", None)) == list(WORKLOADS)
    subjects = guard.find_subjects(1_000_000, "W1,q7-heap,q20-rocksdb", tmp_path)
    assert [subject.name for subject in subjects.values()] == [
        "map + filter",
        "q7, heap, checkpoints 1s",
        "q20, RocksDB, checkpoints 1s",
    ]
    assert subjects["q7-heap"] == NexmarkSubject(tmp_path, "q7", 500_000, Regime("heap", "1s"))
    with pytest.raises(click.UsageError, match="there is no workload q7-heap; there are W1, "):
        guard.find_subjects(10, "q7-heap", None)
