"""JSON messages that are unusual or broken, alone and among others. Flink 2.3 gave the expected rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.json
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table.connectors.tables import held_rows, table_rows
from tests.table.connectors.test_formats import decoded, make_schema, reasons, rows

import penstock
from penstock.codecs.serialization import Deserialized
from penstock.common import Types
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.sql.logical.nodes import RowSchema

#: how many good messages stand around the one in question
AROUND = 40
CHANGELOGS = ("debezium-json", "canal-json", "maxwell-json", "ogg-json")
#: valid JSON that is not an object
WRONG_SHAPES: tuple[Any, ...] = (None, True, 5, -1.5, "x", [1], [None], ["x"], [[{}]], [{"a": 1}, 5])
KINDS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(38, 18)"),
    *("STRING", "CHAR(2)", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(9)"),
    *("TIMESTAMP_LTZ(3)", "ARRAY<INT>", "ARRAY<DATE>", "ARRAY<ARRAY<DECIMAL(5, 2)>>", "ROW<x INT, y DATE>"),
    *("ROW<x ROW<y TIME>>", "MAP<STRING, INT>", "MAP<STRING, ROW<x DECIMAL(5, 2)>>", "MULTISET<STRING>"),
)
TEXTS = st.sampled_from(
    (
        *("", " ", "x", "5", " 5 ", "1_0", "1.0", "NaN", "true", "2020-01-02", " 2020-01-02", "2020-1-2", "2020"),
        *("2020-02-30", "0000-01-01", "03:04:05", "03:04", "24:00:00", "03:04:05.678", "2020-01-02 03:04:05"),
        *("0000-01-01 00:00:00", "2020-02-31 03:04:05", "2020-01-02 03:04:05.123456789", "9999-12-31 23:59:59.9"),
        *("2020-01-02T03:04:05", "2020-01-02 03:04:05Z", "2020-01-02 03:04:05 Z", "AAE=", "\ud800", "a\tb", "ä"),
    )
)
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(-200, 200), st.floats(allow_nan=False), TEXTS),
    st.text(max_size=3),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)),
    max_leaves=5,
)


def shown(found: Deserialized, schema: RowSchema) -> list[str]:
    """What each message is: its rows or why it is bad."""
    count = len(found.bad) + len(found.values) if found.places is None else None
    places = range(count) if count is not None else found.places
    assert places is not None
    texts = [f"{place}: {row!r}" for place, row in zip(places, held_rows(found.columns, schema.types), strict=True)]
    return sorted([*texts, *(f"{place}: bad, {reason}" for place, reason in reasons(found))])


def without_reason(outcome: str) -> str:
    """A reason may show a number in another form."""
    return outcome.partition(": bad")[0] + ": bad" if ": bad, " in outcome else outcome


@given(st.sampled_from(KINDS), st.lists(VALUES, min_size=1, max_size=60), st.booleans(), st.booleans())
def test_every_type_is_read_the_same_alone_and_among_others(
    kind: str, values: list[Any], ignores: bool, escapes: bool
) -> None:
    """K1: whatever a field holds; and so is a message that a byte order mark keeps from the quick way."""
    schema = make_schema(a=kind, b="INT")
    messages = [
        json.dumps({"a": value, "b": 1}, ensure_ascii=escapes).encode("utf-8", "surrogatepass") for value in values
    ]
    options = {"ignore_parse_errors": str(ignores).lower()}
    together = shown(decoded("json", schema, messages, **options), schema)
    alone = [
        text.replace("0:", f"{place}:", 1)
        for place, message in enumerate(messages)
        for text in shown(decoded("json", schema, [message], **options), schema)
    ]
    assert together == sorted(alone)
    marked = shown(decoded("json", schema, [b"\xef\xbb\xbf" + message for message in messages], **options), schema)
    assert list(map(without_reason, marked)) == list(map(without_reason, together))


@pytest.mark.parametrize("around", [0, AROUND])
@pytest.mark.parametrize(
    ("kind", "field", "expected"),
    [
        ("STRING", b'"x\ty"', "x\ty"),
        ("STRING", b'"\\ud800"', "?"),
        ("STRING", b'"\\udc00x"', "?x"),
        ("STRING", b'"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        ("STRING", b'"\xed\xa0\x80"', "?"),
        ("STRING", b"1e2", "1e2"),
        ("STRING", b"1.10", "1.10"),
        ("STRING", b"-0", "-0"),
        ("STRING", b"1E400", "1E400"),
        ("STRING", b'{"x": 1, "y":[null]}', '{"x":1,"y":[null]}'),
        ("DOUBLE", b"1e400", float("inf")),
        ("DOUBLE", b"-1e400", float("-inf")),
        ("DOUBLE", b'"1e400"', float("inf")),
        ("DOUBLE", b'"Infinity"', float("inf")),
        ("DOUBLE", b'"1d"', 1.0),
        ("DOUBLE", b'" 1 "', 1.0),
        ("FLOAT", b"1e39", float("inf")),
        ("INT", b'" 1 "', 1),
        ("INT", b'"+1"', 1),
        ("INT", b"1e2", 100),
        ("INT", b"1.0", 1),
        ("DECIMAL(5, 2)", b"1.005", Decimal("1.01")),
        ("DECIMAL(5, 2)", b"1e2", Decimal("100.00")),
        ("DECIMAL(5, 2)", b'" 1.5 "', Decimal("1.50")),
        ("MAP<STRING, INT>", b'{"x":1,"x":2}', [("x", 2)]),
    ],
)
def test_unusual_values_are_read_as_flink_reads_them(around: int, kind: str, field: bytes, expected: Any) -> None:
    """K2: also in fields that no column has."""
    schema = make_schema(a=kind, b="INT")
    good = [b'{"b": 1}'] * around
    found = rows("json", schema, [*good, b'{"a": ' + field + b', "b": 2}', *good])
    assert found[around] == (expected, 2)
    assert len(found) == 2 * around + 1
    assert rows("json", make_schema(b="INT"), [*good, b'{"a": ' + field + b', "b": 2}'])[around] == (2,)


@pytest.mark.parametrize("around", [0, AROUND])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("DATE", b'""'),
        ("TIME", b'""'),
        ("TIMESTAMP(3)", b'""'),
        ("TIMESTAMP_LTZ(3)", b'""'),
        ("TIMESTAMP_LTZ(3)", b'"2020-01-02 03:04:05"'),
        ("INT", b'""'),
        ("INT", b'"1_0"'),
        ("INT", b'"1.0"'),
        ("INT", b"2147483648"),
        ("DOUBLE", b'""'),
        ("DOUBLE", b'"nan"'),
        ("DOUBLE", b'"inf"'),
        ("DOUBLE", b'"1_0"'),
        ("DOUBLE", b"true"),
        ("DECIMAL(5, 2)", b'"1_0"'),
        ("DECIMAL(5, 2)", b'"NaN"'),
        ("BYTES", b'"AAE"'),
        ("ARRAY<INT>", b'[1,"x"]'),
        ("ARRAY<INT>", b"{}"),
        ("ROW<x INT>", b"[]"),
    ],
)
def test_values_that_flink_refuses_are_bad_and_null_where_errors_are_ignored(
    around: int, kind: str, field: bytes
) -> None:
    """K2: the message is bad; with ignore-parse-errors the innermost value is NULL."""
    schema = make_schema(a=kind, b="INT")
    good = [b'{"b": 1}'] * around
    message = b'{"a": ' + field + b', "b": 2}'
    [(place, reason)] = reasons(decoded("json", schema, [*good, message, *good]))
    assert place == around
    assert reason.startswith("column 'a': ")
    found = rows("json", schema, [*good, message, *good], ignore_parse_errors="true")
    assert found[around] == ([1, None] if field.startswith(b"[1") else None, 2)


@pytest.mark.parametrize("around", [0, AROUND])
@pytest.mark.parametrize("field", [b"NaN", b"-Infinity", b"01", b"1.", b"+1", b"tru", b'"\\q"', b'"\xff"', b'"\xc3"'])
def test_tokens_that_json_does_not_have_make_a_message_bad(around: int, field: bytes) -> None:
    """K2: in fields of columns, in others and in names; with ignore-parse-errors it is left out."""
    schema = make_schema(a="STRING", b="INT")
    good = [b'{"b": 1}'] * around
    name = field if field.startswith(b'"') else b'"' + field
    bad = [b'{"a": ' + field + b"}", b'{"b": 2, "c": [' + field + b"]}", b'{"b": 2, ' + name + b": 3}"]
    for ignores in ("false", "true"):
        found = decoded("json", schema, [*good, *bad, *good], ignore_parse_errors=ignores)
        assert [place for place, _ in reasons(found)] == [around, around + 1, around + 2]
        assert len(found.values) == 2 * around


def test_message_of_no_bytes_and_arrays_of_objects() -> None:
    """K2: a message of 0 bytes is no row, and each object of an array is one; their places are told."""
    schema = make_schema(a="INT")
    messages = [b"", b'[{"a": 1}, {"a": "2"}]', b'{"a": 3}', b"[]", b'[{"a": 4}]', b""]
    found = decoded("json", schema, messages)
    assert not found.bad
    assert held_rows(found.columns, schema.types) == [(1,), (2,), (3,), (4,)]
    assert list(found.of_records(range(len(messages)))) == [1, 1, 2, 4]
    assert not decoded("json", schema, [b""]).bad
    assert len(decoded("json", schema, [b""]).values) == 0


@pytest.mark.parametrize(
    ("kind", "field"),
    [("INT", b"1.5"), ("BOOLEAN", b'"yes"'), ("BOOLEAN", b"1"), ("DECIMAL(5, 2)", b"12345.5"), ("TINYINT", b"1.5")],
)
def test_field_that_would_lose_something_is_not_read(kind: str, field: bytes) -> None:
    """Flink reads 1, FALSE and NULL, but for TINYINT."""
    for message in (b'{"a": ' + field + b"}", b'{"a": ' + field + b', "b": "\t"}'):
        assert len(decoded("json", make_schema(a=kind), [message]).bad) == 1
        assert rows("json", make_schema(a=kind), [message], ignore_parse_errors="true") == [(None,)]


def test_fields_of_json_may_have_all_forms_of_a_cast() -> None:
    """Flink takes only one form of each type."""
    schema = make_schema(d="DATE", t="TIMESTAMP(3)")
    message = b'{"d": "2024-1-2", "t": "2024-01-02"}'
    assert rows("json", schema, [message]) == [(19_724, 1_704_153_600_000_000_000)]


def test_last_of_two_fields_with_the_same_name_counts() -> None:
    """Flink may take the first, or leave out the fields after it."""
    schema = make_schema(a="STRING", b="INT")
    for message in (b'{"a":"x","a":"y","b":1}', b'{"a":"x","b":1,"a":"y"}', b'{"a":5,"b":1,"a":"y"}'):
        assert rows("json", schema, [message]) == [("y", 1)]


def test_bytes_behind_an_object_are_an_error() -> None:
    """Flink reads the first object and drops the rest."""
    schema = make_schema(a="INT")
    assert len(decoded("json", schema, [b'{"a": 1} {"a": 2}']).bad) == 1
    assert rows("json", schema, [b' {"a": 1}\r\n']) == [(1,)]


def test_deep_nesting_is_an_error_of_the_message() -> None:
    """A field that no column has, or one that is a text, may hold anything."""
    deep = b"[" * 100_000 + b"]" * 100_000
    schema = make_schema(a="STRING")
    for ignores in ("false", "true"):
        bad = [b'{"a": ' + deep + b"}", b'{"b": ' + deep + b"}", deep]
        found = decoded("json", schema, [b'{"a": "x"}', *bad], ignore_parse_errors=ignores)
        assert [place for place, _ in reasons(found)] == [1, 2, 3]
        assert all("nested too deeply" in reason for _, reason in reasons(found))
    for name in CHANGELOGS:
        assert len(decoded(name, schema, [b'{"b": ' + deep + b"}"]).bad) == 1
    of_rows = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["a"], [Types.STRING()])).build()
    assert len(of_rows.deserialize_batch([b'{"a": "x"}', b'{"b": ' + deep + b"}"]).bad) == 1


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_other_encodings_of_unicode_are_found_out(encoding: str) -> None:
    """K2: by the first bytes."""
    text = '{"a": "\N{GRINNING FACE}ä"}'
    assert rows("json", make_schema(a="STRING"), [b'{"a": "x"}'] * AROUND + [text.encode(encoding)])[-1] == (
        "\N{GRINNING FACE}ä",
    )


@pytest.mark.parametrize("text", ["0000-01-01 00:00:00", "2020-02-30 03:04:05", "1500-01-01 00:00:00"])
def test_text_that_a_kernel_reads_is_the_same_alone(text: str) -> None:
    """K1: a kernel reads a column of times whose texts all have the usual form."""
    schema = make_schema(a="TIMESTAMP(3)")
    message = json.dumps({"a": text}).encode()
    alone = shown(decoded("json", schema, [message]), schema)
    among = shown(decoded("json", schema, [message] + [b'{"a": "2020-01-02 03:04:05"}'] * AROUND), schema)
    assert [one for one in among if one.startswith("0:")] == alone


# --- changelogs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", [0, AROUND])
def test_debezium_reads_what_flink_reads(around: int) -> None:
    """K2: control characters, surrogates, a byte order mark; other encodings and shapes are bad."""
    schema = make_schema(a="STRING", b="INT")
    good = [b'{"op":"c","after":{"a":"x","b":1}}'] * around
    read = [
        (b'{"op":"c","after":{"a":"x\ty","b":1}}', ("x\ty", 1)),
        (b'{"op":"c","after":{"a":"\\ud800","b":1}}', ("?", 1)),
        (b'{"op":"c","after":{"a":"x","b":1},"source":{"n":"\t"}}', ("x", 1)),
        (b'\xef\xbb\xbf{"op":"c","after":{"a":"x","b":1}}', ("x", 1)),
        (b'{"op":"c","after":{}}', (None, None)),
    ]
    refused = [
        b'{"op":"c","after":{"a":"x","b":1},"source":{"n":"\xff"}}',
        b'{"op":"c","after":{"a":"\xff","b":1}}',
        b'{"op":"c","after":{"a":NaN,"b":1}}',
        b'{"op":"c","after":{"a":"x","b":1e400}}',
        *(json.dumps({"op": "c", "after": after}).encode() for after in ([], [{"a": "x"}], 5, "x", None)),
        *(json.dumps(shape).encode() for shape in WRONG_SHAPES[1:]),
    ]
    for message, row in read:
        found = decoded("debezium-json", schema, [*good, message, *good, b""])
        assert not found.bad
        assert held_rows(found.columns, schema.types)[around] == row
    for message in refused:
        found = decoded("debezium-json", schema, [*good, message, *good, b""])
        assert [place for place, _ in reasons(found)] == [around]
        assert len(found.values) == 2 * around


# --- Arrow's reader --------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What Arrow's JSON reader is handed, which a stand-in for it records. It reads nothing."""
    found: list[bytes] = []

    def record(source: Any, *options: Any, **more: Any) -> None:
        found.append(source.read() if hasattr(source, "read") else Path(source).read_bytes())
        raise pyarrow.ArrowInvalid("nothing is read here")

    monkeypatch.setattr(pyarrow.json, "read_json", record)
    monkeypatch.setattr(pyarrow.json, "open_json", record)
    return found


