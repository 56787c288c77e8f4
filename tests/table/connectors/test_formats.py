"""Formats of tables: rows as messages, and what is wrong with those that are no rows."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from tests.table.connectors.tables import build_reader, held_rows, read_rows

from penstock.base.errors import FormatError, PenstockError, UnsupportedError
from penstock.codecs.csv_row import CsvRowDeserializationSchema
from penstock.codecs.serialization import Deserialized
from penstock.common import Types
from penstock.formats.csv import CsvFormat
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data.arrow import to_column
from penstock.sql.data.errors import ValidationError
from penstock.sql.formats import built_in_formats
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions
from penstock.table import EnvironmentSettings, TableEnvironment


def make_schema(**columns: str) -> RowSchema:
    return RowSchema(tuple(PlanColumn(name, parse_data_type(kind)) for name, kind in columns.items()))


def decoded(name: str, schema: RowSchema, messages: list[bytes], **options: str) -> Deserialized:
    """What a decoder makes of messages, after it has travelled with a job."""
    values = {"format": name, **{f"{name}.{key.replace('_', '-')}": value for key, value in options.items()}}
    found, below = built_in_formats().find(TableOptions("t", values))
    decoding = found.decoding(schema, range(len(schema)), below)
    assert decoding.messages is not None
    return pickle.loads(pickle.dumps(decoding.messages)).decode(messages)  # type: ignore[no-any-return]


def rows(name: str, schema: RowSchema, messages: list[bytes], **options: str) -> list[tuple[Any, ...]]:
    found = decoded(name, schema, messages, **options)
    assert not found.bad, found.bad
    return held_rows(found.columns, schema.types)


def encoded(name: str, schema: RowSchema, values: list[tuple[Any, ...]], **options: str) -> list[bytes]:
    texts = {"format": name, **{f"{name}.{key.replace('_', '-')}": value for key, value in options.items()}}
    found, below = built_in_formats().find(TableOptions("t", texts))
    encoder = found.encoding(schema, below).messages
    assert encoder is not None
    arrays = [to_column(column, kind) for column, kind in zip(zip(*values, strict=True), schema.types, strict=True)]
    return pickle.loads(pickle.dumps(encoder)).encode(pa.RecordBatch.from_arrays(arrays, schema.names))  # type: ignore[no-any-return]


def reasons(found: Deserialized) -> list[tuple[int, str]]:
    return [(one.place, one.reason) for one in found.bad]


MOMENTS = st.integers(0, 4).map(lambda number: number * 250_000_000)
START = st.integers(0, 12)

# --- csv -------------------------------------------------------------------------------------------------------------


def test_csv_quotes_what_it_has_to() -> None:
    """Delimiters, quotes and line feeds; a field that is quoted without need is read, too."""
    schema = make_schema(a="STRING", b="INT")
    values = [("plain", 1), ("a,b", 2), ('say "hi"', 3), ("two\nlines", None), ("", 5)]
    messages = encoded("csv", schema, values)
    assert messages == [b"plain,1", b'"a,b",2', b'"say ""hi""",3', b'"two\nlines",', b",5"]
    assert rows("csv", schema, messages) == values
    assert rows("csv", schema, [b'"plain","7"']) == [("plain", 7)]


def test_csv_with_its_own_characters() -> None:
    """Delimiter, quote, escape, the text that is NULL, and what stands between elements."""
    schema = make_schema(a="STRING", b="ARRAY<INT>", c="ROW<x INT, y STRING>")
    options = {"field_delimiter": "|", "quote_character": "'", "null_literal": "n/a", "array_element_delimiter": ":"}
    values = [("it's", [1, None, 3], (7, "z")), (None, None, None)]
    messages = encoded("csv", schema, values, **options)
    assert messages == [b"'it''s'|1:n/a:3|7:z", b"n/a|n/a|n/a"]
    assert rows("csv", schema, messages, **options) == values
    tab = encoded("csv", make_schema(a="INT", b="INT"), [(1, 2)], field_delimiter="\\t")
    assert tab == [b"1\t2"]


def test_csv_without_quotes_escapes_or_refuses() -> None:
    """A text with the delimiter in it is not written so that it would be read as two."""
    schema = make_schema(a="STRING", b="INT")
    options = {"disable_quote_character": "true"}
    with pytest.raises(UnsupportedError, match="'a,b' cannot be written as CSV without quotes"):
        encoded("csv", schema, [("a,b", 1)], **options)
    escaped = encoded("csv", schema, [("a,b", 1)], **options, escape_character="\\")
    assert escaped == [b"a\\,b,1"]
    assert rows("csv", schema, escaped, **options, escape_character="\\") == [("a,b", 1)]
    assert rows("csv", schema, [b'"a,1'], **options) == [('"a', 1)]


