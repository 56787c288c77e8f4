"""The commands with which Spark sends an archive to its executors."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

#: Where executors find the archive's contents, in their working directory.
FOLDER: Final = "environment"
PYTHON: Final = f"./{FOLDER}/bin/python"


def submit_commands(archive: str, program: str, driver_python: str) -> Mapping[str, list[str]]:
    """Return the words of the command for each cluster manager.

    Args:
        archive: the archive's path.
        program: the script.
        driver_python: the driver's Python, for a driver on this machine.
    """
    use = [
        *("--archives", f"{archive}#{FOLDER}"),
        *_conf("spark.pyspark.python", PYTHON),
        # This daemon forks workers that have loaded Penstock, which is now on all machines.
        *_conf("spark.python.daemon.module", "penstock.drivers.spark.daemon"),
    ]
    here = _conf("spark.pyspark.driver.python", driver_python)
    pods = [
        *_conf("spark.kubernetes.container.image", "IMAGE"),
        *_conf("spark.kubernetes.authenticate.driver.serviceAccountName", "penstock"),
        *_conf("spark.kubernetes.file.upload.path", "s3a://BUCKET/uploads"),
    ]
    submit = ["spark-submit", "--master"]
    return {
        "standalone, the driver here": [*submit, "spark://HOST:7077", *use, *here, program],
        "YARN, the driver here": [*submit, "yarn", *use, *here, program],
        "YARN, the driver in the cluster": [*submit, "yarn", "--deploy-mode", "cluster", *use, program],
        "Kubernetes, the driver in a pod": [
            *(*submit, "k8s://https://HOST:6443", "--deploy-mode", "cluster", *pods, *use, program)
        ],
    }


def _conf(key: str, value: str) -> list[str]:
    return ["--conf", f"{key}={value}"]


def as_shown(words: list[str]) -> Iterator[str]:
    """Yield the lines of a command for a shell, one option per line."""
    line = words[0]
    for index, word in enumerate(words[1:], 1):
        if word.startswith("--") or index == len(words) - 1:
            yield f"{line} \\"
            line = f"    {shlex.quote(word)}"
        else:
            line += f" {shlex.quote(word)}"
    yield line
