"""Casts from text: columns that Arrow parses as a whole, and texts that are parsed one by one, give the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table.evaluated import column

from penstock.sql.data.arrow import to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import (
    BigIntType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    TimestampType,
)
from penstock.sql.functions.definition import STRING, Session
from penstock.sql.functions.text_casts import from_text_kernel, reader

KINDS = st.one_of(
    st.builds(TimestampType, st.integers(0, 9)),
    st.builds(LocalZonedTimestampType, st.integers(0, 9)),
    st.builds(DecimalType, st.integers(20, 38), st.integers(0, 18)),
    st.sampled_from([DateType(), IntType(), BigIntType(), FloatType(), DoubleType()]),
)


@st.composite
def texts(draw: st.DrawFn, kind: DataType) -> str:
    """Text of a value of the type, nearly always."""
    if isinstance(kind, TimestampType | LocalZonedTimestampType):
        fraction = draw(st.sampled_from(["", "."])) and "." + draw(st.text("0123456789", min_size=1, max_size=9))
        moment = draw(st.datetimes()).replace(microsecond=0)
        return moment.isoformat(" ") + fraction
    if isinstance(kind, DateType):
        return draw(st.dates()).isoformat()
    if isinstance(kind, IntType | BigIntType):
        return str(draw(st.integers(-(2**63), 2**63 - 1)))
    return str(draw(st.decimals(-(10**12), 10**12, places=draw(st.integers(0, 18)))))


@given(st.data())
def test_whole_columns_and_single_texts_agree(data: st.DataObject) -> None:
    """The same value or an error, whichever way the text is parsed."""
    kind = data.draw(KINDS)
    text = data.draw(texts(kind))
    read, kernel = reader(kind, Session()), from_text_kernel(STRING, kind, Session(), is_try=False)
    try:
        expected = read(text)
    except TableRuntimeError:
        with pytest.raises(TableRuntimeError):
            kernel(pa.array([text] * 3))
        return
    assert to_values(kernel(pa.array([text] * 3)), kind) == [expected] * 3


@pytest.mark.parametrize("target", ["TIMESTAMP(1)", "TIMESTAMP_LTZ(1)"])
def test_text_loses_digits_and_timestamps_move_toward_1970(target: str) -> None:
    """As Flink does: a fraction before 1970 is cut off in text, and a timestamp gets nearer to 1970."""
    texts_of_rows = ["1943-09-03 06:21:29.228"] * 3
    assert column(f"CAST(CAST(x AS {target}) AS STRING)", x=texts_of_rows) == ["1943-09-03 06:21:29.2"] * 3
    nearer = column(f"CAST(CAST(CAST(x AS TIMESTAMP(9)) AS {target}) AS STRING)", x=texts_of_rows)
    assert nearer == ["1943-09-03 06:21:29.3"] * 3
