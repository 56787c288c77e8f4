"""The formats under PyFlink's names and module paths."""

from __future__ import annotations

import datetime
import decimal
import io
from typing import Any

import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from penstock.base.errors import ConfigurationError, FormatError
from penstock.base.typeinfo import Types
from penstock.base.types import Row
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream.connectors import file_system, number_seq
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from penstock.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
    CsvSchemaBuilder,
)
from penstock.datastream.formats.json import JsonLinesEncoder
from penstock.datastream.formats.orc import OrcBulkWriters
from penstock.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.table import DataTypes


def written(factory: Any, *rows: Any) -> bytes:
    stream = io.BytesIO()
    writer = factory.create(stream)
    for row in rows:
        writer.add_element(row)
    writer.finish()
    return stream.getvalue()


def test_csv_schema_reads_and_writes() -> None:
    builder = CsvSchema.builder().add_string_column("s").add_number_column("n").add_boolean_column("b")
    builder.add_number_column(name="f", number_type=Types.DOUBLE()).add_array_column("l", "|")
    builder.set_null_value("-").set_column_separator(";")
    schema = builder.build()
    assert len(schema) == schema.size() == builder.size() == 5
    rows = [Row(s='a;"', n=1, b=True, f=1.5, l=["x", "y"]), Row(s=None, n=None, b=False, f=None, l=["z"])]
    data = written(CsvBulkWriters.for_schema(schema), *rows)
    assert data == b'"a;""";1;true;1.5;x|y\n-;-;false;-;z\n'
    decoder = CsvReaderFormat.for_schema(schema).create_decoder(b"")
    assert decoder.decode(data, True).values == rows


def test_csv_lines_end_as_the_schema_says() -> None:
    schema = CsvSchema.builder().add_string_column("s").set_line_separator("\r\n").build()
    data = written(CsvBulkWriters.for_schema(schema), Row(s="a"), Row(s="b"))
    assert data == b"a\r\nb\r\n"
    assert CsvReaderFormat.for_schema(schema).create_decoder(b"").decode(data, True).values == [Row(s="a"), Row(s="b")]
    with pytest.raises(ConfigurationError, match="line feed"):
        CsvSchema.builder().set_line_separator("|")


def test_messages_lines_and_policies_have_pyflinks_names() -> None:
    row_type = Types.ROW_NAMED(["s", "n"], [Types.STRING(), Types.INT()])
    message = CsvRowSerializationSchema.Builder(row_type).build().serialize(Row(s="a", n=1))
    assert CsvRowDeserializationSchema.Builder(row_type).build().deserialize(message) == Row(s="a", n=1)
    schema = '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}'
    data = AvroRowSerializationSchema(avro_schema_string=schema).serialize(Row(n=7))
    assert AvroRowDeserializationSchema(avro_schema_string=schema).deserialize(data) == Row(n=7)
    decoder = CsvReaderFormat.text_line_format().create_decoder(b"")
    assert decoder.decode(b"a,b\n", True).values == ["a,b"]
    rolling = file_system.DefaultRollingPolicy.default_rolling_policy(part_size=10)
    assert rolling.should_roll(10, 0, 0, 0)
    assert not file_system.OnCheckpointRollingPolicy.on_checkpoint_rolling_policy().should_roll(1 << 40, 0, 0, 1 << 40)


def test_csv_schema_builder_checks() -> None:
    with pytest.raises(ConfigurationError, match="needs columns"):
        CsvSchema.builder().add_string_column("a").clear_columns().build()
    with pytest.raises(ConfigurationError, match="already"):
        CsvSchema.builder().add_string_column("a").add_string_column("a")
    with pytest.raises(ConfigurationError, match="none at position 1"):
        CsvSchema.builder().add_array_column("a").remove_array_element_separator(1)
    with pytest.raises(ConfigurationError, match="is that of a column"):
        CsvSchema.builder().add_string_column("a").set_any_property_name("a").build()
    first = CsvSchema.builder().add_string_column("a").build()
    schema = (
        CsvSchema.builder().add_columns_from(first).set_use_header().set_strict_headers().disable_quote_char().build()
    )
    assert CsvReaderFormat.for_schema(schema).create_decoder(b"b,a\n").decode(b'1,"\n', True).values == [Row(a='"')]


