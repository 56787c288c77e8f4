"""Jars of servers and what these depend on, fetched once by the Ivy that PySpark brings along.

They lie in the user's cache, so that a second clone of the repository fetches nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pyspark

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "servers"

_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="penstock.tests" module="servers"/>
  <dependencies>{}</dependencies>
</ivy-module>
"""
_IVY_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default->master,runtime(*)"/>'


def java() -> str:
    """The executable that `scripts/run` has found."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    assert found is not None, "the servers of the tests need Java, which `make java` finds or installs"
    return found


def installed(name: str, coordinates: Iterable[str], finish: Callable[[Path], None] | None = None) -> Path:
    """A directory with the jars of these `group:artifact:version`, and what they depend on, in `jars`.

    `finish` adds to the directory what else is made only once. The directory appears when it is whole.
    """
    directory = _CACHE / name
    if directory.exists():
        return directory
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of the processes that run the tests one fetches
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=_CACHE) as partial:
                _retrieve(coordinates, Path(partial))
                if finish is not None:
                    finish(Path(partial))
                Path(partial).rename(directory)
                Path(partial).mkdir()  # for TemporaryDirectory to remove
    return directory


def _retrieve(coordinates: Iterable[str], directory: Path) -> None:
    module = directory / "ivy.xml"
    module.write_text(_IVY_MODULE.format("".join(_IVY_DEPENDENCY.format(*each.split(":")) for each in coordinates)))
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    files = directory / "jars" / "[artifact]-[revision](-[classifier]).[ext]"
    command = [java(), "-jar", str(ivy), "-m2compatible", "-ivy", str(module)]
    command += ["-cache", str(_CACHE / "ivy"), "-retrieve", str(files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"Ivy cannot fetch {coordinates}:\n{done.stdout[-3000:]}"
