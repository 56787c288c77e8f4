"""The side of polars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars  # type: ignore[import-not-found]
from tests.exchange.cases import ROWS, Case, pick_value
from tests.exchange.working import Program, main


class Polars(Program):
    """Data frames."""

    formats = ("parquet", "avro")
    writes_each_alone = True

    def write(self, form: str, path: str, cases: list[Case]) -> None:
        """See `Program`."""
        columns: dict[str, Any] = {"id": polars.Series(range(ROWS), dtype=polars.Int32)}
        for one in cases:
            values = [pick_value(one, row) for row in range(ROWS)]
            if one.name == "dict":
                raise ValueError("polars has no maps")
            columns[one.name] = polars.Series(values, dtype=_TYPES[one.name], strict=True)
        Path(path).mkdir(parents=True)
        frame = polars.DataFrame(columns)
        (frame.write_parquet if form == "parquet" else frame.write_avro)(f"{path}/part-0")

    def read(self, form: str, path: str, cases: list[Case]) -> list[tuple[Any, ...]]:
        """See `Program`."""
        files = [one for one in Path(path).rglob("*") if one.is_file() and one.name[0] not in "._"]
        names = ["id", *(one.name for one in cases)]
        rows: list[tuple[Any, ...]] = []
        for file in files:
            frame = (polars.read_parquet if form == "parquet" else polars.read_avro)(file, columns=names)
            rows += frame.select(names).rows()
        return [tuple(_pairs(value, one) for value, one in zip(row, [None, *cases], strict=True)) for row in rows]


def _pairs(value: Any, case: Case | None) -> Any:
    """A map, which polars reads as a list of structs."""
    if case is None or case.name != "dict" or not isinstance(value, list):
        return value
    return {one["key"]: one["value"] for one in value}


_TYPES: dict[str, Any] = {
    "bool": polars.Boolean,
    "tiny": polars.Int8,
    "small": polars.Int16,
    "whole": polars.Int32,
    "big": polars.Int64,
    "single": polars.Float32,
    "twice": polars.Float64,
    "dec9": polars.Decimal(9, 2),
    "dec18": polars.Decimal(18, 4),
    "dec38": polars.Decimal(38, 18),
    "txt": polars.String,
    "bin": polars.Binary,
    "dat": polars.Date,
    "clock": polars.Time,
    "ts3": polars.Datetime("ms"),
    "ts6": polars.Datetime("us"),
    "tsold": polars.Datetime("ms"),
    "ltz3": polars.Datetime("ms", "UTC"),
    "ltz6": polars.Datetime("us", "UTC"),
    "arr": polars.List(polars.Int32),
    "rec": polars.Struct({"x": polars.Int32, "y": polars.String}),
}

if __name__ == "__main__":
    main(Polars())
