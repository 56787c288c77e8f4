"""The environment: settings under PyFlink's names, dependencies, and what runs nowhere."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource, NumberSequenceSource
from penstock.datastream import CheckpointingMode, ExternalizedCheckpointRetention, StreamExecutionEnvironment
from penstock.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    MapFunction,
)
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.runtime.checkpoint.statistics import CheckpointSettings


def test_checkpoint_settings_have_flinks_keys() -> None:
    """G5, G6: each method of CheckpointConfig is an option under Flink's key, and reads what it wrote."""
    env = local_environment()
    config = env.get_checkpoint_config()
    assert not env.is_unaligned_checkpoints_enabled()
    config.enable_unaligned_checkpoints(enabled=True)
    config.set_aligned_checkpoint_timeout(alignment_timeout=Duration.of_seconds(3))
    config.set_force_unaligned_checkpoints(force_unaligned_checkpoints=True).set_fail_on_checkpointing_errors(False)
    config.set_externalized_checkpoint_retention(retention_mode=ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
    prefix = "execution.checkpointing."
    assert {
        key.removeprefix(prefix): value
        for key, value in env.get_configuration().to_dict().items()
        if key.startswith(prefix)
    } == {
        "unaligned.enabled": "true",
        "aligned-checkpoint-timeout": "3000",
        "unaligned.forced": "true",
        "tolerable-failed-checkpoints": str(2**31 - 1),
        "externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    assert env.is_unaligned_checkpoints_enabled()
    assert env.is_force_unaligned_checkpoints()
    assert config.is_externalized_checkpoints_enabled()
    assert config.get_alignment_timeout() == config.get_aligned_checkpoint_timeout() == Duration.of_seconds(3)
    assert not config.is_fail_on_checkpointing_errors()
    assert not config.set_alignment_timeout(0).disable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()
    config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS)
    assert not config.is_externalized_checkpoints_enabled()
    assert config.set_fail_on_checkpointing_errors(True).is_fail_on_checkpointing_errors()


def test_the_pace_of_checkpoints_is_set_and_read() -> None:
    """G6: interval, mode, timeout, pause, number at once and failures that are borne; the coordinator goes by them."""
    env = local_environment()
    config = env.get_checkpoint_config()
    assert not config.is_checkpointing_enabled()
    assert config.get_checkpoint_interval() == env.get_checkpoint_interval() == -1
    defaults = config.get_checkpointing_mode(), config.get_checkpoint_timeout(), config.get_max_concurrent_checkpoints()
    assert defaults == (CheckpointingMode.EXACTLY_ONCE, 600_000, 1)
    assert config.get_min_pause_between_checkpoints() == config.get_tolerable_checkpoint_failure_number() == 0
    assert config.get_externalized_checkpoint_retention() is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    config.set_checkpoint_interval(checkpoint_interval=2_000)
    config.set_checkpointing_mode(checkpointing_mode=CheckpointingMode.AT_LEAST_ONCE)
    config.set_checkpoint_timeout(checkpoint_timeout=30_000)
    config.set_min_pause_between_checkpoints(min_pause_between_checkpoints=500)
    config.set_max_concurrent_checkpoints(max_concurrent_checkpoints=3)
    config.set_tolerable_checkpoint_failure_number(tolerable_checkpoint_failure_number=2)
    config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
    assert config.is_checkpointing_enabled()
    assert env.get_checkpoint_interval() == config.get_checkpoint_interval() == 2_000
    assert env.get_checkpointing_mode() is config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert (config.get_checkpoint_timeout(), config.get_min_pause_between_checkpoints()) == (30_000, 500)
    assert (config.get_max_concurrent_checkpoints(), config.get_tolerable_checkpoint_failure_number()) == (3, 2)
    assert config.get_externalized_checkpoint_retention() is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert CheckpointSettings.of(env.get_configuration()) == CheckpointSettings(
        interval_ms=2_000,
        timeout_ms=30_000,
        min_pause_ms=500,
        concurrent_max=3,
        tolerable_failures=2,
        retained=1,
        retain_on_cancel=True,
        exactly_once=False,
    )


@pytest.mark.parametrize(
    ("setter", "value"),
    [
        ("set_checkpoint_interval", 0),
        ("set_checkpoint_timeout", 0),
        ("set_min_pause_between_checkpoints", -1),
        ("set_max_concurrent_checkpoints", 0),
        ("set_tolerable_checkpoint_failure_number", -1),
    ],
)
def test_a_pace_that_makes_no_sense_is_refused(setter: str, value: int) -> None:
    """G6: the error names the option, and nothing is changed."""
    env = local_environment()
    before = env.get_configuration().to_dict()
    with pytest.raises(ConfigurationError, match=r"execution\.checkpointing\."):
        getattr(env.get_checkpoint_config(), setter)(value)
    assert env.get_configuration().to_dict() == before


class Snapshots(MapFunction, CheckpointedFunction):
    """Counts the checkpoints it takes part in, and passes records on once there was one."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.taken = 0

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.taken += 1

    def map(self, value: int) -> int:
        return self.taken


def test_an_interval_makes_a_job_take_checkpoints() -> None:
    """G5: with an interval of checkpoints functions are asked for snapshots, without one they never are."""

    def endless(env: StreamExecutionEnvironment) -> Any:
        source = DataGeneratorSource(lambda n: n, rate_per_second=2_000)
        return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(Snapshots())

    env = local_environment()
    env.get_checkpoint_config().set_checkpoint_interval(5)
    with endless(env).execute_and_collect() as taken:
        assert next(n for n in taken if n > 1) > 1
    assert set(endless(local_environment()).execute_and_collect(limit=300)) == {0}


def test_settings_may_be_added_to_an_environment() -> None:
    """E1: `configure` adds to what is set; the environment answers by it, with Flink's keys."""
    env = local_environment(3).set_max_parallelism(64)
    assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 64)
    more = Configuration().set_string("execution.checkpointing.interval", "2 s").set_integer("parallelism.default", 2)
    env.configure(configuration=more)
    assert (env.get_parallelism(), env.get_max_parallelism(), env.get_checkpoint_interval()) == (2, 64, 2_000)
    assert env.get_configuration().get_string("execution.target", "") == "local"


