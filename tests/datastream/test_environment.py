"""The environment: settings under PyFlink's names, dependencies, and what runs nowhere."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.common.errors import ConfigurationError
from penstock.common.time import Duration
from penstock.connectors.number_sequence import NumberSequenceSource
from penstock.datastream import CheckpointingMode, ExternalizedCheckpointRetention
from penstock.datastream.slot_sharing_group import SlotSharingGroup


def test_checkpoint_settings_have_flinks_keys() -> None:
    """G5, G6: each method of CheckpointConfig is an option under Flink's key, and reads what it wrote."""
    env = local_environment()
    config = env.get_checkpoint_config()
    assert not env.is_unaligned_checkpoints_enabled()
    config.enable_unaligned_checkpoints().set_aligned_checkpoint_timeout(Duration.of_seconds(3))
    config.set_force_unaligned_checkpoints().set_fail_on_checkpointing_errors(False)
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
    with pytest.raises(TypeError, match="is no Source"):
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
    env.add_python_file(str({"file": path, "directory": tmp_path, "zip": tmp_path / "modules.zip"}[kind]))

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
    with pytest.raises(ConfigurationError, match="unpacks no archives"):
        collect(env.from_collection([1]))
    env = local_environment()
    env.set_python_executable("/elsewhere/python")
    with pytest.raises(ConfigurationError, match=r"python\.executable: execution\.target: local"):
        collect(env.from_collection([1]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        env.add_python_file("/nowhere.py")
    with pytest.raises(NotImplementedError, match="venv-pack"):
        env.set_python_requirements("requirements.txt")
    with pytest.raises(NotImplementedError, match="no JVM code"):
        env.add_classpaths("file:///x.jar")
    env.add_jars("a.jar")
    env.add_jars("b.jar", "c.jar")
    assert env.get_configuration().to_dict()["spark.jars"] == "a.jar,b.jar,c.jar"


def test_a_few_records_of_an_endless_stream() -> None:
    """A2: collect brings some records and ends the job."""
    env = local_environment()
    assert len(env.add_source(NumberSequenceSource(0, 10**9)).collect(5)) == 5
