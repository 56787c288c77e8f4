"""VARIANT: how JSON becomes values, and values JSON, parts and other types."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from pathlib import Path
from random import Random, SystemRandom, randrange
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.table.flink_values import parse_type
from tests.table.functions import Row, results, session_of, typed_sql

from penstock.base.errors import FormatError
from penstock.codecs.variant import STORED, Single, Variant, _encode, from_stored
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.functions.variants import parse, variant_item
from penstock.state.keys import key_bytes
from penstock.table import DataTypes, EnvironmentSettings, RowKind, TableEnvironment
from penstock.table.udf import udf


def evaluated(sql: str, value: str | None) -> tuple[Any, str]:
    """The value of an expression over the text `x`, and its type."""
    row = Row(["x"], [parse_type("STRING")], [value])
    session = session_of()
    (typed,) = typed_sql(sql, row, session)
    return results([typed], row, session)[0], str(typed.type)


@pytest.mark.parametrize(
    ("text", "value", "json"),
    [
        ("1", 1, "1"),
        ("1.50", Decimal("1.50"), "1.5"),
        ("1.5e3", 1500.0, "1500.0"),
        ("12345678901234567890", Decimal("12345678901234567890"), "12345678901234567890"),
        ("1" * 40, float("1" * 40), "1.1111111111111112E39"),
        ("true", True, "true"),
        ("null", None, "null"),
        ("1e400", float("inf"), "Infinity"),
        ("-0.0", Decimal("0.0"), "0"),
        ('"a\\n"', "a\n", '"a\\n"'),
        ('{"b": [1, null], "a": {}}', {"a": {}, "b": [1, None]}, '{"a":{},"b":[1,null]}'),
    ],
)
def test_json_becomes_values(text: str, value: object, json: str) -> None:
    assert evaluated("PARSE_JSON(x)", text) == (Variant.of(value), "VARIANT")
    assert evaluated("JSON_STRING(PARSE_JSON(x))", text) == (json, "STRING")
    assert parse(text).to_json() == json


def test_null_has_no_value() -> None:
    assert evaluated("PARSE_JSON(x)", None) == (None, "VARIANT")


@pytest.mark.parametrize("text", ["", "{", "abc", '{"a": 1, "a": 2}'])
def test_what_is_no_json_fails_or_is_null(text: str) -> None:
    with pytest.raises(TableRuntimeError, match="Failed to parse json string"):
        evaluated("PARSE_JSON(x)", text)
    assert evaluated("TRY_PARSE_JSON(x)", text) == (None, "VARIANT")


def test_keys_may_come_twice_if_asked() -> None:
    assert evaluated("PARSE_JSON(x, TRUE)", '{"a": 1, "a": 2}')[0] == Variant.of({"a": 2})


def test_only_text_is_read() -> None:
    with pytest.raises(ValidationError):
        evaluated("PARSE_JSON(1)", "")


def test_parts() -> None:
    array, thing = Variant.of([10, None]), Variant.of({"k": [1]})
    assert [variant_item(array, index) for index in (0, 1, 2, 3)] == [None, Variant.of(10), Variant.of(None), None]
    assert variant_item(thing, "k") == Variant.of([1])
    assert variant_item(thing, "other") is None
    assert variant_item(None, 1) is None
    with pytest.raises(TableRuntimeError):
        variant_item(thing, 1)
    with pytest.raises(TableRuntimeError):
        variant_item(array, "k")


@pytest.mark.parametrize("index", ["1", "CAST(1 AS TINYINT)", "CAST(1 AS SMALLINT)", "CAST(1 AS BIGINT)"])
def test_an_index_may_have_any_type_of_whole_numbers(index: str) -> None:
    assert evaluated(f"PARSE_JSON(x)[{index}]", "[5]") == (Variant.of(5), "VARIANT")


@pytest.mark.parametrize("index", ["0", "-1", "2", "CAST(NULL AS INT)", "CAST(0 AS BIGINT)", "2147483647"])
def test_there_is_no_element_outside_an_array(index: str) -> None:
    assert evaluated(f"PARSE_JSON(x)[{index}]", "[5]") == (None, "VARIANT")


@pytest.mark.parametrize("index", ["1.0", "CAST(1 AS DOUBLE)", "TRUE", "DATE '2020-01-01'", "PARSE_JSON('1')"])
def test_other_types_are_no_index(index: str) -> None:
    with pytest.raises(ValidationError):
        evaluated(f"PARSE_JSON(x)[{index}]", "[5]")


@pytest.mark.parametrize(
    "kind", ["INT", "STRING", "DECIMAL(5, 2)", "DATE", "ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>"]
)
def test_a_variant_is_cast_to_nothing(kind: str) -> None:
    """As in Flink 2.3, which has no cast from or to VARIANT."""
    with pytest.raises(ValidationError, match="JSON_STRING returns a variant as JSON"):
        evaluated(f"CAST(PARSE_JSON(x) AS {kind})", "1")
    with pytest.raises(ValidationError, match="cannot convert"):
        evaluated("CAST(CHAR_LENGTH(x) AS VARIANT)", "1")


def test_paths_of_json_lead_into_variants() -> None:
    assert evaluated("JSON_VALUE(PARSE_JSON(x), '$.a.b' RETURNING INT)", '{"a": {"b": 7}}') == (7, "INT")
    assert evaluated("JSON_QUERY(PARSE_JSON(x), '$.a')", '{"a": {"b": 7}}') == ('{"b":7}', "STRING")


@pytest.mark.parametrize(
    ("text", "other", "are_equal"),
    [("1", "1", True), ("1", "1.0", False), ("1.0", "1.00", False), ('{"a":1,"b":2}', '{"b":2,"a":1}', True),
     ("null", "null", True), ("1", "true", False), ("-0.0", "0.0", True)],
)  # fmt: skip
def test_equality_is_that_of_types_and_values(text: str, other: str, are_equal: bool) -> None:
    assert evaluated(f"PARSE_JSON(x) = PARSE_JSON('{other}')", text)[0] is are_equal
    assert (key_bytes(parse(text)) == key_bytes(parse(other))) is are_equal


def test_parts_are_equal_whatever_they_are_parts_of() -> None:
    assert (
        evaluated("PARSE_JSON(x)['a'] = PARSE_JSON('{\"b\":0,\"a\":[{\"c\":1}]}')['a']", '{"a": [{"c": 1}]}')[0] is True
    )


# --- bytes -----------------------------------------------------------------------------------------------------------


def _random_value(random: Random, depth: int) -> Any:
    if depth and random.random() < 0.5:
        count = random.choice([0, 1, 3, 300])
        if random.random() < 0.5:
            return [_random_value(random, depth - 1 if count < 300 else 0) for _ in range(count)]
        names = random.sample(["", "a", "B", "\u65e5", "\U0001f600", *map(str, range(999))], count)
        return {name: _random_value(random, depth - 1 if count < 300 else 0) for name in names}
    return random.choice(
        [
            None,
            True,
            False,
            random.randint(-(2 ** random.choice([7, 8, 15, 31, 63])), 2 ** random.choice([6, 7, 15, 31]) - 1),
            random.uniform(-1e9, 1e9),
            Single(0.5 * random.randint(-9, 9)),
            Decimal(random.randint(-(10**38) + 1, 10**38 - 1)).scaleb(-random.randint(0, 38)),
            "x" * random.choice([0, 1, 63, 64, 70_000]),
            bytes(range(random.randint(0, 9))),
            date(2024, 2, 29),
            time(23, 59, 59, 999_999),
            datetime(1969, 12, 31, 23, 59, 59, 1),
            datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC),
            UUID(int=random.getrandbits(128)),
        ]
    )


def test_values_survive_as_bytes() -> None:
    seed = randrange(2**32)
    print(f"seed {seed}")
    random = Random(seed)
    for _ in range(60):
        value = _random_value(random, 3)
        variant = Variant.of(value)
        assert variant.get() == value
        assert Variant.of_bytes(variant.value, variant.metadata) == variant


def test_names_are_read_in_any_order_and_numbers_in_any_width() -> None:
    # the names z and a, of which a comes second; an INT64 with 7
    metadata = bytes([1, 2, 0, 1, 2]) + b"za"
    value = bytes([2, 1, 1, 0, 9, 6 << 2, 7, 0, 0, 0, 0, 0, 0, 0])
    assert Variant.of_bytes(value, metadata) == Variant.of({"a": 7})


@pytest.mark.parametrize(
    ("value", "metadata"), [(b"\x0c", b"\x01\x00\x00"), (b"\x00", b""), (b"\x7c\x00", b"\x01\x00\x00")]
)
def test_other_bytes_are_refused(value: bytes, metadata: bytes) -> None:
    with pytest.raises(FormatError):
        Variant.of_bytes(value, metadata)


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": "\udfff"}])
def test_lone_surrogates_survive(value: object) -> None:
    """JSON can escape them."""
    assert Variant.of(value).get() == value


#: arrays whose twenty elements all are the next array, six times
NESTED = reduce(lambda part, _: b"\x03\x14" + bytes(20) + bytes([len(part)]) + part, range(6), b"\x00")


def draw_value(chance: Random, depth: int) -> Any:
    kind = chance.randrange(9 if depth else 7)
    if kind == 7:
        return [draw_value(chance, depth - 1) for _ in range(chance.choice([0, 1, 3, 300]))]
    if kind == 8:
        return {f"k{chance.randrange(500)}": draw_value(chance, depth - 1) for _ in range(chance.randrange(5))}
    return chance.choice([None, True, chance.getrandbits(60), 1.5, Decimal("-1.25"), "x" * chance.randrange(90), b"ab"])


def test_bytes_of_others_are_read_or_refused() -> None:
    """Whatever they are, in time and memory of their own length; what is read has the same value again."""
    seed = SystemRandom().randrange(1 << 32)
    chance = Random(seed)
    for _ in range(3_000):
        variant = Variant.of(draw_value(chance, 2))
        parts = [bytearray(variant.value), bytearray(variant.metadata)]
        for _ in range(chance.randrange(4)):
            part = chance.choice(parts)
            if part and chance.random() < 0.8:
                part[chance.randrange(len(part))] = chance.choice([0, 255, chance.randrange(256)])
            else:
                del part[chance.randrange(len(part) + 1) :]
        try:
            read = Variant.of_bytes(*map(bytes, parts))
        except FormatError:
            continue
        assert Variant.of(read.get()) == read, f"seed {seed}"


@pytest.mark.parametrize(
    ("value", "metadata"),
    [
        (b"\x00", b"\xc1\xff\xff\xff\xff"),  # names that are not there
        (b"\x17\xff\xff\xff\xff", b"\x01\x00\x00"),  # elements that are not there
        (b"\x0dab", b"\x01\x00\x00"),  # a string that ends too early
        (b"\x40\x05\x00\x00\x00ab", b"\x01\x00\x00"),  # the same, a long one
        (
            reduce(lambda part, _: b"\x03\x14" + bytes(20) + bytes([len(part)]) + part, range(6), b"\x00"),
            b"\x01\x00\x00",
        ),
    ],
)
def test_what_is_not_there_is_refused(value: bytes, metadata: bytes) -> None:
    with pytest.raises(FormatError):
        Variant.of_bytes(value, metadata)


def test_scalars_as_json() -> None:
    values = {
        "d": date(2020, 1, 2),
        "t": datetime(2020, 1, 2, 3, 4, 5, 600_000),
        "b": b"\x01\x02\xff",
        "f": Single(1.1),
    }
    variant = Variant.of({**values, "z": datetime(2020, 1, 2, 3, 4, 5, 123_456, UTC)})
    assert variant.to_json() == (
        '{"b":"AQL/","d":"2020-01-02","f":1.1,"t":"2020-01-02T03:04:05.6","z":"2020-01-02T03:04:05.123456+00:00"}'
    )


# --- in queries ------------------------------------------------------------------------------------------------------


@udf(result_type="INT")
def double_of_k(value: Variant | None) -> int | None:
    part = None if value is None else value.get_field("k")
    return None if part is None or part.is_null() else 2 * int(part.get())


@udf(result_type=DataTypes.VARIANT())
def numbered(number: int) -> dict[str, Any]:
    return {"number": number, "list": [number, None]}


QUERIES = {
    "SELECT v, COUNT(*) FROM t GROUP BY v": ['+I[{"k":1}, 2]', '+I[{"k":null}, 1]', "+I[null, 1]"],
    "SELECT DISTINCT v['k'] FROM t": ["+I[1]", "+I[null]", "+I[null]"],
    "SELECT COUNT(v), COUNT(DISTINCT v) FROM t": ["+I[3, 2]"],
    "SELECT a.id, b.id FROM t a JOIN t b ON a.v = b.v": ["+I[1, 1]", "+I[1, 2]", "+I[2, 1]", "+I[2, 2]", "+I[3, 3]"],
    "SELECT v FROM t UNION SELECT PARSE_JSON('{\"k\":1.0}')": [
        '+I[{"k":1}]', '+I[{"k":1}]', '+I[{"k":null}]', "+I[null]",
    ],
    "SELECT double_of_k(v) FROM t": ["+I[2]", "+I[2]", "+I[null]", "+I[null]"],
    "SELECT numbered(id), numbered(id)['list'][1] FROM t WHERE id = 2": ['+I[{"list":[2,null],"number":2}, 2]'],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["streaming", pytest.param("batch", marks=pytest.mark.spark)])
def test_variants_group_join_and_reach_functions_of_python(mode: str) -> None:
    environment = TableEnvironment.create(getattr(EnvironmentSettings, f"in_{mode}_mode")())
    environment.get_config().set("parallelism.default", "1")
    environment.create_temporary_function("double_of_k", double_of_k)
    environment.create_temporary_function("numbered", numbered)
    variants = "(1, '{\"k\":1}'), (2, '{ \"k\" : 1 }'), (3, '{\"k\":null}'), (4, CAST(NULL AS STRING))"
    environment.execute_sql(
        f"CREATE TEMPORARY VIEW t AS SELECT id, PARSE_JSON(s) AS v FROM (VALUES {variants}) AS q(id, s)"
    )
    for query, expected in QUERIES.items():
        table = environment.sql_query(query)
        with table.execute().collect() as rows:
            net = Counter[str]()
            for row in rows:
                values = ", ".join("null" if value is None else str(value) for value in row)
                net[f"+I[{values}]"] += 1 if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
        assert sorted((+net).elements()) == sorted(expected), query


# --- in files --------------------------------------------------------------------------------------------------------

_PART = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])
_FIELDS = pa.struct([("n", _PART), ("t", pa.struct([("value", pa.binary()), ("typed_value", pa.string())]))])
_SHREDDED = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", _FIELDS)])


def _shredded(value: Any, **fields: Any) -> dict[str, Any]:
    """A row of a file whose fields n and t have columns; a field has a value, a typed one, or is missing."""
    names = sorted({"n", "t", *(value or {})})
    whole = Variant.of(dict.fromkeys(names))
    rest = None if value is None else _bytes_with(value, names)
    parts = {name: {"value": None, "typed_value": None, **fields.get(name, {})} for name in ("n", "t")}
    return {"metadata": whole.metadata, "value": rest, "typed_value": parts}


def _bytes_with(value: Any, names: list[str]) -> bytes:
    return _encode(value, {name: index for index, name in enumerate(names)})


def test_parts_with_columns_of_their_own_are_read() -> None:
    typed = {"n": {"typed_value": 7}, "t": {"typed_value": "x"}}
    rows = [
        _shredded(None, **typed),
        _shredded({"z": [1]}, n={"value": Variant.of("no number").value}),
        {"metadata": Variant.of(1).metadata, "value": Variant.of(1).value, "typed_value": None},
        None,
    ]
    packed = from_stored(pa.array(rows, _SHREDDED), STORED).to_pylist()
    expected = [{"n": 7, "t": "x"}, {"n": "no number", "z": [1]}, 1, None]
    assert [None if data is None else Variant.unpack(data).get() for data in packed] == expected


def test_a_variant_goes_through_parquet_in_columns_of_all_kinds(tmp_path: Path) -> None:
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("parallelism.default", "1")
    columns = "id INT, v VARIANT, vs ARRAY<VARIANT>, r ROW<x VARIANT>, m MAP<STRING, VARIANT>"
    environment.execute_sql(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet')"
    )
    value = 'PARSE_JSON(\'{"b":[1,2.50],"a":"x"}\')'
    environment.execute_sql(
        f"INSERT INTO t VALUES (1, {value}, ARRAY[{value}['b'], {value}['c']], ROW({value}['a']), MAP['k', {value}]), "
        "(2, CAST(NULL AS VARIANT), CAST(NULL AS ARRAY<VARIANT>), CAST(NULL AS ROW<x VARIANT>), "
        "CAST(NULL AS MAP<STRING, VARIANT>))"
    ).wait()
    (file,) = [path for path in tmp_path.iterdir() if path.is_file()]
    assert pq.read_schema(file).field("v").type == STORED
    query = "SELECT id, v, vs[1][2], vs[2], r.x, m['k']['a'] FROM t"
    with environment.sql_query(query).execute().collect() as rows:
        texts = sorted(", ".join(map(str, row)) for row in rows)
    assert texts == ['1, {"a":"x","b":[1,2.5]}, 2.5, None, "x", "x"', "2, None, None, None, None, None"]
