"""`penstock package-env`: packs this Python and its packages into one archive, which Spark unpacks for executors.

The archive includes an interpreter, so executors need no Python. It is not a virtual environment, whose Python is a
link to one elsewhere on the same machine. A Python started as `environment/bin/python` finds its library relative to
itself, wherever that is. Tools for virtual environments (venv-pack) leave the interpreter out, and reject an
environment that contains a package installed from source, such as Penstock itself.

PySpark is left out: each cluster manager of Spark puts the PySpark of its own release on the executors' path, and the
jars of PySpark make up most of an environment's size.

**Contents.** The archive holds the interpreter, which is its executable and its standard library, and the files of the
chosen packages. Each file is `Placed` at a path in the archive.

**The archive.** `write` writes the files into a compressed tar, which appears only when it is complete. The same files
produce the same bytes.

**Use.** `submit_commands` returns the commands with which Spark sends an archive to its executors.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import itertools
import json
import os
import platform
import re
import shlex
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import penstock
from penstock.base.errors import DISTRIBUTION, OperationError, ResourceError, UnknownNameError, WrongValueError

#: The library's folder in the archive; an interpreter finds it relative to its own place in `bin`.
LIBRARY: Final = f"{sys.platlibdir}/python{sys.version_info[0]}.{sys.version_info[1]}"
PACKAGES: Final = f"{LIBRARY}/site-packages"


class Placed(NamedTuple):
    """A file and its place in the archive."""

    source: Path
    target: str


def with_bytecode(source: Path, target: str) -> Iterator[Placed]:
    """Yield a file and, if it exists, its compiled form, so that executors need not compile their imports."""
    yield Placed(source, target)
    if source.suffix == ".py":
        compiled = Path(importlib.util.cache_from_source(str(source)))
        if compiled.is_file():
            folder = target.rpartition("/")[0]
            yield Placed(compiled, f"{folder}/__pycache__/{compiled.name}")


def tree(folder: Path, target: str, without: Collection[str] = ()) -> Iterator[Placed]:
    """Yield all files below a folder, except the folder's entries with the given names.

    Compiled files are included only if their source exists.
    """
    for entry in sorted(folder.iterdir()):
        if entry.name in without or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from tree(entry, f"{target}/{entry.name}")
        elif entry.is_file():
            yield from with_bytecode(entry, f"{target}/{entry.name}")


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


OWN: Final = DISTRIBUTION
#: Spark provides these packages itself, in its own version.
SPARKS: Final = frozenset({"py4j", "pyspark"})
#: PySpark's workers need these, although a Penstock without Spark does not.
WORKERS_NEED: Final = frozenset({"pandas"})
#: These install packages, which executors never do.
INSTALLERS: Final = frozenset({"pip", "uv"})
_NAME: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def normal(name: str) -> str:
    """Return the normalized name of a distribution, for comparisons."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, Distribution]:
    """Return all distributions that this Python finds, by name; of duplicates, the one that it imports."""
    by_name: dict[str, Distribution] = {}
    for distribution in distributions():
        if (name := distribution.metadata["Name"]) is not None:
            by_name.setdefault(normal(name), distribution)
    return by_name


