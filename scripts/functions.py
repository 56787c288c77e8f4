"""Writes the page of all functions of SQL from the code, or says whether it is as the code makes it.

scripts/run python scripts/functions.py docs/sql-functions.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from penstock.sql.functions.aggregates import AGGREGATE_FUNCTIONS, AggregateFunction
from penstock.sql.functions.registry import SCALAR_FUNCTIONS

BEGIN = """# All functions of SQL

This page is generated from the [functions themselves](../src/penstock/sql/functions) by `make functions`; a test
checks that it is up to date. Functions have Flink's names, arguments and results, including NULL and result types.
Scalar functions process whole columns. Subexpressions that are the same for all rows are computed once, when the query
is planned.
"""
SECTIONS = {
    "comparison": "Comparisons",
    "logic": "Logic",
    "arithmetic": "Arithmetic",
    "string": "Text",
    "time": "Time",
    "conditional": "Conditions",
    "type conversion": "Types",
    "collection": "Collections",
    "value construction": "Construction",
    "value access": "Access",
    "structured types": "Structured types",
    "json": "JSON",
    "variant": "Variants",
    "hash": "Hashes",
    "bitmap": "Bitmaps",
}


def page() -> str:
    """The text of the page."""
    rows: dict[str, list[str]] = {heading: [] for heading in SECTIONS.values()}
    for name, function in sorted(SCALAR_FUNCTIONS.items()):
        if name == function.name and function.section:
            rows[SECTIONS[function.section]].append(f"| {_code(function.usage)} | {_text(function.summary)} |\n")
    parts = [BEGIN]
    for heading, found in rows.items():
        parts.append(f"\n## {heading}\n\n| | |\n| --- | --- |\n" + "".join(found))
    aggregates = [f"| {_code(_usage(one))} | {_text(one.summary)} |\n" for one in AGGREGATE_FUNCTIONS.values()]
    parts.append("\n## Aggregates, and functions over windows\n\n| | |\n| --- | --- |\n" + "".join(sorted(aggregates)))
    return "".join(parts)


def _usage(function: AggregateFunction) -> str:
    return f"{function.name}(…) OVER (…)" if function.only_over else f"{function.name}(…)"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _text(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when the page is not as it should be")
    arguments = parser.parse_args()
    text = page()
    if arguments.check:
        return int(not arguments.path.exists() or arguments.path.read_text() != text)
    arguments.path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
