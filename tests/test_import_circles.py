"""No module imports itself by way of others when it is imported, and no package does.

Imports for types and inside functions do not count: they let a feature name its neighbours without hooks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"

# The circles that are left, each by its first member. A line goes when its circle is gone; none is added.
# fmt: off
MODULES_LEFT: frozenset[str] = frozenset()
PACKAGES_LEFT: frozenset[str] = frozenset()
# fmt: on


def modules() -> dict[str, Path]:
    """All modules by their dotted names; a package goes by its own name."""
    paths = {".".join(path.relative_to(SRC).with_suffix("").parts): path for path in SRC.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


def import_time(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from import_time(child)


def imported(source: str, known: Iterable[str]) -> set[str]:
    """The known modules that a source imports when it is imported itself."""
    names: set[str] = set()
    for node in import_time(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            names.update(name if name in known else node.module for name in submodules)
    return names.intersection(known)


@cache
def module_graph() -> dict[str, set[str]]:
    """Module -> the modules that it imports."""
    known = modules()
    return {name: imported(path.read_text(), known) - {name} for name, path in known.items()}


def package_graph(graph: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Package -> the packages that its own modules import; its subpackages are packages of their own."""
    paths = modules()

    def package(name: str) -> str:
        return name if paths[name].name == "__init__.py" else name.rpartition(".")[0]

    found: dict[str, set[str]] = {package(name): set() for name in graph}
    for name, targets in graph.items():
        found[package(name)].update(package(target) for target in targets)
    return {name: targets - {name} for name, targets in found.items()}


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of two members and more, with their members sorted (Tarjan)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], index[target])
        if lowest[name] == index[name]:
            begin = stack.index(name)
            members, stack[begin:] = stack[begin:], []
            if len(members) > 1:
                found.append(sorted(members))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def changes(graph: Mapping[str, Iterable[str]], left: frozenset[str]) -> list[str]:
    """A line for each circle that the list of those that are left does not have, and for each that it has in vain."""
    found = {f"{circle[0].removeprefix('penstock.')} and {len(circle) - 1} more": circle for circle in circles(graph)}
    new = [f"a new circle, {name!r}: {', '.join(found[name])}" for name in sorted(found.keys() - left)]
    return [*new, *(f"no circle any more, take it off the list: {name!r}" for name in sorted(left - found.keys()))]


def test_modules_import_in_one_direction() -> None:
    found = changes(module_graph(), MODULES_LEFT)
    assert not found, "\n".join(found)


def test_packages_import_in_one_direction() -> None:
    found = changes(package_graph(module_graph()), PACKAGES_LEFT)
    assert not found, "\n".join(found)


def test_a_circle_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str]()}
    assert circles(graph) == [["a", "b", "c"]]
    assert len(changes(graph, frozenset())) == 1
    assert not changes(graph, frozenset({"a and 2 more"}))


def test_a_circle_that_is_gone_leaves_the_list() -> None:
    assert len(changes({"a": set()}, frozenset({"a and 2 more"}))) == 1


def test_imports_that_do_not_run_at_import_time_do_not_count() -> None:
    source = "import a\nif TYPE_CHECKING:\n    import t\ndef f():\n    from b.d import e\ntry:\n    from b import c\n"
    source += "finally:\n    pass\n"
    assert imported(source, {"a", "b", "b.c", "b.d", "t"}) == {"a", "b.c"}