@given(st.lists(st.tuples(st.one_of(st.none(), st.text('a,"\r\nä', max_size=3)), MOMENTS), max_size=12), START)
def test_csv_lines_of_a_file_are_messages_one_behind_the_other(values: list[tuple[Any, ...]], start: int) -> None:
    schema = make_schema(a="STRING", b="TIMESTAMP(3)")
    found, below = built_in_formats().find(TableOptions("t", {"format": "csv"}))
    encoder = found.encoding(schema, below).messages
    assert encoder is not None
    arrays = [to_column([one[place] for one in values], kind) for place, kind in enumerate(schema.types)]
    columns = pa.RecordBatch.from_arrays(arrays, schema.names).slice(start)
    messages = encoder.encode(columns)
    assert encoder.lines(columns) == b"".join(one + b"\n" for one in messages)
    assert rows("csv", schema, messages) == [(text or "", moment) for text, moment in values[start:]]


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_csv_line_may_end_with_a_delimiter(tmp_path: Path, is_file: bool, count: int) -> None:
    """K2: one delimiter and blanks, as Flink 2.3 reads them; TPC-H's own files have it."""
    schema = make_schema(id="INT", name="STRING")
    good = [b"1|a|", b"2|b| ", b"3|", b'4|"c"|', b"5|d"][:: 1 if count > 1 else 4] * count
    expected = [(1, "a"), (2, "b"), (3, ""), (4, "c"), (5, "d")][:: 1 if count > 1 else 4] * count
    if not is_file:
        assert rows("csv", schema, good, field_delimiter="|") == expected
        assert [place for place, _ in reasons(decoded("csv", schema, [b"1|a||", b"1|a|x"], field_delimiter="|"))] == [
            0,
            1,
        ]
        return
    for lines, values in ((good, expected), ([b"1|a|"] * 9, [(1, "a")] * 9)):
        (tmp_path / "f").write_bytes(b"\n".join(lines) + b"\n")
        reader = build_reader(
            "CREATE TABLE t (id INT, name STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', "
            f"'path' = '{tmp_path}', 'csv.field-delimiter' = '|')"
        )
        assert reader.source is not None
        found = read_rows(reader.source)
        assert [tuple(one) for one in found] == values


def test_csv_line_may_end_with_a_delimiter_in_streams() -> None:
    """K2."""
    types = Types.ROW_NAMED(["id", "ok"], [Types.INT(), Types.BOOLEAN()])
    messages = CsvRowDeserializationSchema.Builder(types).build().deserialize_batch([b"1,true,", b"2,yes, "])
    assert [tuple(row) for row in messages.values] == [(1, True), (2, False)]
    lines = CsvFormat({"id": int, "name": str}, header=False, as_tuple=True).create_decoder(b"")
    assert list(lines.decode(b"1,a,\n2,b\n3,\n", True).values) == [(1, "a"), (2, "b"), (3, "")]


def test_csv_booleans_are_those_of_flink() -> None:
    """K2: TRUE in any letters, and any other text is FALSE; the empty text stays NULL."""
    schema = make_schema(id="INT", b="BOOLEAN", a="ARRAY<BOOLEAN>")
    texts = ["1", "yes", "true", " TRUE ", "tRuE", "t", "true1", "0", ""]
    found = rows("csv", schema, [f"1,{one},{one};true".encode() for one in texts])
    expected = [False, False, True, True, True, False, False, False, None]
    assert [(b, a) for _, b, a in found] == [(one, [one, True]) for one in expected]


def test_csv_moments_are_as_short_as_they_are_exact() -> None:
    moments = [0, 500_000_000, 10_000_000, 3_600_000_000_000]
    texts = ["1970-01-01 00:00:00", "1970-01-01 00:00:00.5", "1970-01-01 00:00:00.01", "1970-01-01 01:00:00"]
    for times in (1, 4):  # each is shown once where it comes several times
        for kind in ("TIMESTAMP(3)", "TIMESTAMP(9)"):
            messages = encoded("csv", make_schema(a=kind, b="INT"), [(one, 7) for one in moments] * times)
            assert messages == [f"{one},7".encode() for one in texts] * times
    assert encoded("csv", make_schema(a="TIMESTAMP(0)"), [(0,)]) == [b"1970-01-01 00:00:00"]


