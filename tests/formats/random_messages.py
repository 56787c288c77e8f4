"""Random messages, well-formed and broken, alone and together: `python -m tests.formats.random_messages`.

A decoder must give the same rows and the same errors for a message, whether it decodes the message alone or among
thousands. Each case has a random table, random rows that the format's own encoder writes, and breaks a part of the
messages: other JSON values in fields, other shapes, changed, missing and repeated bytes. `--seed N` replays a run.
Each format runs in a process of its own, so that a process that dies is a failure of its format.
"""

from __future__ import annotations

import argparse
import codecs
import json
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from tests.formats.test_protobuf import COLUMNS as PROTOBUF_COLUMNS
from tests.table.connectors.tables import held_rows

from penstock.base.typeinfo import TypeInformation
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import Deserialized
from penstock.common import Types
from penstock.datastream.formats.csv import CsvRowDeserializationSchema
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data import types
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import DataType
from penstock.sql.formats import built_in_formats
from penstock.sql.formats.format import Decoding
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions

Random = random.Random
#: what a message is: its rows as text, each with its kind, or why it is bad
Outcome = tuple[str, ...]
Decode = Callable[[Sequence[bytes]], Deserialized]

FORMATS = ("json", "avro", "protobuf", "csv", "debezium-json", "canal-json", "json rows", "csv rows")
_SIMPLE = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "CHAR(3)", "VARCHAR(5)"),
    *("BYTES", "DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"),
    *("DECIMAL(5, 2)", "DECIMAL(20, 0)", "DECIMAL(38, 18)"),
)
_FINE = ("TIMESTAMP(9)", "TIMESTAMP_LTZ(9)")
_TEXTS = ("", "a", "ann", "ä", "😀", "a,b", 'say "hi"', "two\nlines", "1", "1.50", "true", "null", "2020-01-02", " x ")
#: values that a field of JSON may hold where its column has another type
_ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.0,
        1.5,
        3_000_000_000,
        2**63,
        2**70,
        1e300,
        0.1,
        "",
        "",
        "",
        " ",
        "x",
        "5",
        " 5 ",
        "1_0",
    ),
    *("+5", "1.0", "1e3", "NaN", "nan", "Infinity", "inf", "1d", "true", " TRUE ", "2020-01-02", " 2020-01-02", "2020"),
    *("2020-02-30", "0000-01-01", "2020-01-02 03:04:05", "2020-01-02T03:04:05", "2020-01-02 03:04:05Z", "03:04:05"),
    *("03:04", "24:00:00", "9999-12-31 23:59:59.999999999", "2020-01-02 03:04:05.1234567", "AAE=", "AAE", [], {}),
    *([1, None, "3"], [[1]], {"x": 1}, {"x": None, "y": "z"}, ["a"], [{"x": 1}], "\ud800", "\udc00x", "a\tb"),
)
#: texts that are no JSON, and numbers that JSON's own writers do not write
_RAW = (
    *(b"NaN", b"-Infinity", b"1e400", b"-1e400", b"01", b"1.", b"tru", b"", b"1E5", b"-0", b"-0.0", b"1.10"),
    *(b'"\t"', b'"\\q"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'"\xc0\x80"'),
)
_WRONG_SHAPES: tuple[Any, ...] = (None, True, 5, -1.5, "x", "", [], [[]], [None], [1, 2], ["x"], {})
_LONGEST = 3
_MARK = codecs.BOM_UTF8


class Case(NamedTuple):
    """A decoder, and messages for it."""

    decode: Decode
    show: Callable[[Deserialized], list[str]]
    messages: list[bytes]
    is_json: bool = False


class Difference(NamedTuple):
    """A message that is something else among others."""

    message: bytes
    alone: Outcome
    together: Outcome


# --- tables and rows -------------------------------------------------------------------------------------------------


def random_schema(rng: Random, name: str) -> RowSchema:
    """A table of a few columns that the format can hold."""
    choices = rng.choice((_SIMPLE, _SIMPLE[:8], ("BIGINT", "STRING", "DATE", "TIMESTAMP(3)")))
    kinds = [_random_kind(rng, name, 2, choices) for _ in range(rng.randint(1, 6))]
    return RowSchema(tuple(PlanColumn(f"f{place}", parse_data_type(kind)) for place, kind in enumerate(kinds)))


def _random_kind(rng: Random, name: str, depth: int, choices: Sequence[str]) -> str:
    drawn = rng.random()
    is_csv, is_avro = name.startswith("csv"), name == "avro"
    if depth and drawn < 0.1:
        return f"ARRAY<{_random_kind(rng, name, 0 if is_csv else depth - 1, choices)}>"
    if depth and drawn < 0.2:
        parts = [_random_kind(rng, name, 0 if is_csv else depth - 1, choices) for _ in range(rng.randint(1, 3))]
        return f"ROW<{', '.join(f'x{place} {kind}' for place, kind in enumerate(parts))}>"
    if depth and drawn < 0.3 and not is_csv:
        return f"MAP<STRING, {_random_kind(rng, name, depth - 1, choices)}>"
    if depth and drawn < 0.33 and not is_csv:
        return "MULTISET<STRING>"
    return rng.choice(choices if is_avro or choices is not _SIMPLE else _SIMPLE + _FINE)


def random_value(rng: Random, kind: DataType) -> Any:
    """A value of a type, as `data.values` holds it; often NULL."""
    if kind.is_nullable and rng.random() < 0.15:
        return None
    match kind:
        case types.BooleanType():
            return rng.random() < 0.5
        case types.TinyIntType():
            return rng.choice((-128, 0, 127))
        case types.SmallIntType():
            return rng.choice((-(2**15), 1, 2**15 - 1))
        case types.IntType():
            return rng.choice((0, 1, -(2**31), 2**31 - 1))
        case types.BigIntType():
            return rng.choice((0, -1, 2**53 + 1, -(2**63), 2**63 - 1))
        case types.FloatType():
            return rng.choice((0.0, -1.5, 2.0**100))
        case types.DoubleType():
            return rng.choice((0.0, -0.0, 0.1, 1e300, -123456.789))
        case types.DecimalType(precision=precision, scale=scale):
            return Decimal(rng.randrange(-(10**precision) + 1, 10**precision)).scaleb(-scale)
        case types.CharType() | types.VarCharType():
            return rng.choice(_TEXTS)
        case types.BinaryType() | types.VarBinaryType():
            return rng.randbytes(rng.randint(0, _LONGEST))
        case types.DateType():
            return rng.randint(-100_000, 100_000)
        case types.TimeType():
            return rng.randrange(86_400_000)
        case types.TimestampType(precision=digits) | types.LocalZonedTimestampType(precision=digits):
            step = 10 ** (9 - digits)
            return rng.randrange(-(10**18), 10**18) // step * step
        case types.RowType():
            return tuple(random_value(rng, field.data_type) for field in kind.fields)
        case types.MultisetType():
            return [(text, rng.randint(1, 3)) for text in _some_texts(rng)]
        case types.MapType(key_type=types.IntType(), value_type=item):
            return [(number, random_value(rng, item)) for number in rng.sample(range(-2, 9), rng.randint(0, _LONGEST))]
        case types.MapType(value_type=item):
            return [(text, random_value(rng, item)) for text in _some_texts(rng)]
        case types.ArrayType(element_type=element):
            return [random_value(rng, element) for _ in range(rng.randint(0, _LONGEST))]
    raise AssertionError(kind)


def _some_texts(rng: Random) -> list[str]:
    return rng.sample(_TEXTS[:6], rng.randint(0, _LONGEST))


# --- messages --------------------------------------------------------------------------------------------------------


def table_case(rng: Random, name: str, count: int) -> Case:
    """Messages of a table's format."""
    options = {"format": name}
    if name != "protobuf":
        schema = random_schema(rng, "json" if name.endswith("json") else name)
    else:
        chosen = rng.sample(sorted(PROTOBUF_COLUMNS), rng.randint(1, 8))
        schema = RowSchema(tuple(PlanColumn(column, parse_data_type(PROTOBUF_COLUMNS[column])) for column in chosen))
        options["protobuf.message-class-name"] = "tests.formats.shop_pb2:Order"
    if rng.random() < 0.5:
        options[f"{name}.ignore-parse-errors"] = "true"
    elif name == "json" and rng.random() < 0.3:
        options["json.fail-on-missing-field"] = "true"
    if name.endswith("json") and rng.random() < 0.3:
        options[f"{name}.timestamp-format.standard"] = "ISO-8601"
    found, below = built_in_formats().find(TableOptions("t", options))
    decoding: Decoding = found.decoding(schema, range(len(schema)), below)
    assert decoding.messages is not None
    encoder = found.encoding(schema, below).messages
    assert encoder is not None
    rows = [tuple(_fitting(rng, name, column) for column in schema) for _ in range(count)]
    arrays = [to_column(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema.names)
    changes = bytes(rng.choice((0, 0, 0, 3)) for _ in rows)
    written = (
        encoder.encode_changes(batch, changes) if name in ("debezium-json", "canal-json") else encoder.encode(batch)
    )
    messages = some_broken(rng, name, written)

    def show(found: Deserialized) -> list[str]:
        kinds = found.kinds or bytes(len(found.values))
        return [repr(row) for row in zip(kinds, held_rows(found.columns, schema.types), strict=True)]

    return Case(decoding.messages.decode, show, messages, name.endswith("json"))


def _fitting(rng: Random, name: str, column: PlanColumn) -> Any:
    if name != "protobuf":
        return random_value(rng, column.type)
    if column.name in _PROTOBUF_VALUES:
        return _PROTOBUF_VALUES[column.name](rng)
    while "None" in repr(value := random_value(rng, column.type)):
        pass  # messages have no NULL inside of arrays and maps
    return value


#: values of fields that do not hold all values of their columns
_PROTOBUF_VALUES: dict[str, Callable[[Random], Any]] = {
    "state": lambda rng: rng.choice(("NEW", "SENT")),
    "history": lambda rng: [rng.randint(0, 2) for _ in range(rng.randint(0, _LONGEST))],
    "large": lambda rng: rng.choice((0, 2**63 - 1)),
    "lines": lambda rng: [(rng.choice((0, 7, 2**31)),) for _ in range(rng.randint(0, _LONGEST))],
}


def rows_case(rng: Random, name: str, count: int) -> Case:
    """Messages of a schema of the DataStream API."""
    inner = name.removesuffix(" rows")
    fields = [rng.choice(_ROW_TYPES) for _ in range(rng.randint(1, 5))]
    if inner == "csv":
        fields = [field for field in fields if field[0] != "ROW<x0 INT, x1 STRING>"] or [_ROW_TYPES[0]]
    schema = RowSchema(tuple(PlanColumn(f"f{place}", parse_data_type(kind)) for place, (kind, _) in enumerate(fields)))
    found, below = built_in_formats().find(TableOptions("t", {"format": inner, **_ISO.get(inner, {})}))
    encoder = found.encoding(schema, below).messages
    assert encoder is not None
    rows = [tuple(random_value(rng, kind) for kind in schema.types) for _ in range(count)]
    arrays = [to_column(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    written = encoder.encode(pa.RecordBatch.from_arrays(arrays, schema.names))
    messages = some_broken(rng, inner, written)
    row_type = Types.ROW_NAMED(schema.names, [made for _, made in fields])
    if inner == "json":
        builder = JsonRowDeserializationSchema.builder().type_info(row_type)
        builder = builder.fail_on_missing_field() if rng.random() < 0.3 else builder
        decode: Decode = (builder.as_columns() if rng.random() < 0.5 else builder).build().deserialize_batch
    else:
        lines = CsvRowDeserializationSchema.Builder(row_type)
        decode = (lines.as_columns() if rng.random() < 0.5 else lines).build().deserialize_batch

    def show(found: Deserialized) -> list[str]:
        values = found.columns.to_pylist() if isinstance(found.values, ColumnData) else list(found.values)
        return list(map(repr, values))

    return Case(decode, show, messages, inner == "json")


_ISO = {"json": {"json.timestamp-format.standard": "ISO-8601"}}
_ROW_TYPES: tuple[tuple[str, TypeInformation], ...] = (
    ("INT", Types.INT()),
    ("BIGINT", Types.LONG()),
    ("DOUBLE", Types.DOUBLE()),
    ("STRING", Types.STRING()),
    ("BOOLEAN", Types.BOOLEAN()),
    ("DATE", Types.SQL_DATE()),
    ("TIME(3)", Types.SQL_TIME()),
    ("TIMESTAMP(3)", Types.SQL_TIMESTAMP()),
    ("DECIMAL(20, 0)", Types.BIG_DEC()),
    ("ARRAY<INT>", Types.LIST(Types.INT())),
    ("ROW<x0 INT, x1 STRING>", Types.ROW_NAMED(["x0", "x1"], [Types.INT(), Types.STRING()])),
)


def some_broken(rng: Random, name: str, messages: Sequence[bytes]) -> list[bytes]:
    """The same messages, of which some are broken in one or two ways.

    The ways are few and the other messages are well-formed, because a decoder leaves its quick path for good when it
    meets the first message that the path refuses.
    """
    is_json = name.endswith("json")
    ways = [(_json_way if is_json and rng.random() < 0.8 else _bytes_way)(rng) for _ in range(rng.randint(1, 2))]
    share = rng.choice((0.05, 0.3, 1.0))
    return [rng.choice(ways)(message) if rng.random() < share else message for message in messages]


def _bytes_way(rng: Random) -> Callable[[bytes], bytes]:
    way = rng.randrange(7)
    inserted = rng.choice((b'"', b",", b"\n", b"\r\n", b"\\", b" ", b"_", b"\t", b"{", b"]", b"\xff", b"\x00"))

    def change(message: bytes) -> bytes:
        at, end = sorted((rng.randint(0, len(message)), rng.randint(0, len(message))))
        match way:
            case 0:
                return message[:at]
            case 1:
                return message[at:]
            case 2:
                return message[:at] + message[end:]
            case 3:
                return message[:at] + message[at:end] * 2 + message[end:]
            case 4:
                return message[:at] + rng.randbytes(rng.randint(1, _LONGEST)) + message[at:]
            case 5:
                return message[:at] + inserted + message[at:]
            case _:
                return b""

    return change


def _json_way(rng: Random) -> Callable[[bytes], bytes]:
    drawn = rng.random()
    if drawn < 0.15:
        shape = json.dumps(rng.choice(_WRONG_SHAPES)).encode()
        return lambda message: shape
    if drawn < 0.2:
        times = rng.randint(1, _LONGEST)
        return lambda message: b"[" + b",".join([message] * times) + b"]"
    if drawn < 0.3:
        return lambda message: _changed(rng, message, None, "other")
    token = (
        rng.choice(_RAW)
        if drawn < 0.6
        else json.dumps(rng.choice(_ODD), ensure_ascii=drawn < 0.9).encode("utf-8", "surrogatepass")
    )
    goes_deep = rng.random() < 0.7
    other = "other" if rng.random() < 0.1 else None
    return lambda message: _changed(rng, message, token, other, goes_deep)


def _changed(rng: Random, message: bytes, token: bytes | None, other: str | None, goes_deep: bool = False) -> bytes:
    """A message with a token in place of a random value, or in another field; without a token it lacks a field."""
    hole = "a hole for the token"

    def change(part: Any, depth: int) -> Any:
        if isinstance(part, dict) and part and (depth == 0 or goes_deep):
            if token is not None and other is not None and depth == 0:
                return {**part, other: hole}
            name = rng.choice(list(part))
            if token is None:
                return {key: item for key, item in part.items() if key != name}
            return {**part, name: change(part[name], depth + 1)}
        if isinstance(part, list) and part and goes_deep:
            at = rng.randrange(len(part))
            return [*part[:at], change(part[at], depth + 1), *part[at + 1 :]]
        return hole

    changed = json.dumps(
        change(json.loads(message, parse_float=Decimal), 0), ensure_ascii=False, default=float
    ).encode()
    return changed.replace(f'"{hole}"'.encode(), token or b"null")


# --- alone and together ----------------------------------------------------------------------------------------------


def outcomes(case: Case, messages: Sequence[bytes]) -> list[Outcome]:
    """What each message is, when all are decoded together."""
    found = case.decode(messages)
    of_rows: list[list[str]] = [[] for _ in messages]
    shown = case.show(found)
    places = range(len(messages)) if found.places is None else found.places
    for place, row in zip(places, shown, strict=True):
        of_rows[place].append(row)
    reasons = {bad.place: bad.reason for bad in found.bad}
    assert list(reasons) == sorted(reasons), "bad messages are in order, and each is named once"
    assert not any(of_rows[place] for place in reasons), "a bad message has no rows"
    return [("bad", reasons[place]) if place in reasons else ("rows", *rows) for place, rows in enumerate(of_rows)]


def differences(case: Case, sizes: Iterator[int]) -> list[Difference]:
    """The messages that are something else alone than in batches of these sizes.

    A byte order mark in front of a JSON object changes nothing but the way in which it is read: one field after the
    other, as a message with unusual values is.
    """
    alone = [outcomes(case, [message])[0] for message in case.messages]
    together: list[Outcome] = []
    while len(together) < len(alone):
        together += outcomes(case, case.messages[len(together) : len(together) + next(sizes)])
    triples = zip(case.messages, alone, together, strict=True)
    found = [Difference(*triple) for triple in triples if triple[1] != triple[2]]
    for message, expected in zip(case.messages, alone, strict=True):
        if case.is_json and message.startswith(b"{"):
            (marked,) = outcomes(case, [_MARK + message])
            if marked != expected and (marked[0], expected[0]) != ("bad", "bad"):
                found.append(Difference(_MARK + message, expected, marked))
    return found


def run_format(name: str, seed: int, count: int) -> tuple[int, int, list[Difference]]:
    """How many messages were tried, how many of them were bad, and those that differ."""
    rng = random.Random(f"{name} {seed}")
    tried = bad = 0
    found: list[Difference] = []
    while tried < count and len(found) < 20:
        # Many small cases find more; thousands together are rare.
        size = min(count - tried, 3000 if rng.random() < 0.01 else rng.choice((20, 30, 50)))
        make = rows_case if name.endswith(" rows") else table_case
        case = make(rng, name, size)
        found += differences(case, iter(lambda: rng.choice((2, 17, 40, 100, 1000, 5000)), 0))
        bad += len(case.decode(case.messages).bad)
        tried += size
    return tried, bad, found


def main() -> int:
    """Run what the command line asks for. Returns 1 if a format fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000, help="how many of each format")
    parser.add_argument("--seed", type=int, default=None, help="replay a run; by default the seed is fresh")
    parser.add_argument("--formats", default=",".join(FORMATS), help=f"of {', '.join(FORMATS)}")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", file=sys.stderr)
    failed = False
    for name in chosen.formats.split(","):
        with ProcessPoolExecutor(1) as pool:
            running = pool.submit(run_format, name, seed, chosen.messages)
            error = running.exception()
        if error is not None:
            failed = True
            died = isinstance(error, BrokenProcessPool)
            print(f"{name}: {'the process died' if died else ''.join(traceback.format_exception(error))}", flush=True)
            continue
        tried, bad, found = running.result()
        print(f"{name}: {tried:,} messages, {bad:,} of them bad, {len(found)} differ", flush=True)
        for one in found:
            print(f"  {one.message!r}\n    alone    {one.alone}\n    together {one.together}", flush=True)
        failed = failed or bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
