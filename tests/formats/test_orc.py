"""ORC files: rows come back, of the columns that are wanted, and readers share a file by stripes."""

import datetime
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest
from tests.table.connectors.tables import build_reader, table_rows

from penstock.base.errors import ConfigurationError, FormatError, UnsupportedError
from penstock.base.types import Row
from penstock.codecs.column_data import ColumnData
from penstock.common import Types
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.formats.orc import OrcBulkWriters, OrcFormat
from penstock.testing.connectors import read_source

TYPE = Types.ROW_NAMED(["id", "name", "at"], [Types.LONG(), Types.STRING(), Types.SQL_TIMESTAMP()])
AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456)


def write(path: Path, rows: list[Any], **properties: Any) -> None:
    with path.open("wb") as stream:
        writer = OrcBulkWriters.for_row_type(TYPE, properties).create(stream)
        writer.add_elements(rows)
        writer.finish()
        assert not stream.closed


def records(path: Path, orc_format: OrcFormat, parallelism: int = 1, **more: Any) -> list[Any]:
    source = FileSource.for_bulk_file_format(orc_format, str(path)).build()
    return list(read_source(source, parallelism=parallelism, **more).all_values)


def test_rows_come_back_as_they_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    write(path, [Row(1, "a", AT), (2, None, None), {"id": 3, "name": "c"}])
    assert records(path, OrcFormat(TYPE))[0].as_dict() == {"id": 1, "name": "a", "at": AT}
    assert records(path, OrcFormat(["name", "id"], as_tuple=True)) == [("a", 1), (None, 2), ("c", 3)]
    assert records(path, OrcFormat(["id"])) == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    write(tmp_path / "x.orc", [])
    with (tmp_path / "x.orc").open("rb") as file:
        assert pyarrow.orc.ORCFile(file).schema.names == ["id", "name", "at"]
        assert OrcFormat().open(file).units(0, None) == []


@pytest.mark.parametrize("parallelism", [1, 3])
def test_readers_share_a_file_by_stripes(tmp_path: Path, parallelism: int) -> None:
    """Each row once, with restarts after every batch."""
    path = tmp_path / "x.orc"
    rows = [{"id": number, "name": f"{number * 7919 % 20_011}", "at": AT} for number in range(20_000)]
    with path.open("wb") as stream:
        writer = OrcBulkWriters.for_row_type(TYPE, {"orc.compress": "NONE", "orc.stripe.size": 1 << 12}).create(stream)
        for begin in range(0, len(rows), 4_000):
            writer.add_elements(rows[begin : begin + 4_000])
            writer.flush()
        writer.finish()
    with path.open("rb") as file:
        assert pyarrow.orc.ORCFile(file).nstripes > 1
    found = records(path, OrcFormat(["id"], as_tuple=True), parallelism, hostile=True)
    assert sorted(found) == [(number,) for number in range(20_000)]


def test_units_of_ranges_are_all_units_once(tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    schema = pa.schema([("n", pa.int64())])
    stream = io.BytesIO()
    writer = pyarrow.orc.ORCWriter(stream, stripe_size=1)
    for begin in range(5):
        writer.write(pa.table({"n": list(range(begin * 2_000, begin * 2_000 + 2_000))}, schema=schema))
    writer.close()
    path.write_bytes(stream.getvalue())
    with path.open("rb") as file:
        opened = OrcFormat().open(file)
        size = path.stat().st_size
        everything = list(opened.units(0, None))
        for cut in (1, size // 3, size // 2, size - 1):
            assert [*opened.units(0, cut), *opened.units(cut, None)] == everything
        first = next(iter(opened.read(0, 3)))
        assert next(iter(first)) == {"n": 3}


def test_columns_are_written_as_they_are(tmp_path: Path) -> None:
    stream = io.BytesIO()
    writer = OrcBulkWriters.for_row_type({"id": int, "name": str}).create(stream)
    writer.add_columns(ColumnData(pa.record_batch({"name": ["a"], "id": pa.array([1], pa.int32())})))
    writer.finish()
    assert pyarrow.orc.ORCFile(io.BytesIO(stream.getvalue())).read().to_pylist() == [{"id": 1, "name": "a"}]
    with pytest.raises(FormatError, match="cannot write the columns x to ORC"):
        OrcBulkWriters.for_row_type({"id": int}).create(io.BytesIO()).add_columns(
            ColumnData(pa.record_batch({"x": [1]}))
        )


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(FormatError, match="not an ORC file"):
        OrcFormat().open(io.BytesIO(b"no"))
    with pytest.raises(ConfigurationError, match="ORC needs a row type"):
        OrcBulkWriters.for_row_type("id")
    with pytest.raises(ValueError, match=r"does not know orc\.magic"):
        OrcBulkWriters.for_row_type({"id": int}, {"orc.magic": 1})
    with pytest.raises(UnsupportedError, match="ORC has no form for TIME"):
        build_reader("CREATE TABLE t (a TIME) WITH ('connector' = 'filesystem', 'path' = '/x', 'format' = 'orc')")


def test_table_reads_fields_of_rows_alone(tmp_path: Path) -> None:
    """Columns are found by their names, and numbers may be narrower in the file than in the table."""
    table = pa.table({"more": ["x"], "r": [{"a": 1, "b": "z"}], "n": pa.array([7], pa.int32())})
    pyarrow.orc.write_table(table, str(tmp_path / "x.orc"))
    ddl = f"CREATE TABLE t (n BIGINT, r ROW<b STRING>) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', "
    assert table_rows(ddl + "'format' = 'orc')") == [(7, ("z",))]
