"""G8: failure enrichers as a program writes and names them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.datastream.environments import local_environment
from tests.failing import FailsOnce

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, ContractError, UserFunctionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import RuntimeExecutionMode
from penstock.drivers.failure_enrichers import EnricherLabeller, LabellingThread, failure_enrichers
from penstock.runtime.failure import FailureEnricher, FailureEnricherContext, FailureType
from penstock.runtime.job.view import JobHistory

HERE = "tests.drivers.test_failure_enrichers"
CONTEXT = FailureEnricherContext("id", "job", FailureType.TASK)


class Team(FailureEnricher):
    def get_output_keys(self) -> set[str]:
        return {"team"}

    def process_failure(self, cause: BaseException, context: FailureEnricherContext) -> Any:
        return {"team": "stream", "mood": "bad"}


class Waits(Team):
    async def process_failure(self, cause: BaseException, context: FailureEnricherContext) -> Any:
        return {"team": context.get_job_name()}


class SaysNothing(Team):
    def process_failure(self, cause: BaseException, context: FailureEnricherContext) -> Any:
        return None


def named(*names: str) -> Configuration:
    return Configuration.from_dict({"jobmanager.failure-enrichers": ",".join(names)})


def test_enrichers_are_found_by_their_paths() -> None:
    """G8: as module:Class, or with a dot; a class that is named twice is one."""
    made = failure_enrichers(named(f"{HERE}:Team", "penstock.runtime.failure.TypeFailureEnricher ", f" {HERE}:Team"))
    assert [labeller.name for labeller in made] == [f"{HERE}.Team", "penstock.runtime.failure.TypeFailureEnricher"]
    assert failure_enrichers(Configuration()) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"{HERE}:Missing", "has no attribute 'Missing'"),
        ("no_such_module:Team", "No module named 'no_such_module'"),
        ("Team", "write module:Class"),
        ("builtins:dict", "is no FailureEnricher"),
        ("penstock.runtime.failure:FailureEnricher", "abstract"),
        (f"{HERE}:Team,{HERE}:Waits", "both have the output key 'team'"),
    ],
)
def test_one_that_cannot_be_used_is_an_error_before_the_job_begins(path: str, words: str) -> None:
    """G8: no job runs without the labels that somebody counts on."""
    with pytest.raises(ConfigurationError, match=r"jobmanager\.failure-enrichers") as caught:
        failure_enrichers(named(path))
    assert words in str(caught.value)


def test_labels_with_keys_that_were_not_announced_are_ignored() -> None:
    """G8: with a line for the log."""
    labels, complaint = EnricherLabeller(Team()).label(ValueError(), CONTEXT)
    assert labels == {"team": "stream"}
    assert complaint == "labels ['mood'] are ignored: get_output_keys gives ['team']"


def test_a_coroutine_is_awaited() -> None:
    """G8: Flink's processFailure returns a future."""
    assert EnricherLabeller(Waits()).label(ValueError(), CONTEXT) == ({"team": "job"}, None)


def test_what_is_no_dict_is_the_enrichers_error() -> None:
    with pytest.raises(ContractError, match="must return a dict of labels, not NoneType"):
        EnricherLabeller(SaysNothing()).label(ValueError(), CONTEXT)


class Asked(FailureEnricher):
    def get_output_keys(self) -> set[str]:
        return {"asked"}

    async def process_failure(self, cause: BaseException, context: FailureEnricherContext) -> Any:
        return {"asked": context.get_job_name()}


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.MICRO_BATCH])
def test_the_view_of_a_job_has_the_labels(mode: Any, tmp_path: Any) -> None:
    """G8: in every execution mode."""
    options = {"jobmanager__failure_enrichers": f"penstock.runtime.failure:TypeFailureEnricher,{HERE}:Asked"}
    env = local_environment(1, **options).set_runtime_mode(mode)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 1))
    if mode is RuntimeExecutionMode.STREAMING:  # a job that has ended has no view any more
        numbers = DataGeneratorSource(lambda index: index, None, rate_per_second=1_000)
        stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    else:
        stream = env.from_collection(list(range(20)))
    stream.map(FailsOnce(tmp_path / "failed", 0)).filter(lambda number: False).print()
    job = env.execute_async("labels")
    labels: dict[str, str] = {}
    end = time.monotonic() + 60
    while len(labels) < 2 and time.monotonic() < end:
        labels = next((dict(failure.labels) for failure in job.get_view().result(60).failures), labels)
        time.sleep(0.01)
    job.end()
    assert labels == {"type": "USER", "asked": "labels"}


def test_a_thread_asks_for_one_failure_after_another_and_ends() -> None:
    """G8: an error is no reason to end, and neither is what one of the enrichers raises."""
    history = JobHistory()
    labelling = LabellingThread([EnricherLabeller(SaysNothing()), EnricherLabeller(Team())], "id", "job", history)
    cause = UserFunctionError("job", "map", 0, 1, "1", "ZeroDivisionError")
    labelling.on_failure(1, cause)
    labelling.on_failure(2, cause)
    for thread in [t for t in threading.enumerate() if t.name == "penstock-failure-enrichers-job"]:
        thread.join(60)
    assert history._labels[2] == {"team": "stream"}
