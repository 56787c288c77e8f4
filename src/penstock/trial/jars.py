"""Jars of servers and what these depend on, fetched once by the Ivy that PySpark brings along.

They lie in the user's cache, below `XDG_CACHE_HOME` or `~/.cache`.
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
    """The directory with a directory for each server."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "servers"


def java() -> str:
    """The executable that runs servers.

    Raises:
        JavaNotFoundError: saying what to install, if there is none.
    """
    return str(find_java(os.environ, needed_by="Kafka") / "bin" / "java")


def installed(name: str, coordinates: Iterable[str], finish: Callable[[Path], None] | None = None) -> Path:
    """A directory with the jars of these `group:artifact:version`, and what they depend on, in `jars`.

    `finish` adds to the directory what else is made only once.

    Raises:
        OperationError: if they cannot be fetched.
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
    """A directory of the cache that `fill` has filled, the first time. It appears when it is whole."""
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
    """Of the processes that want the same directory one makes it."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def retrieve(arguments: Sequence[str | Path]) -> None:
    """Run Ivy.

    Raises:
        MissingPathError: if PySpark, which has it, is not there.
        OperationError: if Ivy fails, with what it says.
    """
    spark = find_spec("pyspark")
    found = [] if spark is None else list((Path(str(spark.origin)).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise MissingPathError("PySpark's Ivy, which fetches jars, is not there: pip install pyspark")
    command = [java(), "-jar", str(found[0]), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise OperationError(f"Ivy cannot fetch jars from Maven Central. Is there a proxy?\n{done.stdout[-3000:]}")
