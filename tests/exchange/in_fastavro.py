"""The side of fastavro, which is Avro's own types in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro  # type: ignore[import-not-found]
from tests.exchange.cases import ROWS, Case, pick_value
from tests.exchange.working import Program, main


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _long(logical: str) -> dict[str, Any]:
    return {"type": "long", "logicalType": logical}


_FIELDS = [{"name": "x", "type": ["null", "int"]}, {"name": "y", "type": ["null", "string"]}]
_TYPES: dict[str, Any] = {
    "bool": "boolean",
    "tiny": "int",
    "small": "int",
    "whole": "int",
    "big": "long",
    "single": "float",
    "twice": "double",
    "dec9": _decimal(9, 2),
    "dec18": _decimal(18, 4),
    "dec38": _decimal(38, 18),
    "txt": "string",
    "bin": "bytes",
    "dat": {"type": "int", "logicalType": "date"},
    "clock": {"type": "int", "logicalType": "time-millis"},
    "ts3": _long("local-timestamp-millis"),
    "ts6": _long("local-timestamp-micros"),
    "tsold": _long("local-timestamp-millis"),
    "ltz3": _long("timestamp-millis"),
    "ltz6": _long("timestamp-micros"),
    "arr": {"type": "array", "items": ["null", "int"]},
    "dict": {"type": "map", "values": ["null", "int"]},
    "rec": {"type": "record", "name": "rec", "fields": _FIELDS},
}


class FastAvro(Program):
    """Object container files with blocks of snappy."""

    formats = ("avro",)

    def write(self, form: str, path: str, cases: list[Case]) -> None:
        """See `Program`."""
        fields = [{"name": one.name, "type": ["null", _TYPES[one.name]]} for one in cases]
        schema = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "int"}, *fields]}
        rows = [{"id": row, **{one.name: pick_value(one, row) for one in cases}} for row in range(ROWS)]
        Path(path).mkdir(parents=True)
        with Path(path, "part-0").open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(schema), rows, codec="snappy")

    def read(self, form: str, path: str, cases: list[Case]) -> list[tuple[Any, ...]]:
        """See `Program`."""
        rows: list[tuple[Any, ...]] = []
        for file in Path(path).rglob("*"):
            if file.is_file() and file.name[0] not in "._":
                with file.open("rb") as stream:
                    rows += [(row["id"], *(row[one.name] for one in cases)) for row in fastavro.reader(stream)]
        return rows


if __name__ == "__main__":
    main(FastAvro())
