"""The order of a run of the tests, what it says at its end, and the servers that many files share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.class_archive import ARCHIVE, options
from tests.simulation.fresh_seeds import fresh_seeds

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaCluster

#: Files that take long though they start no Spark.
LONG = ("tests/simulation/", "tests/datastream/test_tempos_agree.py", "tests/test_reference.py")


def pytest_configure() -> None:
    """Let Spark's JVMs start quickly, those of scripts too; no time that a busy machine takes fails a test."""
    settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy machine")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options(ARCHIVE))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: the processes that share the files should end together, not one with a long file left."""
    on_spark = {item.nodeid.partition("::")[0] for item in items if item.get_closest_marker("spark")}

    def rank(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        return 0 if file in on_spark else 1 if file.startswith(LONG) else 2

    items.sort(key=rank)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the seeds that only this commit's tests run."""
    seeds = fresh_seeds()
    terminalreporter.write_line(f"seeds of this commit: penstock-sim --seeds {seeds.start}..{seeds.stop - 1}")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker for the tests of this process; each test makes topics of its own, and leaves the broker running."""
    from tests.servers.kafka import kafka_server

    with kafka_server(tmp_path_factory.mktemp("kafka")) as running:
        yield running
