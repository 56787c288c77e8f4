"""Avro schemas, Avro files and Parquet by Avro schemas; rolling policies and CSV options under PyFlink's names."""

from __future__ import annotations

import datetime
import io
import json
from typing import Any

import pytest

from penstock.base.errors import ConfigurationError, FormatError
from penstock.base.types import Row
from penstock.codecs.avro_row import AvroRowDeserializationSchema as CommonSchema
from penstock.datastream.connectors.file_system import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    RollingPolicy,
)
from penstock.datastream.formats.avro import AvroBulkWriters, AvroRowDeserializationSchema, AvroSchema
from penstock.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from penstock.datastream.formats.parquet import AvroParquetReaders, AvroParquetWriters

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}},
]
TEXT = json.dumps({"type": "record", "name": "Event", "fields": FIELDS})
DAY = datetime.date(2024, 2, 29)
RECORDS = [
    {"id": n, "name": None if n % 3 == 0 else f"n{n}", "tags": ["a"] * (n % 3), "day": DAY, "inner": {"x": n / 2}}
    for n in range(5)
]


def written(factory: Any, records: list[Any]) -> bytes:
    stream = io.BytesIO()
    writer = factory.create(stream)
    writer.add_elements(records)
    writer.finish()
    return stream.getvalue()


def long_of(data: io.BytesIO) -> int:
    value = shift = 0
    while True:
        (byte,) = data.read(1)
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)


def read_container(data: bytes) -> tuple[dict[str, bytes], list[tuple[int, bytes]]]:
    """Metadata and blocks (records, bytes) of an object container file, by Avro's specification."""
    source = io.BytesIO(data)
    assert source.read(4) == b"Obj\x01"
    metadata = {}
    while count := long_of(source):
        for _ in range(count):
            name = source.read(long_of(source)).decode()
            metadata[name] = source.read(long_of(source))
    sync, blocks = source.read(16), []
    while source.tell() < len(data):
        count = long_of(source)
        blocks.append((count, source.read(long_of(source))))
        assert source.read(16) == sync
    return metadata, blocks


def test_avro_files_hold_schema_and_records() -> None:
    """A2: as the specification of object container files says."""
    factory = AvroBulkWriters.for_generic_record(AvroSchema.parse_string(TEXT))
    metadata, blocks = read_container(written(factory, RECORDS))
    assert json.loads(metadata["avro.schema"]) == json.loads(TEXT)
    assert metadata["avro.codec"] == b"null"
    assert [count for count, _ in blocks] == [5]
    messages = CommonSchema(avro_schema_string=TEXT)
    _, ((count, block),) = read_container(written(factory, RECORDS[1:2]))
    assert count == 1
    assert messages.deserialize(block) == Row(id=1, name="n1", tags=["a"], day=DAY, inner=Row(x=0.5))


def test_large_avro_files_have_several_blocks() -> None:
    """A2: none is much above 64 KiB."""
    schema = AvroSchema.parse_string('{"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}')
    _, blocks = read_container(written(AvroBulkWriters.for_generic_record(schema), [("x" * 1000,)] * 200))
    assert sum(count for count, _ in blocks) == 200
    assert len(blocks) == 4
    assert max(len(data) for _, data in blocks) < 70_000


def test_avro_schemas_are_parsed(tmp_path: Any) -> None:
    """A2: from text and from a file; what is no record is refused."""
    path = tmp_path / "schema.avsc"
    path.write_text(TEXT)
    assert AvroSchema.parse_file(path) == AvroSchema.parse_string(TEXT)
    assert AvroSchema.parse_file(str(path)).field_names == ["id", "name", "tags", "day", "inner"]
    with pytest.raises(FormatError, match="not an Avro schema"):
        AvroSchema.parse_string('"long"')
    assert AvroRowDeserializationSchema is CommonSchema


def test_parquet_by_an_avro_schema_comes_back() -> None:
    """A2: nulls, arrays, dates and nested records included."""
    schema = AvroSchema.parse_string(TEXT)
    data = written(AvroParquetWriters.for_generic_record(schema), RECORDS)
    file = AvroParquetReaders.for_generic_record(schema).open(io.BytesIO(data))
    assert [record for unit in file.units(0, None) for part in file.read(unit, 0) for record in part] == RECORDS


def test_parquet_has_no_column_for_a_union_of_types() -> None:
    """A2: said before anything is written."""
    fields = [{"name": "u", "type": ["string", "long"]}]
    schema = AvroSchema.parse_string(json.dumps({"type": "record", "name": "R", "fields": fields}))
    with pytest.raises(FormatError, match="union"):
        AvroParquetWriters.for_generic_record(schema)


def test_rolling_policies_have_classes() -> None:
    """A2: programs may ask which one they have."""
    assert isinstance(RollingPolicy.default_rolling_policy(5), DefaultRollingPolicy)
    assert DefaultRollingPolicy.default_rolling_policy(5).should_roll(5, 0, 0, 0)
    assert isinstance(RollingPolicy.on_checkpoint_rolling_policy(), OnCheckpointRollingPolicy)
    assert not OnCheckpointRollingPolicy.on_checkpoint_rolling_policy().should_roll(1 << 40, 0, 0, 1 << 40)


def two_columns() -> Any:
    return CsvSchema.builder().add_string_column("a").add_number_column("n")


def test_csv_lines_end_as_the_schema_says() -> None:
    """A2: and any end of line is read."""
    schema = two_columns().set_line_separator("\r\n").build()
    data = written(CsvBulkWriters.for_schema(schema), [("x", 1), ("y", 2)])
    assert data == b"x,1\r\ny,2\r\n"
    assert len(CsvReaderFormat.for_schema(schema).create_decoder(b"").decode(data, True).values) == 2
    with pytest.raises(ConfigurationError, match="line feed"):
        two_columns().set_line_separator(";")


@pytest.mark.parametrize("has_header", [False, True])
def test_the_first_row_of_csv_can_be_left_out(has_header: bool, tmp_path: Any) -> None:
    """A2: it is the one behind the header, where there is one."""
    from penstock.datastream.connectors.file_system import FileSource
    from penstock.testing.connectors import read_source

    path = tmp_path / "rows.csv"
    path.write_text(("n,a\n" if has_header else "") + ("1,units\n2,x\n3,y\n" if has_header else "units,1\nx,2\ny,3\n"))
    schema = two_columns().set_use_header(has_header).set_skip_first_data_row().build()
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(path)).build()
    assert read_source(source, 1, hostile=True).all_values == [Row(a="x", n=2), Row(a="y", n=3)]


def test_without_a_separator_there_are_no_arrays() -> None:
    """A2: said when the schema is built."""
    assert len(two_columns().disable_array_element_separator().build()) == 2
    with pytest.raises(ConfigurationError, match="'l' are arrays"):
        two_columns().add_array_column("l").remove_array_element_separator(2).disable_array_element_separator().build()


def test_csv_readers_make_text_formats_too() -> None:
    """A2: inherited from `StreamFormat` in PyFlink."""
    assert CsvReaderFormat.text_line_format().create_decoder(b"").decode(b"a\nb\n", True).values == ["a", "b"]
