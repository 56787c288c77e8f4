"""The Kafka sink as it is, in simulated jobs: readers of committed records see each once, whatever happens."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.find_mutants import list_violation_kinds
from tests.simulation.kafka_worlds import kafka_epochs, kafka_simulation
from tests.simulation.mutants_of_kafka import MUTANTS_OF_KAFKA, MUTANTS_OF_KAFKA_EPOCHS
from tests.simulation.planting import Mutant

from penstock.drivers.simulation import simulation

pytestmark = pytest.mark.slow

#: In the last ones a job that follows dies before it has looked for what the job before left open. In 57 a job begins
#: from a savepoint that is older than a cancelled job. It does not know the transactions that the cancelled job has
#: prepared, and readers wait until these time out.
SEEDS = (*range(1, 57), *range(58, 71), 423, 446, 774)
STEPWISE_SEEDS = range(1, 61)
STEPS_MAX = 10_000


def test_histories_whose_sinks_write_to_kafka() -> None:
    """G9: jobs stop, change and go on; workers and job masters die, and some live on unknown to the others."""
    seen = Counter[str]()
    for seed in SEEDS:
        simulated = kafka_simulation(seed)
        history = simulated.run()
        assert not history.violations, (seed, history.violations)
        seen.update({key: history.faults[key] for key in ("kill", "master-kill", "split-brain", "kill-within-call")})
        seen.update(simulated.outside.kafka.seen, stops=history.events["stopped"])
        # Nobody reads on while one is open; here every run that died was looked after.
        assert not simulated.outside.kafka.open_ids(), seed
    wanted = ("kill", "master-kill", "split-brain", "kill-within-call", "aborted", "fenced", "reused", "stops")
    assert min(seen[key] for key in wanted) > 0, seen


@pytest.mark.parametrize("mutant", MUTANTS_OF_KAFKA, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, seed = MUTANTS_OF_KAFKA[mutant]
    monkeypatch.setattr(simulation, "STEPS_MAX", STEPS_MAX)
    with mutant():
        found = list_violation_kinds(kafka_simulation(seed).run().violations)
    assert found.intersection(kinds), found
    assert not kafka_simulation(seed).run().violations


def test_epochs_whose_sinks_write_to_kafka() -> None:
    """G9: tasks die, run twice or write late, and drivers die or go on although others think them dead."""
    seen = Counter[str]()
    for seed in STEPWISE_SEEDS:
        with kafka_epochs(seed) as simulated:
            history = simulated.run()
        assert not history.violations, (seed, history.violations)
        seen += history.events + history.faults + Counter(simulated.outside.kafka.seen)
    of_tasks = {"ran twice", "cut off", "task died", "aborted"}
    assert of_tasks | {"driver killed", "driver stopped", "driver died in a commit"} <= set(seen), seen


@pytest.mark.parametrize("mutant", MUTANTS_OF_KAFKA_EPOCHS, ids=lambda mutant: mutant.__name__)
def test_bug_planted_in_epochs_is_found(mutant: Mutant) -> None:
    seed = MUTANTS_OF_KAFKA_EPOCHS[mutant]
    with mutant(), kafka_epochs(seed) as simulated:
        assert {"output", "stalled"} & list_violation_kinds(simulated.run().violations)
    with kafka_epochs(seed) as simulated:
        assert not simulated.run().violations