def test_fields_after_the_last_column_are_left_out_where_the_schema_has_a_name_for_them() -> None:
    builder = CsvSchema.builder().add_string_column("a").add_number_column("b")
    lines = b'x,1\ny,2,more,"and more"\n'
    strict = CsvReaderFormat.for_schema(builder.build()).create_decoder(b"")
    assert [found.line for found in strict.decode(lines, True).malformed] == [1]
    builder.set_any_property_name("rest")
    both_ways(builder, Row(a="x", b=1), b"x,1\n")
    decoder = CsvReaderFormat.for_schema(builder.build()).create_decoder(b"")
    assert decoder.decode(lines, True).values == [Row(a="x", b=1), Row(a="y", b=2)]


def both_ways(builder: CsvSchemaBuilder, row: Row, data: bytes) -> None:
    """A row is written as `data`, and read from it."""
    schema = builder.build()
    assert written(CsvBulkWriters.for_schema(schema), row) == data
    assert CsvReaderFormat.for_schema(schema).create_decoder(b"").decode(data, True).values == [row]


def test_signs_of_csv_files() -> None:
    """Each setter of the builder is one sign of the text that is written and read."""

    def two() -> CsvSchemaBuilder:
        return CsvSchema.builder().add_string_column("a").add_string_column("b")

    both_ways(two().set_quote_char(char="'"), Row(a="x,y", b='"'), b"'x,y',\"\n")
    both_ways(
        two().set_column_separator(char="\t").set_null_value(null_value="n/a"), Row(a="x,y", b=None), b"x,y\tn/a\n"
    )
    both_ways(two().disable_quote_char().set_escape_char(char="\\"), Row(a="x,y", b='"'), b'x\\,y,"\n')
    both_ways(two().set_escape_char("\\").disable_escape_char(), Row(a="\\", b="x,y"), b'\\,"x,y"\n')
    assert len(two()) == two().size() == len(two().build()) == 2


def test_lines_of_csv_files_that_are_no_records() -> None:
    """Comments and first rows are left out where the schema says so, and are records where it does not."""
    lines = b"#a\n1\n2\n"
    builder = CsvSchema.builder().add_string_column("s")
    for made, values in (
        (builder.build(), ["#a", "1", "2"]),
        (builder.set_allow_comments().build(), ["1", "2"]),
        (builder.set_allow_comments(allow=False).build(), ["#a", "1", "2"]),
    ):
        decoded = CsvReaderFormat.for_schema(made).create_decoder(b"").decode(lines, True).values
        assert [row.s for row in decoded] == values
    skipping = builder.set_skip_first_data_row(skip=True).set_use_header(use=True).build()
    assert CsvReaderFormat.for_schema(skipping).header_lines == 2


def test_arrays_in_csv_files() -> None:
    """An array column has a separator of its own, and that of the schema where it was removed."""

    def two() -> CsvSchemaBuilder:
        numbers = CsvSchema.builder().add_array_column("a", element_type=Types.INT())
        return numbers.add_array_column("b", separator="|").set_array_element_separator(separator="/")

    row = Row(a=[1, 2], b=["x", "y"])
    both_ways(two(), row, b"1;2,x|y\n")
    both_ways(two().remove_array_element_separator(index=1), row, b"1;2,x/y\n")
    both_ways(CsvSchema.builder().add_columns_from(two().build()), row, b"1;2,x|y\n")
    unset = CsvSchema.builder().add_array_column("a", "|").remove_array_element_separator(0)
    both_ways(unset, Row(a=["x", "y"]), b"x;y\n")
    both_ways(two().disable_array_element_separator(), row, b"1;2,x|y\n")
    with pytest.raises(ConfigurationError, match="'b' are arrays without their own"):
        two().disable_array_element_separator().remove_array_element_separator(1).build()


