"""Jars of servers and their dependencies, downloaded once by the Ivy that PySpark contains.

They are stored in the user's cache, below `XDG_CACHE_HOME` or `~/.cache`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.base.errors import MissingPathError, OperationError
from penstock.drivers.spark.java import find_java

_IVY_MODULE: Final = """<ivy-module version="2.0">
  <info organisation="penstock" module="trial"/>
  <dependencies>{}</dependencies>
</ivy-module>
"""
_IVY_DEPENDENCY: Final = '<dependency org="{}" name="{}" rev="{}" conf="default->master,runtime(*)"/>'


def cache() -> Path:
    """Return the cache directory, which has a subdirectory for each server."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "servers"


def java() -> str:
    """Return the path of the `java` executable.

    Raises:
        JavaNotFoundError: if there is no Java; the message says what to install.
    """
    return str(find_java(os.environ, needed_by="Kafka") / "bin" / "java")


def installed(name: str, coordinates: Iterable[str], finish: Callable[[Path], None] | None = None) -> Path:
    """Return a directory with jars and their dependencies in `jars`, downloaded once.

    `coordinates`: the `group:artifact:version` of each jar. `finish` adds other files that are created only once.

    Raises:
        OperationError: if the jars cannot be downloaded.
    """

    def fill(directory: Path) -> None:
        module = directory / "ivy.xml"
        dependencies = "".join(_IVY_DEPENDENCY.format(*each.split(":")) for each in coordinates)
        module.write_text(_IVY_MODULE.format(dependencies))
        files = directory / "jars" / "[artifact]-[revision](-[classifier]).[ext]"
        retrieve(["-m2compatible", "-ivy", module, "-cache", cache() / "ivy", "-retrieve", files])
        if finish is not None:
            finish(directory)

    return made_once(name, fill)


def made_once(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a directory of the cache, calling `fill` the first time. It appears only when it is complete."""
    directory = cache() / name
    with _locked(name):
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=cache()) as partial:
                fill(Path(partial))
                Path(partial).rename(directory)
                Path(partial).mkdir()  # for TemporaryDirectory to remove
    return directory


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Let only one process at a time create the directory."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def retrieve(arguments: Sequence[str | Path]) -> None:
    """Run Ivy.

    Raises:
        MissingPathError: if PySpark, which contains Ivy, is not installed.
        OperationError: if Ivy fails; the message includes its output.
    """
    spark = find_spec("pyspark")
    jars = [] if spark is None else list((Path(str(spark.origin)).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise MissingPathError("PySpark's Ivy, which fetches jars, is not there: pip install pyspark")
    command = [java(), "-jar", str(jars[0]), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise OperationError(f"Ivy cannot fetch jars from Maven Central. Is there a proxy?\n{done.stdout[-3000:]}")
