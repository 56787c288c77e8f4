"""The order of a run of the tests, what it says at its end, and the servers that many files share."""

from __future__ import annotations

import gc
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.class_archive import ARCHIVE, options
from tests.many_runs import keep_temporary_files_in_memory
from tests.servers.s3 import S3Server, s3_server
from tests.simulation.fresh_seeds import fresh_seeds
from tests.stores import OPTIONS_OF_STORE, STORES, at, is_proof_in_store

from penstock.base.secrets import known_secrets

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaCluster
    from tests.servers.object_stores import ObjectStore

#: Chooses the tests of a run.
pytest_plugins = ["tests.selection.plugin"]

#: Files that take long though they start no Spark.
LONG = (
    "tests/simulation/",
    "tests/datastream/test_execution_modes_agree.py",
    "tests/examples/",
    "tests/server/page/",
    "tests/test_docs_site.py",
    "tests/cli/trial/",
)

#: How long (s) a test may take with `--store`: some take a checkpoint every ten seconds for hours of virtual time,
#: and hundreds of checkpoints are thousands of requests.
TIMEOUT_IN_STORES_S = 600


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--store`."""
    help = (
        "where checkpoints and savepoints lie; but for local only the tests run that keep theirs in `store_directory`"
    )
    parser.addoption("--store", choices=STORES, default="local", help=help)


def pytest_configure(config: pytest.Config) -> None:
    """Let Spark's JVMs start quickly, those of scripts too; no time that a busy machine takes fails a test."""
    if version("pyspark").startswith("4.0."):
        # It leaves the sockets open from which it reads results, and later releases close them.
        config.addinivalue_line(
            "filterwarnings", r"ignore:Exception ignored in. <socket\.socket:pytest.PytestUnraisableExceptionWarning"
        )
    keep_temporary_files_in_memory()
    settings.register_profile(
        "busy machine", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("busy machine")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options(ARCHIVE))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in what a shell's script starts in the background: programs under test could not be interrupted.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first: the processes that share the files should end together, not one with a long file left.

    Those on Spark wait more than they compute, so the long ones that compute are spread among them.
    """
    if config.getoption("--store") != "local":
        is_s3 = config.getoption("--store") == "s3"
        others = [item for item in items if not is_proof_in_store(item, is_s3)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if is_proof_in_store(item, is_s3)]
        for item in items:
            item.add_marker(pytest.mark.timeout(TIMEOUT_IN_STORES_S))
    on_spark = dict.fromkeys(_file(item) for item in items if item.get_closest_marker("spark"))
    long = dict.fromkeys(file for item in items if (file := _file(item)).startswith(LONG) and file not in on_spark)
    ranks = {file: (number + 0.5) / len(files) for files in (on_spark, long) for number, file in enumerate(files)}
    items.sort(key=lambda item: ranks.get(_file(item), 1.0))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_collection_finish() -> None:
    """Fifteen thousand tests stay in memory: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the seeds that only this commit's tests run."""
    seeds = fresh_seeds()
    terminalreporter.write_line(f"seeds of this commit: penstock-sim --seeds {seeds.start}..{seeds.stop - 1}")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server of S3."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server | ObjectStore | None]:
    """The server in which checkpoints lie, before Spark inherits where it is; None where they lie in directories."""
    kind = request.config.getoption("--store")
    if kind in ("local", "s3"):
        yield request.getfixturevalue("s3") if kind == "s3" else None
    else:
        from tests.servers.object_stores import object_store

        with object_store(kind, tmp_path_factory.mktemp("object-store")) as server:
            yield server


@pytest.fixture(scope="session")
def bucket(store: S3Server | ObjectStore | None) -> str | None:
    """The bucket of all these tests."""
    return None if store is None else store.new_bucket()


@pytest.fixture(scope="session")
def new_store_directory(bucket: str | None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes such directories as `store_directory` for what many tests read."""
    if bucket is None:
        return lambda: tmp_path_factory.mktemp("store")
    return lambda: at(f"{bucket}/{uuid.uuid4().hex[:12]}")


@pytest.fixture
def store_directory(bucket: str | None, tmp_path: Path, new_store_directory: Callable[[], Path]) -> Path:
    """Where a test keeps checkpoints and savepoints, and what else may lie in any file system: see `tests.stores`."""
    return tmp_path if bucket is None else new_store_directory()


@pytest.fixture
def checkpoints_in_store(
    request: pytest.FixtureRequest, store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs in virtual time that name no directory keep their checkpoints in the job master, or in the store."""
    if request.config.getoption("--store") != "local":
        monkeypatch.setitem(OPTIONS_OF_STORE, "execution.checkpointing.dir", store_directory / "checkpoints")
        monkeypatch.setitem(OPTIONS_OF_STORE, "execution.checkpointing.data-inline-threshold", "0 b")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker for the tests of this process; each test makes topics of its own, and leaves the broker running."""
    from tests.servers.kafka import kafka_server

    with kafka_server(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests() -> None:
    """A process hides the secrets that it has met, and tests share one: "operators" is a word in many answers."""
    known_secrets.clear()
