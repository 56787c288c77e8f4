"""The quick way to read and write JSON gives what the thorough one gives, or gives up."""

import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.types import Row
from penstock.codecs.json_row import StructReader
from penstock.codecs.serialization import BAD_RECORD
from penstock.common import Types
from penstock.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema

TYPES = [
    Types.STRING(),
    Types.BOOLEAN(),
    Types.BYTE(),
    Types.LONG(),
    Types.FLOAT(),
    Types.DOUBLE(),
    Types.BIG_INT(),
    Types.BIG_DEC(),
    Types.SQL_DATE(),
    Types.SQL_TIME(),
    Types.SQL_TIMESTAMP(),
    Types.INSTANT(),
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    Types.LIST(Types.LONG()),
    Types.MAP(Types.INT(), Types.DOUBLE()),
    Types.TUPLE([Types.STRING(), Types.SQL_DATE()]),
    Types.ROW_NAMED(["a", "b c"], [Types.LONG(), Types.LIST(Types.SQL_TIME())]),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [
            "",
            "7",
            " 7",
            "1_0",
            "NaN",
            "x",
            "true",
            "2024-05-06",
            "10:11:12.1234567",
            "2024-05-06T10:11:12.9999999Z",
            "AQI=",
        ]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b c", "7"]), inner, max_size=2),
    max_leaves=4,
)


@given(type_info=st.sampled_from(TYPES), value=VALUES, strict=st.booleans())
def test_quick_reading_agrees_with_thorough(type_info: Any, value: Any, strict: bool) -> None:
    row_type = Types.ROW_NAMED(["v"], [type_info])
    schema = JsonRowDeserializationSchema(row_type, strict, False)
    message = json.dumps({"v": value, "more": 1}).encode()
    try:
        quick = StructReader(row_type, strict).row(message)
    except BAD_RECORD:
        return
    assert repr(schema._record_at_length(message)) == repr(quick)


@pytest.mark.parametrize("number", ["1.50", "12345678901234567890.123456789", "1e2", "-0.0", "1E-7"])
def test_numbers_keep_their_digits(number: str) -> None:
    row_type = Types.ROW_NAMED(["v"], [Types.BIG_DEC()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    message = b'{"v": %s}' % number.encode()
    [row] = schema.deserialize_batch([message]).values
    assert repr(row) == repr(schema._record_at_length(message)) == repr(Row(v=decimal.Decimal(number)))


def test_what_quick_reading_refuses_is_read_all_the_same() -> None:
    row_type = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    found = schema.deserialize_batch([b'{"n": 1, "s": "a"}', b'{"n": "2", "s": 5}', b'{"n": {}}'])
    assert list(map(tuple, found.values)) == [(1, "a"), (2, "5")]
    assert [(bad.place, bad.reason) for bad in found.bad] == [(2, "field 'n': {} is not a number")]


def test_columns_have_the_types_of_fields() -> None:
    row_type = Types.ROW_NAMED(["n", "at"], [Types.INT(), Types.SQL_TIMESTAMP()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).as_columns().build()
    found = schema.deserialize_batch([b'{"n": 1, "at": "2024-05-06T07:08:09"}', b'{"n": "x"}', b'{"n": null}'])
    assert str(found.columns.schema) == "n: int32\nat: timestamp[us]"
    assert list(map(tuple, found.values)) == [(1, datetime.datetime(2024, 5, 6, 7, 8, 9)), (None, None)]
    assert found.of_records("abc") == ["a", "c"]


def test_row_that_no_column_holds_is_bad() -> None:
    row_type = Types.ROW_NAMED(["v"], [Types.BIG_DEC()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).as_columns().build()
    found = schema.deserialize_batch([b'{"v": 1}', b'{"v": 1e60}', b"{}"])
    assert list(map(tuple, found.values)) == [(1,), (None,)]
    assert found.of_records("abc") == ["a", "c"]
    assert [(bad.place, bad.reason[:10]) for bad in found.bad] == [(1, "field 'v':")]


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.text(st.characters(codec="utf-8")),
            st.none() | st.booleans(),
            st.none() | st.integers(-(2**31), 2**31 - 1),
            st.none() | st.floats(),
            st.none() | st.decimals(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_rows_written_at_once_are_as_rows_written_alone(rows: list[tuple[Any, ...]]) -> None:
    fields = [Types.STRING(), Types.BOOLEAN(), Types.INT(), Types.DOUBLE(), Types.BIG_DEC()]
    row_type = Types.ROW_NAMED(["s", "b", "i", "d", "n"], fields)
    schema = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    found = schema.serialize_batch([Row(*row) for row in rows])
    assert found == [schema.serialize(row) for row in rows]
    read = JsonRowDeserializationSchema.builder().type_info(row_type).build().deserialize_batch(found)
    assert [repr(tuple(row)[:4]) for row in read.values] == [repr(row[:4]) for row in rows]


def test_value_of_another_type_is_refused_with_its_record() -> None:
    row_type = Types.ROW_NAMED(["i"], [Types.INT()])
    schema = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    with pytest.raises(ValueError, match=r"cannot write \(2147483648,\) as .*2147483648 is not of type"):
        schema.serialize_batch([(1,), (2**31,)])
