"""The election that the configuration selects (E7)."""

from __future__ import annotations

from pathlib import Path

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import CHECKPOINTING_DIR, HIGH_AVAILABILITY_DIR, HIGH_AVAILABILITY_TYPE
from penstock.drivers.election.file import LOCK_FILE, FileElection
from penstock.drivers.election.leader import Election
from penstock.drivers.election.zookeeper import ZooKeeperElection
from penstock.drivers.election.zookeeper_client import ZooKeeperSettings
from penstock.storage.files import absolute_url
from penstock.storage.job_marks import MARKS_DIRECTORY, file_of_name


def build_election(configuration: Configuration, job_name: str) -> Election | None:
    """Return the election of a job; None if the job has only one driver.

    Raises:
        ConfigurationError: if a required option is missing or invalid, or ZooKeeper's client is not installed.
    """
    kind = configuration.read(HIGH_AVAILABILITY_TYPE)
    if kind == "NONE":
        return None
    checkpoints = configuration.read(CHECKPOINTING_DIR)
    directory = configuration.read(HIGH_AVAILABILITY_DIR) if kind == "FILE" else None
    directory = directory or checkpoints
    if directory is None:
        reason = f"{HIGH_AVAILABILITY_TYPE.key()} is {kind}"
        raise ConfigurationError(f"{reason}: set {CHECKPOINTING_DIR.key()} too, where standbys find checkpoints")
    if kind == "FILE":
        return _file_election(directory, job_name)
    if absolute_url(directory).startswith("memory://"):
        where = f"{CHECKPOINTING_DIR.key()} is {directory}"
        raise ConfigurationError(
            f"{where}, in the memory of this process: standbys need a directory that all can reach"
        )
    return ZooKeeperElection(ZooKeeperSettings.of(configuration), file_of_name(job_name))


def _file_election(directory: str, job_name: str) -> FileElection:
    path = absolute_url(directory).removeprefix("file://")
    if "://" in path or "::" in path:
        raise ConfigurationError(
            f"{HIGH_AVAILABILITY_TYPE.key()} is FILE, but {directory} has no locks: set {HIGH_AVAILABILITY_DIR.key()} "
            "to a directory of this host"
        )
    return FileElection(Path(path) / MARKS_DIRECTORY / file_of_name(job_name) / LOCK_FILE)
