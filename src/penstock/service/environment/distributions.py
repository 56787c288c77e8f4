"""The packages that go into the archive, and their files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Final

import penstock
from penstock.base.errors import OperationError, UnknownNameError
from penstock.service.environment.placed import PACKAGES, Placed, tree, with_bytecode

OWN: Final = "penstock"
#: Spark provides these packages itself, in its own version.
SPARKS: Final = frozenset({"py4j", "pyspark"})
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
    names = _closure({*kept, OWN}, among) if kept else set(among)
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
