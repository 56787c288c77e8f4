"""K4: a cast of Arrow columns changes no value. Arrow alone wraps decimals and times that do not fit."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import FormatError
from penstock.codecs.arrow_columns import exact_cast, exact_cast_columns
from penstock.codecs.column_data import ColumnData
from penstock.connectors.postgres.scan import ScannedColumn
from penstock.connectors.postgres.text_columns import parse_batch
from penstock.formats.csv import CsvColumnsFormat
from penstock.formats.parquet import ParquetWriterFactory
from penstock.sql.data.types import DecimalType
from penstock.sql.functions.numbers import fitted

WIDE = pa.decimal128(38, 0)
MONEY = pa.decimal128(38, 18)
LARGE = Decimal("1e30")


@pytest.mark.parametrize(
    ("value", "found", "wanted"),
    [
        ("1e30", pa.string(), MONEY),
        ("1" + "0" * 30, pa.string(), MONEY),
        ("1" + "0" * 30, pa.large_string(), MONEY),
        ("9" * 39, pa.string(), WIDE),
        ("9" * 100, pa.string(), pa.decimal256(76, 0)),
        ("NaN", pa.string(), MONEY),
        ("1_0", pa.string(), MONEY),
        ("1.005", pa.string(), pa.decimal128(10, 2)),
        (LARGE, WIDE, MONEY),
        (-LARGE, WIDE, MONEY),
        (LARGE, pa.decimal256(76, 0), MONEY),
        ([LARGE], pa.list_(WIDE), pa.list_(MONEY)),
        (["1e30"], pa.list_(pa.string()), pa.list_(MONEY)),
        ({"a": LARGE}, pa.struct([("a", WIDE)]), pa.struct([("a", MONEY)])),
        ([("k", LARGE)], pa.map_(pa.string(), WIDE), pa.map_(pa.string(), MONEY)),
        (dt.datetime(9999, 12, 31), pa.timestamp("us"), pa.timestamp("ns")),
        (dt.datetime(1, 1, 1), pa.timestamp("ms"), pa.timestamp("ns", "UTC")),
        ([dt.datetime(9999, 12, 31)], pa.list_(pa.timestamp("us")), pa.list_(pa.timestamp("ns"))),
    ],
)
def test_value_that_does_not_fit_is_an_error(value: Any, found: pa.DataType, wanted: pa.DataType) -> None:
    """K4."""
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(pa.array([None, value], found), wanted)


def test_the_error_shows_the_value() -> None:
    """K4."""
    with pytest.raises(pa.ArrowInvalid, match=r"^1000000000000000000000000000000 does not fit DECIMAL\(38, 18\)$"):
        exact_cast(pa.array([Decimal(1), LARGE], WIDE), MONEY)
    with pytest.raises(
        pa.ArrowInvalid, match=r"^9999-12-31 00:00:00 does not fit timestamp.ns., which holds the years"
    ):
        exact_cast(pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us")), pa.timestamp("ns"))


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**36), max_value=10**36),
    st.sampled_from([pa.string(), pa.decimal128(38, 2), pa.decimal256(76, 6)]),
    st.integers(1, 38),
    st.integers(0, 38),
)
def test_decimal_is_the_same_number_or_an_error(
    number: Decimal, found: pa.DataType, precision: int, scale: int
) -> None:
    """K4."""
    kind = pa.decimal128(precision, min(scale, precision))
    with localcontext(prec=100):
        if pa.types.is_decimal128(found):
            number = number.quantize(Decimal("0.01")) if abs(number) < 10**35 else Decimal(10**35)
        column = pa.array([str(number) if pa.types.is_string(found) else number, None], found)
        try:
            cast = exact_cast(column, kind)
        except pa.ArrowInvalid:
            fits = abs(number) < Decimal(10) ** (kind.precision - kind.scale)
            assert not fits or number % Decimal(1).scaleb(-kind.scale) != 0
        else:
            assert cast.to_pylist() == [number, None]


def test_time_loses_digits_toward_the_past() -> None:
    """K2."""
    times = pa.array([dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), None], pa.timestamp("us", "UTC"))
    found = exact_cast(times, pa.timestamp("ms"))
    assert found.to_pylist() == [dt.datetime(1969, 12, 31, 23, 59, 59, 999_000), None]


def test_values_outside_of_a_slice_do_not_matter() -> None:
    """K4."""
    kind = pa.map_(pa.string(), WIDE)
    column = pa.array([[("a", LARGE)], [("a", Decimal(1))], None], kind)[1:]
    assert exact_cast(column, pa.map_(pa.string(), MONEY)).to_pylist() == [[("a", Decimal(1))], None]


def test_columns_name_the_one_with_the_value() -> None:
    """K4."""
    columns = pa.record_batch({"a": pa.array([1]), "price": pa.array([LARGE], WIDE)})
    with pytest.raises(pa.ArrowInvalid, match="column 'price': 1000"):
        exact_cast_columns(columns, pa.schema([("price", MONEY)]))


@pytest.mark.parametrize("kind", [MONEY, pa.list_(MONEY)])
def test_numeric_of_postgres_that_does_not_fit_is_an_error(kind: pa.DataType) -> None:
    """K4."""
    text = "{1e30}" if pa.types.is_list(kind) else "1" + "0" * 30
    with pytest.raises(FormatError, match=r"column 'price' of PostgreSQL .*cannot hold"):
        parse_batch([pa.array([text])], [kind], ["price"])


def test_decimal_of_a_csv_file_that_does_not_fit_is_an_error() -> None:
    """K4."""
    file = CsvColumnsFormat({"price": MONEY, "name": str}).open(io.BytesIO(b"1" + b"0" * 30 + b",a\n"))
    with pytest.raises(FormatError, match="column 'price'"):
        list(file.read(0, 0))
    file = CsvColumnsFormat({"price": MONEY, "name": str}).open(io.BytesIO(b"1.5,a\n,\n"))
    (columns,) = file.read(0, 0)
    assert isinstance(columns, ColumnData)
    assert columns.columns.to_pylist() == [{"price": Decimal("1.5"), "name": "a"}, {"price": None, "name": ""}]


def test_decimal_that_a_written_column_does_not_hold_is_an_error() -> None:
    """K4."""
    writer = ParquetWriterFactory(pa.schema([("price", MONEY)])).create(io.BytesIO())
    with pytest.raises(FormatError, match="column 'price'"):
        writer.add_columns(ColumnData(pa.record_batch({"price": pa.array([LARGE], WIDE)})))


def test_decimal_of_a_function_that_does_not_fit_is_null() -> None:
    """K2."""
    assert fitted(pa.array([LARGE, Decimal(1)], WIDE), DecimalType(38, 18)).to_pylist() == [None, Decimal(1)]


def test_column_of_postgres_has_the_name_of_its_table_in_errors() -> None:
    """K4."""
    assert [ScannedColumn("c0", text, MONEY).title for text in ('"price"', 't."price"')] == ["price", "price"]
