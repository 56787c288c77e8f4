"""What programs, files and clients of others name: options, and the requests of the REST API.

`python -m tests.golden.interfaces` adds what is new to `interfaces/`, where each release leaves what it had. A line
leaves these files only for a release that may break it (docs/compatibility.md), with a line under *Removed* or
*Changed* in the changelog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.base.options import REGISTRY
from penstock.server.rest import application

DIRECTORY = Path(__file__).parent / "interfaces"
OPTIONS = DIRECTORY / "options.tsv"
REST = DIRECTORY / "rest.tsv"


def list_options() -> dict[str, str]:
    """The type and the default of each option, by key."""
    return {
        key: f"{option.value_type().name}\t{json.dumps(option.default_value(), default=str)}"
        for key, option in REGISTRY.items()
    }


def list_requests() -> dict[str, str]:
    """The parts of each request and answer of the REST API, by method and path."""
    document = application.document(application.ROUTES, "cookie")
    schemas = document["components"]["schemas"]
    return {
        f"{method.upper()} {path}": " ".join(sorted(list_parts(operation, schemas)))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def list_parts(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> set[str]:
    """The query parameters of a request, and the codes and fields of its answers when it succeeds."""
    parts = {f"?{each['name']}" for each in operation.get("parameters", ()) if each["in"] == "query"}
    for code, answer in operation["responses"].items():
        if code.startswith("2"):
            parts.add(code)
            for kind, content in answer.get("content", {}).items():
                parts.add(kind)
                name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
                parts |= set(schemas.get(name, {}).get("properties", ()))
    return parts


def read(path: Path) -> dict[str, str]:
    """The lines of a file by their first column."""
    return dict(line.split("\t", 1) for line in path.read_text().splitlines())


def main() -> None:
    """Write the files, with what they had."""
    DIRECTORY.mkdir(exist_ok=True)
    for path, present in (OPTIONS, list_options()), (REST, list_requests()):
        lines = {**present, **(read(path) if path.exists() else {})}
        path.write_text("".join(f"{key}\t{text}\n" for key, text in sorted(lines.items())))


if __name__ == "__main__":
    main()
