"""Former names of modules. Savepoints and users' code may still use them.

Modules were merged into larger ones and moved into rooms by feature. A pickle names a class by its module, and a user's
connector imports what it derives from. So importing a former name gives the module that has its contents now. The names
are in `moved_modules.txt`: each line has a former name, and the present one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.resources import files
from importlib.util import find_spec
from types import ModuleType
from typing import Final

_PACKAGE: Final = "penstock."


@cache
def moved_modules() -> Mapping[str, str]:
    """Return the present name of each former module, without `penstock.`."""
    lines = files("penstock").joinpath("moved_modules.txt").read_text().splitlines()
    return dict(line.split() for line in lines)


@cache
def _former_packages() -> frozenset[str]:
    """Return the modules that have former names below them, by the names of today and of then."""
    moved = moved_modules()
    parents = {old.rpartition(".")[0] for old in moved}
    return frozenset(_PACKAGE + moved.get(parent, parent) for parent in parents)


@cache
def _former_names_in_present_packages() -> Mapping[str, str]:
    """Return the present name of former modules whose package has moved, below the present name of the package.

    `from former.package import module` looks there, because the package has its present name. Names that two former
    packages had are left out.
    """
    moved = moved_modules()
    present: dict[str, set[str]] = {}
    for old, new in moved.items():
        parent, _, leaf = old.rpartition(".")
        if parent in moved:
            present.setdefault(f"{moved[parent]}.{leaf}", set()).add(new)
    return {name: new for name, (new, *others) in present.items() if not others}


class _Alias(Loader):
    """Loads a former name as the module that has its contents now."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        former = name.removeprefix(_PACKAGE)
        present = moved_modules().get(former) or _former_names_in_present_packages()[former]
        sys.modules[name] = import_module(_PACKAGE + present)
        sys.modules[name.rpartition(".")[0]].__class__ = _ParentOfFormer


class _ParentOfFormer(ModuleType):
    """Keeps its own names. After an import Python sets the module on its parent, where a function may have its name."""

    def __setattr__(self, name: str, value: object) -> None:
        own = f"{self.__name__}.{name}"
        is_former = isinstance(value, ModuleType) and value.__name__ != own
        if not (is_former and (name in self.__dict__ or find_spec(own) is not None)):
            super().__setattr__(name, value)


class MovedModules(MetaPathFinder):
    """Finds modules by their former names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a loader for a former name, and None for other names.

        A module that once was a package gets an empty path: Python looks for former names below it only if it has one.
        """
        if not fullname.startswith(_PACKAGE):
            return None
        if fullname.removeprefix(_PACKAGE) in moved_modules():
            return ModuleSpec(fullname, _Alias())
        is_former = fullname.removeprefix(_PACKAGE) in _former_names_in_present_packages()
        if not is_former and fullname not in _former_packages():
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None:
            return ModuleSpec(fullname, _Alias()) if is_former else None
        if fullname in _former_packages() and spec.submodule_search_locations is None:
            spec.submodule_search_locations = []
        return spec


def install() -> None:
    """Make former names importable in this process."""
    if not any(type(finder) is MovedModules for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