def of_table(name: str, **options: str) -> Callable[[list[bytes]], Deserialized]:
    return lambda messages: decoded(name, make_schema(a="INT", b="STRING", d="DATE"), messages, **options)


DECODERS: dict[str, Callable[[list[bytes]], Deserialized]] = {
    "json": of_table("json"),
    "json, errors ignored": of_table("json", ignore_parse_errors="true"),
    **{name: of_table(name) for name in CHANGELOGS},
    **{f"{name}, errors ignored": of_table(name, ignore_parse_errors="true") for name in CHANGELOGS},
}


@pytest.mark.parametrize("name", DECODERS)
def test_message_of_another_shape_never_reaches_arrows_reader(recorded: list[bytes], name: str) -> None:
    """Which may end the process for some. Each is bad, or says nothing; its neighbours are read."""
    good = [json.dumps({"a": 1, "b": "x", "d": "2020-01-02"}).encode()] * AROUND
    shapes = [json.dumps(shape).encode() for shape in WRONG_SHAPES]
    for count in (1, 2, AROUND):
        found = DECODERS[name]([message for shape in shapes for message in [shape] * count])
        assert len(found.values) == 0
        if name.startswith("json"):
            assert len(found.bad) == len(shapes) * count
            among = DECODERS[name]([*good, *shapes, *good])
            assert (len(among.values), len(among.bad)) == (2 * AROUND, len(shapes))
    assert not [one for one in recorded if not all(line.startswith(b"{") for line in one.splitlines())]


def test_no_module_uses_arrows_json_reader() -> None:
    """It cannot be guarded cheaply: only a whole parse tells that a line is one object."""
    root = Path(penstock.__file__).parent
    reader = re.compile(r"import pyarrow\.json|from pyarrow import .*\bjson\b")
    assert not [path for path in root.rglob("*.py") if reader.search(path.read_text())]


def test_files_with_lines_of_another_shape(recorded: list[bytes], tmp_path: Path) -> None:
    """A skipped line is not a row of NULLs."""
    lines = [json.dumps(value) for value in ({"a": 1}, *WRONG_SHAPES, {"a": 2})]
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "part").write_text("\n".join(lines * AROUND) + "\n")
    ddl = f"CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path / 't'}', 'format' = 'json', "
    found = table_rows(ddl + "'json.ignore-parse-errors' = 'true')")
    assert sorted(found) == [(1,)] * AROUND + [(2,)] * AROUND
    assert not recorded