def chosen(only: Iterable[str], exclude: Iterable[str], among: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return the distributions that go into the archive, always including Penstock.

    Args:
        only: include only these and their dependencies; all distributions if empty.
        exclude: leave these out.
        among: the installed distributions.

    Raises:
        UnknownNameError: if a name is not installed.
    """
    kept, dropped = ({_known(name, among) for name in names} for names in (only, exclude))
    _known(OWN, among)
    names = _closure({*kept, OWN, *WORKERS_NEED}, among) if kept else set(among)
    names -= dropped | SPARKS | INSTALLERS
    return {name: among[name] for name in sorted(names | {OWN})}


def _known(name: str, among: Collection[str]) -> str:
    if normal(name) not in among:
        raise UnknownNameError(
            f"{name} is not installed for {sys.executable}: install it, or give the name that `pip list` shows"
        )
    return normal(name)


def _closure(names: set[str], among: dict[str, Distribution]) -> set[str]:
    """Return these distributions and all their dependencies.

    An installed dependency is included whatever its marker says, unless it belongs to an extra.
    """
    todo, closure = list(names), set[str]()
    while todo:
        if (name := todo.pop()) in closure or name not in among:
            continue
        closure.add(name)
        for requirement in among[name].requires or ():
            words, _, marker = requirement.partition(";")
            if "extra" not in marker and (match := _NAME.match(words)):
                todo.append(normal(match[1]))
    return closure


def list_distribution_files(name: str, distribution: Distribution) -> Iterator[Placed]:
    """Yield the distribution's files; for Penstock, the files of this process, even if it is installed from source.

    Raises:
        OperationError: if the files are unknown; the message says what to do.
    """
    editable = is_editable(distribution)
    if editable and name != OWN:
        raise OperationError(
            f"{name} is installed from its source (`pip install -e`), so its files are not in this environment: "
            f"install it without -e, or leave it out with --exclude {name} and send it with --py-files"
        )
    if (files := distribution.files) is None:
        raise OperationError(
            f"it is not known which files are {name}'s, because pip did not install it: install it with pip, in a "
            f"virtual environment, or leave it out with --exclude {name}"
        )
    for path in files:
        if editable and (path.suffix == ".pth" or path.name in ("RECORD", "direct_url.json")):
            continue
        source = Path(str(distribution.locate_file(path)))
        if source.is_file() and (target := _target(PurePosixPath(path), source)) is not None:
            yield from with_bytecode(source, target)
    if editable:
        yield from tree(Path(penstock.__file__).parent, f"{PACKAGES}/penstock")


def is_editable(distribution: Distribution) -> bool:
    """Return whether the distribution is installed as a reference to its source (editable mode)."""
    given = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(given.get("dir_info", {}).get("editable"))


def _target(path: PurePosixPath, source: Path) -> str | None:
    """Return a file's path in the archive, or None for scripts, which name their Python.

    Data files next to the packages keep their place.
    """
    if ".." not in path.parts:
        return f"{PACKAGES}/{path}"
    location, prefix = Path(source.parent.resolve(), source.name), Path(sys.prefix).resolve()
    if not location.is_relative_to(prefix) or location.relative_to(prefix).parts[0] == "bin":
        return None
    return str(location.relative_to(prefix))


#: Spark chooses how to unpack an archive by these file extensions.
ENDINGS: Final = (".tar.gz", ".tgz")
#: A compromise between packing time and transfer time.
COMPRESSION: Final = 4


def check_output(output: Path, force: bool) -> None:
    """Check that the archive may be written there, before any work is done.

    Raises:
        WrongValueError: if Spark would not unpack an archive of this name.
        OperationError: if the file already exists and `force` is not set.
    """
    if not output.name.endswith(ENDINGS):
        raise WrongValueError(f"{output} is no name for the archive: Spark unpacks it only if it ends in .tar.gz")
    if output.exists() and not force:
        raise OperationError(f"{output} already exists; name another file, or replace it with --force")


def write(output: Path, files: Iterable[Placed], links: Mapping[str, str], programs: Mapping[str, str]) -> int:
    """Write the archive; return the total size of its unpacked files in bytes.

    Args:
        output: the archive's path; an existing file is replaced.
        files: the files to add; if two have the same target, the first wins.
        links: symbolic links and their destinations.
        programs: scripts and their text.

    Raises:
        ResourceError: if the file cannot be written.
    """
    unpacked = 0
    try:
        descriptor, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}-")
        try:
            with (
                os.fdopen(descriptor, "wb") as raw,
                gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
            ):
                for target, source in sorted({file.target: file.source for file in reversed([*files])}.items()):
                    unpacked += _add(archive, source, target)
                for target, destination in links.items():
                    link = tarfile.TarInfo(target)
                    link.type, link.linkname = tarfile.SYMTYPE, destination
                    archive.addfile(link)
                for target, text in programs.items():
                    program = tarfile.TarInfo(target)
                    program.mode, program.size = 0o755, len(text.encode())
                    archive.addfile(program, io.BytesIO(text.encode()))
            os.chmod(name, 0o644)
            os.replace(name, output)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ResourceError(f"{output} cannot be written: {error}") from None
    return unpacked


def _add(archive: tarfile.TarFile, source: Path, target: str) -> int:
    """Add a file without its owner, keeping only whether it is executable; return its size in bytes."""
    about = archive.gettarinfo(source, target)
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    about.mtime = int(about.mtime)  # a compiled module records the time of its source in whole seconds
    about.mode = 0o755 if about.mode & 0o111 else 0o644
    if not about.isreg():  # a hard link to a file that is already in the archive
        about.type, about.linkname = tarfile.REGTYPE, ""
        about.size = source.stat().st_size
    with source.open("rb") as content:
        archive.addfile(about, content)
    return about.size


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


MIB = 1 << 20


@dataclass(frozen=True)
class Package:
    """A finished archive. Sizes are in bytes; `packages` are names with versions."""

    path: Path
    size_bytes: int
    unpacked_bytes: int
    packages: tuple[str, ...]

    def report(self) -> Iterator[str]:
        """Yield lines that describe the archive and the commands with which Spark sends it to executors."""
        sizes = f"{self.size_bytes / MIB:,.1f} MiB, {self.unpacked_bytes / MIB:,.1f} MiB unpacked"
        yield f"{self.path}: {sizes}, {described()}"
        yield f"{len(self.packages)} packages: {', '.join(self.packages)}"
        yield "Without PySpark, because Spark gives executors its own."
        commands = submit_commands(str(self.path), "PROGRAM.py", sys.executable)
        for manager, words in commands.items():
            yield f"\n{manager}:"
            yield from (f"    {line}" for line in as_shown(words))


def package(output: Path, only: Sequence[str], exclude: Sequence[str], force: bool) -> Package:
    """Build an archive of this process's Python and packages.

    Args:
        output: the file to write.
        only: include only these distributions, Penstock, and their dependencies; all distributions if empty.
        exclude: distributions to leave out.
        force: whether to replace an existing file.

    Raises:
        PenstockError: if the archive cannot be built; the message says what to do.
    """
    check_output(output, force)
    distributions = chosen(only, exclude, installed())
    files = itertools.chain.from_iterable(
        list_distribution_files(name, distribution) for name, distribution in distributions.items()
    )
    unpacked = write(output, [*interpreter(), *files], LINKS, {"bin/python": LAUNCHER})
    names = tuple(f"{name} {distribution.version}" for name, distribution in distributions.items())
    return Package(output, output.stat().st_size, unpacked, names)
