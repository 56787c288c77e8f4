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
from importlib.machinery import ModuleSpec
from importlib.resources import files
from types import ModuleType
from typing import Final

_PACKAGE: Final = "penstock."


@cache
def moved_modules() -> Mapping[str, str]:
    """Return the present name of each former module, without `penstock.`."""
    lines = files("penstock").joinpath("moved_modules.txt").read_text().splitlines()
    return dict(line.split() for line in lines)


class _Alias(Loader):
    """Loads a former name as the module that has its contents now."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = import_module(_PACKAGE + moved_modules()[name.removeprefix(_PACKAGE)])


class MovedModules(MetaPathFinder):
    """Finds modules by their former names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a loader for a former name, and None for all other names."""
        if fullname.startswith(_PACKAGE) and fullname.removeprefix(_PACKAGE) in moved_modules():
            return ModuleSpec(fullname, _Alias())
        return None


def install() -> None:
    """Make former names importable in this process."""
    if not any(type(finder) is MovedModules for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