def test_what_is_no_csv_says_column_and_value() -> None:
    """Or how many fields there are."""
    schema = make_schema(a="INT", b="DATE")
    found = decoded("csv", schema, [b"1,2020-01-01", b"x,2020-01-01", b"1", b"1,2,3", b"1,2020-13-01", b'"1,2'])
    assert held_rows(found.columns, schema.types) == [(1, 18262)]
    assert reasons(found) == [
        (1, "column 'a': 'x' is no INT"),
        (2, "Row length mismatch. 2 fields expected but was 1."),
        (3, "Row length mismatch. 2 fields expected but was 3."),
        (4, "column 'b': '2020-13-01' is no DATE"),
        (5, "a quote is not closed"),
    ]


def test_csv_that_ignores_errors_has_null_for_them() -> None:
    """A row that lacks fields gets NULL, too; one that cannot be cut is left out."""
    schema = make_schema(a="INT", b="DATE")
    found = decoded("csv", schema, [b"x,2020-01-01", b"1", b"1,2,3"], ignore_parse_errors="true")
    assert held_rows(found.columns, schema.types) == [(None, 18262), (1, None)]
    assert [one.place for one in found.bad] == [2]


# --- json ------------------------------------------------------------------------------------------------------------

MANY = 50


@pytest.mark.parametrize("count", [1, MANY])
def test_json_takes_values_as_flink_does(count: int) -> None:
    """Whether lines are read at once or one by one: text for numbers, numbers for text, objects for text."""
    schema = make_schema(
        a="INT", b="STRING", c="DOUBLE", d="DECIMAL(6, 2)", e="ROW<x INT, y ARRAY<STRING>>", f="BOOLEAN"
    )
    message = (
        b'{"a": "5", "b": {"k": 1.50}, "c": 3, "d": 1.25, "e": {"x": 1, "y": ["u", null]}, "f": "TRUE", "other": 1}'
    )
    (first, *_) = found = rows("json", schema, [message] * count)
    assert first[0:3] == (5, '{"k":1.50}', 3.0)
    assert (str(first[3]), *first[4:]) == ("1.25", (1, ["u", None]), True)
    assert found == [first] * count


@pytest.mark.parametrize("count", [1, MANY])
def test_json_of_plain_columns_is_the_same_at_once(count: int) -> None:
    """Missing fields are NULL."""
    schema = make_schema(a="BIGINT", b="STRING", t="TIMESTAMP(3)", d="DATE", x="ROW<y INT>")
    message = b'{"b": "\\u00e4", "a": 7, "t": "2020-01-02 03:04:05.678", "x": {"y": 3}}'
    row = (7, "\u00e4", 1_577_934_245_678_000_000, None, (3,))
    assert rows("json", schema, [message] * count) == [row] * count


@pytest.mark.parametrize("count", [1, MANY])
def test_what_is_no_json_says_column_and_value(count: int) -> None:
    """Good lines around it are read."""
    schema = make_schema(a="INT", t="TIMESTAMP(3)")
    good = b'{"a": 1}'
    bad = [b'{"a": "x"}', b'"x"', b"{", b'{"a": 3000000000}', b'{"t": "2020-01-02T03:04:05"}']
    found = decoded("json", schema, [good] * count + bad)
    assert held_rows(found.columns, schema.types) == [(1, None)] * count
    assert [one.place for one in found.bad] == [count + place for place in range(5)]
    texts = [one.reason for one in found.bad]
    assert texts[0].startswith("column 'a': 'x' cannot be read")
    assert texts[1] == "it is not an object"
    assert texts[3] == "column 'a': '3000000000' cannot be read: it is no number of 32 bits"
    assert texts[4].endswith("there must be a space between day and time")


def test_json_errors_by_option() -> None:
    """Ignored ones are NULL, and missing fields may be errors."""
    schema = make_schema(a="INT", r="ROW<x INT>")
    found = decoded("json", schema, [b'{"a": "x", "r": {"x": "y"}}', b"nothing"], ignore_parse_errors="true")
    assert held_rows(found.columns, schema.types) == [(None, (None,))]
    assert [one.place for one in found.bad] == [1]
    found = decoded("json", schema, [b'{"a": 1}', b'{"a": 1, "r": {}}'], fail_on_missing_field="true")
    assert reasons(found)[0] == (0, "Could not find field with name 'r'.")
    assert "Could not find field with name 'x'." in reasons(found)[1][1]
    with pytest.raises(ValidationError, match=r"json.ignore-parse-errors.*cannot be set together"):
        decoded("json", schema, [], ignore_parse_errors="true", fail_on_missing_field="true")


