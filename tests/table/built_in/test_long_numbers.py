"""Numbers with thousands of digits, or with a large exponent, are errors or NULL like any other number out of range."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table.evaluated import column

from penstock.base.errors import FormatError
from penstock.codecs.json_values import reader
from penstock.codecs.serialization import parse_digits, to_whole
from penstock.common import Types
from penstock.sql.data.errors import TableRuntimeError

LONG = "9" * 5_000


class NeverWritten(Decimal):
    """A decimal whose digits must not be written out."""

    def __int__(self) -> int:
        raise AssertionError("written out")


@given(st.text("0123456789", min_size=1, max_size=30))
def test_digits_are_an_integer(digits: str) -> None:
    """As Python reads them, unless there are very many."""
    assert parse_digits(digits) == int(digits)
    assert parse_digits("0" * 5_000 + digits) == int(digits)
    assert parse_digits(LONG) >= 10**300


@given(st.decimals(-(10**30), 10**30) | st.floats())
def test_whole_numbers_are_integers(number: float | Decimal) -> None:
    """Others are none."""
    is_whole = number == number and abs(number) != float("inf") and number.as_integer_ratio()[1] == 1
    assert to_whole(number) == (int(number) if is_whole else None)


@pytest.mark.parametrize("number", [Decimal("NaN"), Decimal("-Infinity"), Decimal("sNaN")])
def test_what_is_no_number_is_no_integer(number: Decimal) -> None:
    assert to_whole(number) is None


def test_large_exponents_are_not_written_out() -> None:
    """The exponent alone says that no type has the number."""
    assert to_whole(NeverWritten("1e5000")) is None


@pytest.mark.parametrize(
    "target", ["INT", "BIGINT", "DECIMAL(10, 2)", "DATE", "TIME", "TIMESTAMP(3)", "TIMESTAMP_LTZ(0)"]
)
@pytest.mark.parametrize("text", [LONG, f"-{LONG}", f"{LONG}.{LONG}", f"1e{LONG}", f"{LONG}-01-01", f"{LONG}:00:00"])
def test_try_cast_gives_null(target: str, text: str) -> None:
    """A cast of such text is an error, and TRY_CAST gives NULL."""
    assert column(f"TRY_CAST(x AS {target})", x=[text] * 2) == [None, None]
    with pytest.raises(TableRuntimeError):
        column(f"CAST(x AS {target})", x=[text] * 2)


def test_a_small_exponent_is_nothing() -> None:
    """As small as it may be."""
    assert column("CAST(x AS DECIMAL(10, 2))", x=[f"1e-{LONG}"] * 2) == [Decimal("0.00")] * 2


@pytest.mark.parametrize(
    "expression",
    [
        "TO_DATE(x)",
        "TO_DATE(x, 'yyyy')",
        f"REGEXP_EXTRACT(x, 'a{{{LONG}}}')",
        f"JSON_VALUE('[1]', '$[{LONG}]')",
        f"PARSE_URL('http://h:{LONG}/', 'HOST')",
    ],
)
def test_functions_give_null(expression: str) -> None:
    """Where a number is out of range."""
    assert column(expression, x=[LONG] * 2) == [None, None]


def test_a_width_of_text_may_be_too_large() -> None:
    """PRINTF gives NULL for a wrong format."""
    assert column("PRINTF(x, 1)", x=[f"%{LONG}d"] * 2) == [None, None]


@pytest.mark.parametrize("value", [1e300, LONG, Decimal("1e500"), Decimal("NaN")])
def test_json_integers(value: Any) -> None:
    """A row of JSON names what does not fit."""
    with pytest.raises((FormatError, ValueError)):
        reader(Types.LONG(), strict=False)(value)
