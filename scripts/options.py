"""Writes the page of all options from the code, or says whether it is as the code makes it.

scripts/run python scripts/options.py docs/options.md
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from penstock.base import lineage, options, server_options
from penstock.base import metrics as metric_options
from penstock.base.config_options import BYTES_COUNT, DURATION_MS, ConfigOption, render

BEGIN = """# All options

This page is generated from [`options.py`](../src/penstock/base/options.py) and
[`metrics.py`](../src/penstock/base/metrics.py) by `make options`; a test
checks that it is up to date. To set options in a program, see [running.md](running.md#configuration).

Keys are Flink's where Flink has the option. Penstock's own begin with `penstock.`, or belong to a part of Flink's
tree (`execution.micro-batch.`). All keys under `spark.` are passed to a Spark session that Penstock starts. A
duration is a number of milliseconds, or a string such as `20 ms`, `10 s`, `5 min`; a size is a number of bytes, or a
string such as `64 mb`. An option without a default is unset.
"""
_MODULES = (options, server_options, lineage, metric_options)
HEADING = re.compile(r"^# ([A-Z][^-]+?) -{3,}$", re.MULTILINE)
UNITS_MS = [("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)]
UNITS_BYTES = [("mb", 1 << 20), ("kb", 1 << 10), ("bytes", 1)]


def page() -> str:
    """The text of the page."""
    source = "".join(Path(str(module.__file__)).read_text() for module in _MODULES)
    headings = [(found.start(), found[1]) for found in HEADING.finditer(source)]
    sections: dict[str, list[str]] = {heading: [] for _, heading in headings}
    for key, option in options.REGISTRY.items():
        place = source.index(f'"{key}"')
        section = [heading for start, heading in headings if start < place][-1]
        sections[section].append(_row(key, option))
    parts = [BEGIN]
    for heading, rows in sections.items():
        parts.append(f"\n## {heading}\n\n| key | value | default | |\n| --- | --- | --- | --- |\n" + "".join(rows))
    return "".join(parts)


def _row(key: str, option: ConfigOption[object]) -> str:
    kind = option.value_type().name
    if kind.startswith("one of "):
        kind = ", ".join(f"`{word}`" for word in kind.removeprefix("one of ").split(", "))
    return f"| `{key}` | {kind} | {_default(option)} | {option.description()} |\n"


def _default(option: ConfigOption[object]) -> str:
    value, kind = option.default_value(), option.value_type().name
    if value is None:
        return ""
    if kind == DURATION_MS.name and isinstance(value, int) and value:
        return f"`{_in_units(value, UNITS_MS)}`"
    if kind == BYTES_COUNT.name and isinstance(value, int) and value:
        return f"`{_in_units(value, UNITS_BYTES)}`"
    text = render(value)
    return f"`{text}`" if text else ""


def _in_units(value: int, units: list[tuple[str, int]]) -> str:
    unit, size = next((unit, size) for unit, size in units if value % size == 0)
    return f"{value // size} {unit}"


def main() -> int:
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