def test_json_times_in_both_standards() -> None:
    """A point on the time line has a Z."""
    schema = make_schema(t="TIMESTAMP(9)", z="TIMESTAMP_LTZ(3)", d="DATE", o="TIME(3)")
    values = [(1_577_934_245_000_000_100, 1_577_934_245_120_000_000, 18263, 3_723_004)]
    sql = encoded("json", schema, values)
    assert sql == [
        b'{"t":"2020-01-02 03:04:05.0000001","z":"2020-01-02 03:04:05.12Z","d":"2020-01-02","o":"01:02:03.004"}'
    ]
    iso = encoded("json", schema, values, **{"timestamp-format.standard": "ISO-8601"})
    assert b'"t":"2020-01-02T03:04:05.0000001","z":"2020-01-02T03:04:05.12Z"' in iso[0]
    assert rows("json", schema, sql) == values
    assert rows("json", schema, iso, **{"timestamp-format.standard": "ISO-8601"}) == values
    assert reasons(decoded("json", schema, iso))[0][1].startswith("column 't'")


def test_json_maps_and_nulls_by_option() -> None:
    """Fields that are NULL may be left out."""
    schema = make_schema(m="MAP<STRING, INT>", a="INT")
    values = [([("k", 1), ("l", None)], None)]
    assert encoded("json", schema, values) == [b'{"m":{"k":1,"l":null},"a":null}']
    left_out = encoded("json", schema, values, **{"encode.ignore-null-fields": "true"})
    assert left_out == [b'{"m":{"k":1,"l":null}}']
    assert rows("json", schema, left_out) == values
    with pytest.raises(UnsupportedError, match="column 'm': JSON only has maps and multisets with texts as keys"):
        encoded("json", make_schema(m="MAP<INT, INT>"), [([],)])


# --- raw and others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("STRING", "ä", "ä".encode()),
        ("BYTES", b"\x00\xff", b"\x00\xff"),
        ("INT", 258, b"\x00\x00\x01\x02"),
        ("BIGINT", -1, b"\xff" * 8),
        ("BOOLEAN", True, b"\x01"),
        ("DOUBLE", 1.0, b"\x3f\xf0" + bytes(6)),
    ],
)
def test_raw_is_the_value_alone(kind: str, value: Any, message: bytes) -> None:
    """In big-endian order, unless the option says otherwise."""
    schema = make_schema(a=kind)
    assert encoded("raw", schema, [(value,)]) == [message]
    assert rows("raw", schema, [message]) == [(value,)]
    if kind == "INT":
        assert rows("raw", schema, [message[::-1]], endianness="little-endian") == [(value,)]


def test_raw_says_what_it_cannot_read() -> None:
    """Bytes of another length, another charset, or tables of more columns."""
    assert reasons(decoded("raw", make_schema(a="INT"), [b"1"]))[0][1].startswith("column 'a': the bytes are no INT")
    assert rows("raw", make_schema(a="STRING"), ["ä".encode("latin-1")], charset="latin-1") == [("ä",)]
    assert decoded("raw", make_schema(a="STRING"), ["ä".encode("latin-1")]).bad
    with pytest.raises(ValidationError, match=r"only supports single physical column. But table t has 2: a, b"):
        decoded("raw", make_schema(a="INT", b="INT"), [])
    with pytest.raises(UnsupportedError, match="'raw' has no form for column 'a' of type DATE"):
        decoded("raw", make_schema(a="DATE"), [])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("csv", "MAP<STRING, INT>"),
        ("csv", "INTERVAL DAY"),
        ("json", "INTERVAL DAY"),
        ("json", "MULTISET<INT>"),
        ("parquet", "ARRAY<INTERVAL DAY>"),
        ("avro", "TIMESTAMP(9)"),
        ("avro", "MAP<INT, INT>"),
    ],
)
def test_types_that_a_format_has_not_are_named_when_a_query_is_planned(name: str, kind: str) -> None:
    """With the column."""
    found, options = built_in_formats().find(TableOptions("t", {"format": name}))
    for use in (found.encoding, lambda schema, given: found.decoding(schema, [0], given)):
        with pytest.raises(UnsupportedError, match="column 'a'"):
            use(make_schema(a=kind), options)


def test_a_format_that_is_unknown_is_refused_with_those_that_are_known() -> None:
    """And one has to be there."""
    with pytest.raises(
        ValidationError, match=r"any format 'xml' for table t: there are avro, .*csv, .*json, .*parquet, .*raw"
    ):
        built_in_formats().find(TableOptions("t", {"format": "xml"}))
    with pytest.raises(ValidationError, match="Missing required options are: format"):
        built_in_formats().find(TableOptions("t", {}))


