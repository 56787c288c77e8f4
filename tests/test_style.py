"""Style is a test: the rules of the house that no linter knows."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
FILES = sorted(SRC.rglob("*.py"))
LINES_MAX = 800

# The core is handed its time, chance, network and storage through ports; nothing else may reach it.
# fmt: off
CORE_MODULES_BANNED = frozenset({
    "asyncio", "concurrent", "multiprocessing", "os", "pathlib", "random", "secrets", "select", "selectors",
    "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "uuid", "zmq",
})
# fmt: on
CORE_CALLS_BANNED = frozenset({"date.today", "datetime.now", "datetime.today", "datetime.utcnow", "input", "open"})


def too_long(path: Path, source: str) -> Iterator[str]:
    """No file grows past what a reader can hold in the head."""
    lines = source.count("\n")
    if lines > LINES_MAX:
        yield f"1: {lines} lines, at most {LINES_MAX}; would a newcomer see two ideas in it?"


def undocumented(path: Path, source: str) -> Iterator[str]:
    """Every module says what it is for."""
    if not ast.get_docstring(ast.parse(source)):
        yield "1: no module docstring"


def leftover_marker(path: Path, source: str) -> Iterator[str]:
    """What is left to do is an issue, not a comment."""
    for number, line in enumerate(source.splitlines(), start=1):
        if found := re.search(r"\b(FIXME|TODO|XXX)\b", line):
            yield f"{number}: {found[0]}"


def printing(path: Path, source: str) -> Iterator[str]:
    """Only commands print; a library logs."""
    parts = path.relative_to(SRC).with_suffix("").parts
    if {"cli"}.isdisjoint(parts):
        yield from (f"{line}: print()" for line, name in calls(source) if name == "print")


def impure_core(path: Path, source: str) -> Iterator[str]:
    """The core decides from its events alone, so that a history can be replayed."""
    if path.relative_to(SRC).parts[:2] != ("penstock", "runtime"):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        else:
            continue
        yield from (f"{node.lineno}: imports {m}" for m in modules if m.split(".")[0] in CORE_MODULES_BANNED)
    for line, name in calls(source):
        if ".".join(name.split(".")[-2:]) in CORE_CALLS_BANNED:
            yield f"{line}: calls {name}()"


def heavy_base(path: Path, source: str) -> Iterator[str]:
    """What every layer uses needs nothing but the standard library."""
    if path.relative_to(SRC).parts[:2] != ("penstock", "base"):
        return
    for node in ast.walk(ast.parse(source)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            if module.split(".")[0] not in sys.stdlib_module_names and not module.startswith("penstock.base"):
                yield f"{node.lineno}: imports {module}"  # type: ignore[attr-defined]


def calls(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every call."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.lineno, ast.unparse(node.func)


@pytest.mark.parametrize("rule", [too_long, undocumented, leftover_marker, printing, impure_core, heavy_base])
def test_source_keeps_rule(rule: Callable[[Path, str], Iterator[str]]) -> None:
    found = [f"{path.relative_to(SRC.parent)}:{breach}" for path in FILES for breach in rule(path, path.read_text())]
    assert not found, "\n".join([str(rule.__doc__), *found])


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (too_long, "x = 1\n" * (LINES_MAX + 1)),
        (undocumented, "x = 1\n"),
        (leftover_marker, "# TODO: later\n"),
        (printing, "print(1)\n"),
        (impure_core, "import os.path\n"),
        (impure_core, "from time import monotonic\n"),
        (impure_core, "open('x')\n"),
        (impure_core, "datetime.datetime.now()\n"),
        (heavy_base, "def f():\n    import numpy\n"),
        (heavy_base, "from penstock.runtime.records import Batch\n"),
    ],
)
def test_rule_sees_breach(rule: Callable[[Path, str], Iterator[str]], source: str) -> None:
    package = "base" if rule is heavy_base else "runtime"
    assert list(rule(SRC / "penstock" / package / "module.py", source))