def test_settings_of_the_environment() -> None:
    """E1: modes and directories."""
    env = local_environment()
    env.enable_checkpointing(10, CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_checkpointing_mode() is env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_default_savepoint_directory() is None
    assert env.set_default_savepoint_directory("memory://s").get_default_savepoint_directory() == "memory://s"
    assert env.register_slot_sharing_group(SlotSharingGroup.builder("g").build()) is env
    assert not env.is_chaining_of_operators_with_different_max_parallelism_enabled()


def test_add_source_takes_sources_only() -> None:
    """A2: the older name of from_source; anything else says what to do."""
    env = local_environment()
    assert collect(env.add_source(NumberSequenceSource(1, 3))) == [1, 2, 3]
    with pytest.raises(TypeError, match="is not a Source"):
        env.add_source(lambda ctx: None)  # type: ignore[arg-type]


@pytest.fixture
def path_restored() -> Any:
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.mark.usefixtures("path_restored")
@pytest.mark.parametrize("kind", ["file", "directory", "zip"])
def test_python_files_can_be_imported_by_functions(kind: str, tmp_path: Path) -> None:
    """E1: a file, a directory or a zip of modules is at hand where functions run."""
    name = f"breadth_module_{kind}"
    path = tmp_path / f"{name}.py"
    path.write_text("ANSWER = 42\n")
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "modules.zip", "w") as archive:
            archive.write(path, path.name)
        path.unlink()
    env = local_environment()
    env.add_python_file(file_path=str({"file": path, "directory": tmp_path, "zip": tmp_path / "modules.zip"}[kind]))

    def answer(value: Any) -> Any:
        import importlib

        return importlib.import_module(name).ANSWER

    assert collect(env.from_collection([1]).map(answer)) == [42]


def test_what_the_local_driver_cannot_do_it_says(tmp_path: Path) -> None:
    """E1: another interpreter and archives need Spark; requirements and class paths are not there at all."""
    archive = tmp_path / "data.zip"
    archive.write_bytes(b"")
    env = local_environment()
    env.add_python_archive(str(archive), "data")
    assert env.get_configuration().to_dict()["python.archives"] == f"{archive}#data"
    with pytest.raises(ConfigurationError, match="does not unpack archives"):
        collect(env.from_collection([1]))
    env = local_environment()
    env.set_python_executable("/elsewhere/python")
    with pytest.raises(ConfigurationError, match=r"python\.executable: execution\.target: local"):
        collect(env.from_collection([1]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        env.add_python_file("/nowhere.py")
    with pytest.raises(NotImplementedError, match="penstock package-env"):
        env.set_python_requirements("requirements.txt")
    with pytest.raises(NotImplementedError, match="does not run a user's JVM code"):
        env.add_classpaths("file:///x.jar")
    env.add_jars("a.jar")
    env.add_jars("b.jar", "c.jar")
    assert env.get_configuration().to_dict()["spark.jars"] == "a.jar,b.jar,c.jar"


def test_a_few_records_of_an_endless_stream() -> None:
    """A2: collect brings some records and ends the job."""
    env = local_environment()
    assert len(env.add_source(NumberSequenceSource(0, 10**9)).collect(5)) == 5