def test_csv_with_header_and_dicts() -> None:
    schema = CsvSchema.builder().add_number_column("a").add_string_column("b").set_use_header().build()
    assert written(CsvBulkWriters.for_schema(schema), {"b": "x", "a": 1}, (2, "y\n")) == b'a,b\n1,x\n2,"y\n"\n'


def test_parquet_writer() -> None:
    row_type = Types.ROW_NAMED(
        ["i", "l", "m", "r"],
        [
            Types.INT(),
            Types.LIST(Types.STRING()),
            Types.MAP(Types.STRING(), Types.LONG()),
            Types.ROW_NAMED(["x"], [Types.BOOLEAN()]),
        ],
    )
    data = written(ParquetBulkWriters.for_row_type(row_type), Row(1, ["a"], {"k": 2}, {"x": True}))
    table = pq.read_table(io.BytesIO(data))
    assert table.to_pylist() == [{"i": 1, "l": ["a"], "m": [("k", 2)], "r": {"x": True}}]
    with pytest.raises(ValueError, match="Hadoop"):
        ParquetBulkWriters.for_row_type(row_type, hadoop_config={})
    with pytest.raises(ConfigurationError):
        ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["i"], [Types.INSTANT()]))
    with pytest.raises(FormatError, match="column 'i' as int32"):
        written(ParquetBulkWriters.for_row_type(row_type), Row("x", None, None, None))


def test_a_parquet_input_format_reads_the_columns_of_a_row_type() -> None:
    both = Types.ROW_NAMED(["i", "s"], [Types.INT(), Types.STRING()])
    data = written(ParquetBulkWriters.for_row_type(both), Row(i=1, s="a"), Row(i=2, s=None))
    one = Types.ROW_NAMED(["s"], [Types.STRING()])
    file = ParquetColumnarRowInputFormat(one, None, 100, True, True).open(io.BytesIO(data))
    assert [row for unit in file.units(0, None) for rows in file.read(unit, 0) for row in rows] == [
        Row(s="a"),
        Row(s=None),
    ]
    with pytest.raises(ValueError, match="Hadoop"):
        ParquetColumnarRowInputFormat(one, hadoop_config={})
    with pytest.raises(NotImplementedError, match="exact names"):
        ParquetColumnarRowInputFormat(one, is_case_sensitive=False)
    with pytest.raises(TypeError, match="ROW_NAMED"):
        ParquetColumnarRowInputFormat({"s": str})


def test_json_lines_encoder() -> None:
    encoder = JsonLinesEncoder()
    assert encoder.encode_batch([Row(a=1, b=[Row(2, "ü")]), None]) == '{"a":1,"b":[[2,"ü"]]}\nnull\n'.encode()
    stream = io.BytesIO()
    encoder.encode({"a": (1, 2)}, stream)
    assert stream.getvalue() == b'{"a":[1,2]}\n'
    with pytest.raises(FormatError, match=r"cannot write .*object"):
        encoder.encode_batch([1, object()])


def test_modules_offer_pyflinks_names() -> None:
    for name in ("FileSource", "FileSourceBuilder", "FileSink", "StreamFormat", "RollingPolicy", "OutputFileConfig"):
        assert hasattr(file_system, name)
    assert number_seq.NumberSequenceSource is NumberSequenceSource
    assert [guarantee.name for guarantee in DeliveryGuarantee] == ["EXACTLY_ONCE", "AT_LEAST_ONCE", "NONE"]


