"""Writes the tables of options on the pages of connectors and formats, or says whether they are as the code has them.

scripts/run python scripts/connectors.py docs/table-connectors.md docs/formats.md
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.base.config_options import ConfigOption
from penstock.sql.connectors.built_in import built_in
from penstock.sql.connectors.datagen import FIELD_OPTIONS
from penstock.sql.formats import built_in_formats

MARKED = re.compile(r"(<!-- options of ([\w.#-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def format_options_table(name: str) -> str:
    """The options of a connector, of `format.` and a format's name, or of the fields of datagen."""
    if name == "fields.#":
        return _table([(f"fields.#.{one.key()}", one, False) for one in FIELD_OPTIONS])
    if name.startswith("format."):
        found = next(one for one in built_in_formats() if f"format.{one.name}" == name)
        return _table([(f"{found.name}.{one.key()}", one, False) for one in found.options])
    connector = built_in().find(name)
    if connector is None:
        raise SystemExit(f"there is no connector {name}")
    required = [(one.key(), one, True) for one in connector.required_options]
    return _table([*required, *((one.key(), one, False) for one in connector.optional_options)])


def _table(options: Sequence[tuple[str, ConfigOption[Any], bool]]) -> str:
    lines = ["| option | type | default | description |\n| --- | --- | --- | --- |\n"]
    for key, option, is_required in options:
        default = "required" if is_required else _shown(option)
        description = option.description().replace("|", "\\|")
        lines.append(f"| `{key}` | {option.value_type().name} | {default} | {description} |\n")
    return "".join(lines)


def _shown(option: ConfigOption[Any]) -> str:
    if not option.has_default_value():
        return ""
    value, kind = option.default_value(), option.value_type().name
    if kind == "duration":
        return f"`{value // 1000} s`" if value % 1000 == 0 else f"`{value} ms`"
    if kind == "memory size":
        return f"`{value >> 20} mb`" if value and value % (1 << 20) == 0 else f"`{value} b`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def page(text: str) -> str:
    """The page with all its tables made anew."""
    return MARKED.sub(lambda found: f"{found[1]}{format_options_table(found[2])}{found[3]}", text)


def main() -> int:
    """Write the pages; with --check only compare, and answer 1 if one is old."""
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    texts = {path: path.read_text() for path in arguments.paths}
    if arguments.check:
        return int(any(page(text) != text for text in texts.values()))
    for path, text in texts.items():
        path.write_text(page(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
