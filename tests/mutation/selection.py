"""Which tests a bug in a module is run against: the files that import the module, themselves or by test helpers."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from functools import lru_cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: folders of the package below which bugs are planted
FOLDERS: Final = ("core", "state", "storage", "connectors", "table/streaming", "operations/rest")


def modules() -> dict[str, str]:
    """The texts of the modules in which bugs are planted, by their paths."""
    source = ROOT / "src" / "penstock"
    paths = [path for folder in FOLDERS for path in sorted((source / folder).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths if path.name != "__init__.py"}


def name_of(path: str) -> str:
    """The module of a path below `src`."""
    return ".".join(Path(path).with_suffix("").parts[1:])


def importers_of(path: str) -> list[str]:
    """The test files for a module's path: those that import it themselves first, then those that do by helpers.

    Where none does, those of the folder that mirrors the module's, or else of the first folder above that exists.
    """
    importers, _ = _graph()
    found: dict[str, int] = {}
    waiting = deque((file, 0) for file in sorted(importers[name_of(path)]))
    seen = {file for file, _ in waiting}
    while waiting:
        file, distance = waiting.popleft()
        if Path(file).name.startswith("test_"):
            found.setdefault(file, distance)
        for other in sorted(importers[_test_module(file)]):
            if other not in seen:
                seen.add(other)
                waiting.append((other, distance + 1))
    if not found:
        return _mirrored(path)
    return sorted(found, key=lambda file: (found[file], (ROOT / file).stat().st_size))


def _mirrored(path: str) -> list[str]:
    parts = Path(path).parts[2:-1]
    while parts:
        folder = ROOT / "tests" / Path(*parts)
        if folder.is_dir():
            return [str(file.relative_to(ROOT)) for file in sorted(folder.rglob("test_*.py"))]
        parts = parts[:-1]
    return []


def _test_module(file: str) -> str:
    return ".".join(Path(file).with_suffix("").parts)


@lru_cache(maxsize=1)
def _graph() -> tuple[dict[str, set[str]], list[str]]:
    """By a module the files of tests that import it."""
    importers: dict[str, set[str]] = defaultdict(set)
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("*.py"))]
    for file in files:
        for name in _imported((ROOT / file).read_text()):
            importers[name].add(file)
    return importers, files


def _imported(text: str) -> set[str]:
    """The modules that a file imports; `from a.b import c` may be the module a.b or a.b.c."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith(("penstock", "tests"))}
