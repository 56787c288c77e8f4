"""The exchange with what the test environment has: DuckDB and Arrow. `python -m tests.exchange` has all programs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from tests.exchange.cases import CASES, Case, cases_of, expected
from tests.exchange.in_duckdb import DuckDb
from tests.exchange.penstock import Penstock
from tests.exchange.working import Program, run

#: what DuckDB reads or writes in another way: binary data and moments as text, and numbers of JSON as floats
_NOT_READ = {"json": {"bin", "dec18", "dec38"}, "csv": set()}
_NOT_WRITTEN = {"json": {"bin", "ltz3", "ltz6"}, "csv": {"ltz3", "ltz6"}}


def exchanged(writer: Program, reader: Program, form: str, path: Path, cases: list[Case]) -> None:
    """Asserts that a reader gets the values of a writer."""
    writer.write(form, str(path), cases)
    job = {"format": form, "path": str(path), "columns": [one.name for one in cases]}
    (found,) = run(reader, {"writes": {}, "reads": [job]})["read"]
    values = json.loads(json.dumps(found["found"]))
    assert values == {one.name: expected(one) for one in cases}


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_duckdb_reads_what_penstock_writes(tmp_path: Path, form: str) -> None:
    """K4."""
    cases = [one for one in cases_of(form) if one.name not in _NOT_READ.get(form, ())]
    exchanged(Penstock(), DuckDb(), form, tmp_path / "f", cases)


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_penstock_reads_what_duckdb_writes(tmp_path: Path, form: str) -> None:
    """K4."""
    cases = [one for one in cases_of(form) if one.name not in _NOT_WRITTEN.get(form, ())]
    exchanged(DuckDb(), Penstock(), form, tmp_path / "f", cases)


@pytest.mark.parametrize("form", ["parquet", "orc", "avro", "json", "csv"])
def test_penstock_reads_what_it_writes(tmp_path: Path, form: str) -> None:
    """K4."""
    cases = [one for one in cases_of(form) if not (form == "orc" and one.name == "clock")]
    exchanged(Penstock(), Penstock(), form, tmp_path / "f", cases)


def test_decimals_of_parquet_are_integers_where_they_fit(tmp_path: Path) -> None:
    """K2: Flink 2.3 reads decimals of up to 18 digits with a dictionary only so."""
    Penstock().write("parquet", str(tmp_path), [one for one in CASES if one.name.startswith("dec")])
    (file,) = tmp_path.glob("part-*")
    group = pq.ParquetFile(file).metadata.row_group(0)
    kinds = {group.column(place).path_in_schema: group.column(place).physical_type for place in range(1, 4)}
    assert kinds == {"dec9": "INT32", "dec18": "INT64", "dec38": "FIXED_LEN_BYTE_ARRAY"}


def test_moments_of_orc_are_plain_times(tmp_path: Path) -> None:
    """K2: Spark 4 and Flink 2.3 refuse files with ORC's own type for moments."""
    Penstock().write("orc", str(tmp_path), [one for one in CASES if one.name.startswith("ltz")])
    (file,) = tmp_path.glob("part-*")
    assert pyarrow.orc.ORCFile(file).schema.field("ltz6").type == pa.timestamp("ns")
