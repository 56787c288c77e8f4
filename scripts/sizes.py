"""Measures how much code there is to carry: files, lines, imports, and small modules that one other module imports.

    python scripts/sizes.py [ROOT] [--small]

ROOT is a checkout, by default this one; its simulator is left out of the lines of code. `--small` lists the modules
of at most 60 lines that one module imports.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

SMALL_LINES = 60
SIMULATION = "drivers/simulation"
_IGNORED = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def read_modules(root: Path) -> dict[str, str]:
    """Return the source of each module below `src/penstock`, by path."""
    source = root / "src" / "penstock"
    return {str(path.relative_to(source)): path.read_text() for path in sorted(source.rglob("*.py"))}


def count_import_lines(text: str) -> int:
    """Count the lines of import statements anywhere in a module."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in nodes)


def count_code_lines(text: str) -> int:
    """Count the lines that are not blank and not only a comment or a docstring."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _IGNORED:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def find_small_modules(modules: dict[str, str]) -> list[str]:
    """Return the modules of at most 60 lines that exactly one other module imports."""
    names = {
        "penstock." + path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in modules
    }
    importers: Counter[str] = Counter()
    for path, text in modules.items():
        imported: set[str] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                imported.update(name if name in names else node.module for name in full)
        importers.update(names[name] for name in imported if name in names and names[name] != path)
    return [
        path
        for path, text in modules.items()
        if importers[path] == 1 and text.count("\n") <= SMALL_LINES and not path.endswith("__init__.py")
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    modules = read_modules(arguments.root)
    lines = sum(text.count("\n") for text in modules.values())
    imports = sum(map(count_import_lines, modules.values()))
    code = sum(count_code_lines(text) for path, text in modules.items() if not path.startswith(SIMULATION))
    small = find_small_modules(modules)
    print(f"{len(modules)} source files; {lines / len(modules):.0f} lines on average; {imports / lines:.1%} imports")
    print(f"{code} lines of code without {SIMULATION}")
    print(f"{len(small)} modules of at most {SMALL_LINES} lines that one module imports")
    if arguments.small:
        print(*small, sep="\n")


if __name__ == "__main__":
    sys.exit(main())
