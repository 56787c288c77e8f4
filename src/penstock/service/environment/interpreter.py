"""The interpreter in the archive: its executable and its standard library."""

from __future__ import annotations

import platform
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.base.errors import OperationError
from penstock.service.environment.placed import LIBRARY, Placed, tree

#: Parts of the standard library that no executor needs; packages are added by distribution.
LEFT_OUT: Final = ("dist-packages", "ensurepip", "idlelib", "site-packages", "test", "turtledemo")
NAME: Final = LIBRARY.rpartition("/")[2]
#: Links in the archive and their destinations. Debian's Python looks for packages in `dist-packages` instead.
LINKS: Final = {"bin/python3": "python", f"{LIBRARY}/dist-packages": "site-packages"}
#: The script `bin/python`. With it, an interpreter that is mostly a shared library finds that library wherever the
#: archive is unpacked.
LAUNCHER: Final = f"""#!/bin/sh
folder=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="${{folder%/bin}}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$folder/{NAME}" "$@"
"""


def interpreter() -> Iterator[Placed]:
    """Yield the files of this interpreter.

    Raises:
        OperationError: if it would not run from another folder; the message says what to do instead.
    """
    base = Path(sys.base_prefix)
    if (base / "conda-meta").is_dir():
        raise OperationError(
            f"the Python of {base} is conda's, which needs C libraries of conda's packages: pack it with conda-pack "
            "(`conda pack -o environment.tar.gz`) and use that archive in the same way"
        )
    if sys.platform != "linux":
        raise OperationError(
            f"this Python runs on {sys.platform}, and executors on Linux: run the command there, such as in a "
            "container of the image that they have"
        )
    library = Path(sysconfig.get_path("stdlib"))
    base_executable = getattr(sys, "_base_executable", None) or sys.executable
    executable = Path(base_executable).resolve()
    if not executable.is_file() or not (library / "os.py").is_file():
        raise OperationError(
            f"there is no whole Python at {executable} with a library at {library}: run the command with one that is "
            "installed, or in a virtual environment of one"
        )
    yield Placed(executable, f"bin/{NAME}")
    yield from _shared_library(base)
    left_out = {entry.name for entry in library.iterdir() if entry.name.startswith("config-")}
    yield from tree(library, LIBRARY, {*LEFT_OUT, *left_out})


def _shared_library(base: Path) -> Iterator[Placed]:
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return
    name = sysconfig.get_config_var("INSTSONAME")
    for folder in (base / "lib", Path(sysconfig.get_config_var("LIBDIR") or base / "lib")):
        if (folder / name).is_file():
            yield Placed(folder / name, f"lib/{name}")
            return
    raise OperationError(f"this Python needs {name}, which is not in {base / 'lib'}: use a Python that has it there")


def described() -> str:
    """Describe in a few words which machines can run this Python."""
    libc, version = platform.libc_ver()
    needs = f", {libc} {version} or newer" if libc else ""
    return f"Python {platform.python_version()} for {sysconfig.get_platform()}{needs}"
