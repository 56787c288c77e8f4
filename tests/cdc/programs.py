"""Pipelines of tests, from a script of events to what a target has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.cdc.definition import parse_definition
from penstock.cdc.pipeline import build_pipeline, create_environment

CUPS: list[dict[str, Any]] = [
    {"create": "shop.cups", "columns": {"id": "BIGINT NOT NULL", "name": "STRING"}, "primary-key": ["id"]},
    {"insert": "shop.cups", "row": {"id": 1, "name": "mug"}},
    {"insert": "shop.cups", "row": {"id": 2, "name": "jar"}},
    {"update": "shop.cups", "before": {"id": 1, "name": "mug"}, "after": {"id": 1, "name": "pot"}},
    {"delete": "shop.cups", "row": {"id": 2, "name": "jar"}},
]


def write_events(path: Path, lines: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run_pipeline(folder: Path, lines: Sequence[dict[str, Any]], sink: str, rest: str = "", pipeline: str = "") -> None:
    """Run a pipeline over events to its end, in this process."""
    path = write_events(folder / "events.jsonl", lines)
    text = f"""
source: {{type: values, path: {path}}}
sink: {sink}
{rest}
pipeline: {{name: A test, local-time-zone: UTC, {pipeline} flink-conf: {{execution.target: local}}}}
"""
    definition = parse_definition(text)
    env = create_environment(definition)
    build_pipeline(env, definition)
    env.execute(definition.name)


def iceberg_sink(folder: Path) -> str:
    return f"{{type: iceberg, catalog.properties.type: hadoop, catalog.properties.warehouse: {folder}/lake}}"


def read_iceberg(folder: Path, table: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns and the rows of a table, in the order of its first column."""
    from penstock.connectors.iceberg.tables import CatalogLoader

    catalog = CatalogLoader.of("test", {"type": "hadoop", "warehouse": f"{folder}/lake"}).load_catalog()
    found = catalog.load_table(tuple(table.split(".")))
    columns = [field.name for field in found.schema().fields]
    rows = found.scan().to_arrow().select(columns).to_pylist()
    return columns, sorted(rows, key=lambda row: repr(row))
