"""Which tests a bug in a module is run against: those that import the module, or are called like it or its folder."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from functools import lru_cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: folders of the package below which bugs are planted
FOLDERS: Final = ("runtime", "state", "storage", "connectors", "sql/stream", "server/rest")
#: words that say nothing about what a module is about
_COMMON: Final = frozenset({"test", "operator", "streaming", "state", "core", "table", "base"})
#: with fewer files than this, those of the mirrored folder are run, too
_FEW: Final = 8
#: how many files of like names are run
_NAMED_MOST: Final = 12


def modules() -> dict[str, str]:
    """The texts of the modules in which bugs are planted, by their paths."""
    source = ROOT / "src" / "penstock"
    paths = [path for folder in FOLDERS for path in sorted((source / folder).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths if path.name != "__init__.py"}


def get_module_name(path: str) -> str:
    """The module of a path below `src`."""
    return ".".join(Path(path).with_suffix("").parts[1:])


def select_tests(path: str) -> list[str]:
    """The test files for a module's path, the nearest first.

    Those that import the module come first, then those whose names have words of the module or its folder, then those
    that import it by helpers. Where these are few, those of the folder that mirrors the module's, or of the first
    folder above that exists, come last.
    """
    distances = _importers(path)
    files = sorted(distances, key=lambda file: (distances[file], _size(file)))
    named = _named(path)
    nearest = [file for file in files if distances[file] == 0]
    chosen = list(dict.fromkeys(nearest + named + files))
    return chosen if len(chosen) >= _FEW else list(dict.fromkeys(chosen + _mirrored(path)))


def _importers(path: str) -> dict[str, int]:
    """The test files that import a module, and over how many helpers."""
    importers, _ = _graph()
    found: dict[str, int] = {}
    waiting = deque((file, 0) for file in sorted(importers[get_module_name(path)]))
    seen = {file for file, _ in waiting}
    while waiting:
        file, distance = waiting.popleft()
        if Path(file).name.startswith("test_"):
            found.setdefault(file, distance)
        for other in sorted(importers[_test_module(file)]):
            if other not in seen:
                seen.add(other)
                waiting.append((other, distance + 1))
    return found


def _size(file: str) -> int:
    return (ROOT / file).stat().st_size


def _named(path: str) -> list[str]:
    """The test files below the mirrored top folder that share words with the module or its folder, most words first."""
    parts = Path(path).with_suffix("").parts[2:]
    wanted = _words(parts[-1]) | _words(parts[-2])
    shared = {}
    for file in sorted((ROOT / "tests" / parts[0]).rglob("test_*.py")):
        count = len(wanted & (_words(file.stem) | _words(file.parent.name)))
        if count:
            shared[str(file.relative_to(ROOT))] = count
    return sorted(shared, key=lambda file: (-shared[file], _size(file)))[:_NAMED_MOST]


def _words(name: str) -> set[str]:
    """The words of a name, without endings that differ: `temporal_joins` has those of `test_temporal_join`."""
    return {word.rstrip("s") for word in name.split("_") if len(word) > 3} - _COMMON


def _mirrored(path: str) -> list[str]:
    parts = Path(path).parts[2:-1]
    while parts:
        folder = ROOT / "tests" / Path(*parts)
        if folder.is_dir():
            files = [str(file.relative_to(ROOT)) for file in sorted(folder.rglob("test_*.py"))]
            return sorted(files, key=_size)
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
