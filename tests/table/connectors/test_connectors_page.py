"""The options on the pages of connectors and formats are those of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.sql.connectors.built_in import built_in
from penstock.sql.formats import built_in_formats

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "table-connectors.md"
FORMATS = ROOT / "docs" / "formats.md"


def test_the_pages_are_as_the_code_makes_them() -> None:
    """Nobody has to look into the code for an option."""
    command = [sys.executable, str(ROOT / "scripts" / "connectors.py"), str(PAGE), str(FORMATS), "--check"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0, "run `make connectors`"


def test_each_connector_and_format_with_options_is_on_the_page() -> None:
    """And each option says what it does. Connectors that differ in their names alone share a table."""
    text = PAGE.read_text()
    connectors = {name: built_in().find(name) for name in built_in().names()}
    shown = [
        (connector.required_options, connector.optional_options)
        for name, connector in connectors.items()
        if connector is not None and f"<!-- options of {name} -->" in text
    ]
    for name in connectors:
        connector = built_in().find(name)
        assert connector is not None
        options = [*connector.required_options, *connector.optional_options]
        assert not options or (connector.required_options, connector.optional_options) in shown, name
        assert all(one.description() for one in options if one.key() != "connector")
    text = FORMATS.read_text()
    for one in built_in_formats():
        assert f"<!-- options of format.{one.name} -->" in text
        assert all(option.description() for option in one.options)