@pytest.mark.parametrize(
    ("name", "option", "value", "said"),
    [
        ("csv", "field-delimiter", "ab", "must be a single character"),
        ("csv", "quote-character", "ab", "must be a single character"),
        ("json", "timestamp-format.standard", "RFC", "json.timestamp-format.standard"),
        ("json", "ignore-parse-errors", "perhaps", "json.ignore-parse-errors"),
        ("raw", "charset", "utf-16", "lines cannot be split"),
        ("parquet", "compression", "rar", "parquet.compression"),
    ],
)
def test_values_of_options_are_checked(name: str, option: str, value: str, said: str) -> None:
    """By the format."""
    with pytest.raises((ValidationError, UnsupportedError), match=said):
        decoded(name, make_schema(a="STRING"), [], **{option: value})


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("json", {}, [b'{"n":1E-8,"m":1E+5,"f":0.1}', b'{"n":12.5,"m":7,"f":0.00001}']),
        (
            "json",
            {"encode_decimal_as_plain_number": "true"},
            [b'{"n":0.0000000100,"m":100000,"f":0.1}', b'{"n":12.5000000000,"m":7,"f":0.00001}'],
        ),
        ("csv", {}, [b"1E-8,1E+5,0.1", b"12.5,7,1.0E-5"]),
        (
            "csv",
            {"write_bigdecimal_in_scientific_notation": "false"},
            [b"0.0000000100,100000,0.1", b"12.5000000000,7,1.0E-5"],
        ),
    ],
)
def test_numbers_are_written_as_flink_writes_them(name: str, options: dict[str, str], expected: list[bytes]) -> None:
    """Decimals without zeros at the end, and numbers of 32 bits with the digits that they have."""
    schema = make_schema(n="DECIMAL(20, 10)", m="DECIMAL(10, 0)", f="FLOAT")
    values = [(Decimal("0.0000000100"), Decimal(100_000), 0.1), (Decimal("12.5"), Decimal(7), 1e-5)]
    keys = {key.replace("encode_", "encode.", 1): value for key, value in options.items()}
    messages = encoded(name, schema, values, **keys)
    assert messages == expected
    read = rows(name, schema, messages, **keys)
    assert [row[:2] for row in read] == [row[:2] for row in values]


# --- maps whose keys may be NULL --------------------------------------------------------------------------------------


def test_keys_of_maps_that_are_null_in_json() -> None:
    """K2: FAIL, DROP and LITERAL, as in Flink; nested maps and changelogs as well."""
    schema = make_schema(m="MAP<STRING, ARRAY<MAP<STRING, INT>>>")
    values = [([(None, [[("a", 1), (None, 2)]]), ("b", None)],), (None,)]
    with pytest.raises(FormatError, match=r"column 'm': a key of a map is NULL.*'map-null-key.mode' = 'DROP'"):
        encoded("json", schema, values)
    assert encoded("json", schema, values, **{"map-null-key.mode": "DROP"}) == [b'{"m":{"b":null}}', b'{"m":null}']
    named = {"map-null-key.mode": "LITERAL", "map-null-key.literal": "?"}
    first, _ = encoded("json", schema, values, **named)
    assert first == b'{"m":{"?":[{"a":1,"?":2}],"b":null}}'
    assert b'"null":[{"a":1,"null":2}]' in encoded("json", schema, values, **{"map-null-key.mode": "LITERAL"})[0]


@pytest.mark.parametrize("name", ["parquet", "orc", "avro"])
def test_keys_of_maps_that_are_null_have_no_place_in_files(name: str, tmp_path: Path) -> None:
    """K4: the error names the column; other maps are plain ones in the file."""
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("execution.target", "local")
    environment.execute_sql(
        "CREATE TABLE held (m MAP<STRING, INT>, n ARRAY<MAP<STRING, MAP<STRING, TIMESTAMP(3)>>>) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = '{name}')"
    )
    maps = "MAP['x', 1, k, 2], ARRAY[MAP['p', MAP['q', TIMESTAMP '2020-01-02 03:04:05.678']], NULL]"
    values = "INSERT INTO held SELECT {} FROM (VALUES ('a'), ({})) AS t (k)".format
    environment.execute_sql(values(maps, "CAST('b' AS STRING)")).wait()
    inner = [{"p": {"q": datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000)}}, None]
    with environment.execute_sql("SELECT * FROM held").collect() as results:
        assert [tuple(row) for row in results] == [({"x": 1, "a": 2}, inner), ({"x": 1, "b": 2}, inner)]
    with pytest.raises(PenstockError, match=r"(?s)'m'.*(NULL|None)"):
        environment.execute_sql(values(maps, "CAST(NULL AS STRING)")).wait()
