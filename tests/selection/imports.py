"""Which files of tests import a module, through however many others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import grimp
from tests.selection.rooms import is_test

#: the packages whose imports count, by the folders that hold them
_SOURCES: Final = {"penstock": "src/", "tests": "", "benchmarks": "", "examples": ""}


class Imports:
    """The imports of the repository, those inside functions too, without those for types."""

    def __init__(self, root: Path) -> None:
        packages = [name for name, folder in _SOURCES.items() if (root / folder / name).is_dir()]
        self._graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
        self.tests = frozenset(path for name in self._graph.modules if is_test(path := f"{name.replace('.', '/')}.py"))

    def find_importers(self, paths: Iterable[str]) -> set[str]:
        """The files of tests that need a module of these paths, and those below a `conftest.py` that does.

        The one of all tests does not count: the table says of what it needs that everything needs it.
        """
        changed = {module for path in paths for module in self._find_modules(path)}
        reached = changed.union(*(self._graph.find_downstream_modules(module) for module in changed))
        found = {path for name in reached if (path := f"{name.replace('.', '/')}.py") in self.tests}
        folders = tuple(f"{name.replace('.', '/')}/" for name in _find_folders_of_conftests(reached))
        return found | {path for path in self.tests if path.startswith(folders)}

    def find_outsiders(self) -> set[str]:
        """The files of tests that import nothing of the package: they start it as a program."""
        inside = {"penstock", *self._graph.find_descendants("penstock")}
        reached = inside.union(*(self._graph.find_downstream_modules(module) for module in inside))
        return {path for path in self.tests if path.removesuffix(".py").replace("/", ".") not in reached}

    def _find_modules(self, path: str) -> Iterator[str]:
        """The module of a path; a package's `__init__.py` stands for all that is inside."""
        if not path.endswith(".py"):
            return
        name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        package = name.removesuffix(".__init__")
        if package in self._graph.modules:
            yield package
            if package != name:
                yield from self._graph.find_descendants(package)


def _find_folders_of_conftests(modules: Iterable[str]) -> list[str]:
    names = [name.removesuffix(".conftest") for name in modules if name.endswith(".conftest")]
    return [name for name in names if name != "tests"]