PAIR = DataTypes.ROW([DataTypes.FIELD("x", DataTypes.INT()), DataTypes.FIELD("y", DataTypes.INT())])
TABLE_ROW = DataTypes.ROW(
    [
        DataTypes.FIELD("first", DataTypes.STRING()),
        DataTypes.FIELD("price", DataTypes.DECIMAL(10, 2)),
        DataTypes.FIELD("at", DataTypes.TIMESTAMP(3)),
        DataTypes.FIELD("days", DataTypes.ARRAY(DataTypes.DATE())),
        DataTypes.FIELD("pair", PAIR),
        DataTypes.FIELD("pairs", DataTypes.MAP(DataTypes.STRING(), DataTypes.ARRAY(PAIR))),
    ]
)
AT, DAY = datetime.datetime(2024, 5, 6, 7, 8, 9, 123000), datetime.date(2024, 5, 6)


@pytest.mark.parametrize("row_type", [TABLE_ROW, TABLE_ROW.not_null()], ids=["nullable", "not null"])
def test_bulk_writers_take_the_row_types_of_tables(row_type: Any) -> None:
    """A2: as PyFlink's pages show them; rows and the rows inside them go by name."""
    rows = [
        Row(
            price=decimal.Decimal("1.50"),
            first="F",
            days=[DAY],
            at=AT,
            pair=Row(y=2, x=1),
            pairs={"a": [Row(y=2, x=1), None], "b": None},
        ),
        Row("G", None, None, None, (3, None), {}),
        {"first": "H", "pair": {"y": 4}},
    ]
    pair = {"x": 1, "y": 2}
    wanted = [
        {
            "first": "F",
            "price": decimal.Decimal("1.50"),
            "at": AT,
            "days": [DAY],
            "pair": pair,
            "pairs": [("a", [pair, None]), ("b", None)],
        },
        {"first": "G", "price": None, "at": None, "days": None, "pair": {"x": 3, "y": None}, "pairs": []},
        {"first": "H", "price": None, "at": None, "days": None, "pair": {"x": None, "y": 4}, "pairs": None},
    ]
    parquet = pq.read_table(io.BytesIO(written(ParquetBulkWriters.for_row_type(row_type), *rows)))
    assert parquet.to_pylist() == wanted
    orc = pyarrow.orc.read_table(io.BytesIO(written(OrcBulkWriters.for_row_type(row_type), *rows)))
    assert orc.to_pylist() == wanted
    one = DataTypes.ROW(
        [DataTypes.FIELD("price", DataTypes.DECIMAL(10, 2)), DataTypes.FIELD("first", DataTypes.STRING())]
    )
    file = ParquetColumnarRowInputFormat(one).open(
        io.BytesIO(written(ParquetBulkWriters.for_row_type(row_type), rows[0]))
    )
    assert [row for unit in file.units(0, None) for batch in file.read(unit, 0) for row in batch] == [
        Row(price=decimal.Decimal("1.50"), first="F")
    ]


def test_bulk_writers_refuse_types_without_a_form_in_files() -> None:
    """A2: the error names the column; a type that is no row is refused as before."""
    time = DataTypes.ROW([DataTypes.FIELD("t", DataTypes.TIME())])
    with pytest.raises(NotImplementedError, match=r"ORC has no form for TIME.*column 't'"):
        OrcBulkWriters.for_row_type(time)
    for writers in (ParquetBulkWriters, OrcBulkWriters):
        raw = DataTypes.ROW([DataTypes.FIELD("n", DataTypes.NULL())])
        with pytest.raises(NotImplementedError, match="column 'n'"):
            writers.for_row_type(raw)
        with pytest.raises(ConfigurationError, match="needs a row type"):
            writers.for_row_type(DataTypes.INT())
    with pytest.raises(FormatError, match="column 'pair'"):
        written(ParquetBulkWriters.for_row_type(TABLE_ROW), {"pair": Row(x=1, z=2)})
    with pytest.raises(FormatError, match="column 'pair'"):
        written(ParquetBulkWriters.for_row_type(TABLE_ROW), {"pair": (1, 2, 3)})
