"""Texts become values of the types asked for."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.time import Instant
from penstock.base.typeinfo import Types
from penstock.base.types import Row
from penstock.formats.csv import CsvFormat
from penstock.formats.file_format import converter

CASES: list[tuple[Any, str, Any]] = [
    (str, " x ", " x "),
    (int, "-7", -7),
    (float, "1e3", 1000.0),
    (bool, "True", True),
    (bool, "0", False),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
    (datetime.date, "2013-01-31", datetime.date(2013, 1, 31)),
    (datetime.datetime, "2013-01-01T10:00:00Z", datetime.datetime(2013, 1, 1, 10, tzinfo=datetime.UTC)),
    (Types.SHORT(), "32767", 32767),
    (Types.DOUBLE(), "2", 2.0),
    (Types.SQL_TIME(), "10:30", datetime.time(10, 30)),
    (Types.INSTANT(), "1970-01-01T00:00:01.5", Instant(1, 500_000_000)),
    (Types.OBJECT_ARRAY(Types.INT()), "1;2", [1, 2]),
    (lambda text: text.upper(), "a", "A"),
]


@pytest.mark.parametrize(("column_type", "text", "value"), CASES)
def test_types(column_type: Any, text: str, value: Any) -> None:
    convert = converter("c", column_type, frozenset(["NA"]))
    assert list(convert([text, "NA", text])) == [value, None, value]
    assert list(convert([""])) == ["" if column_type is str else None]


def test_values_that_may_change_are_not_shared() -> None:
    first, second = converter("c", Types.OBJECT_ARRAY(Types.INT()), frozenset())(["1", "1"])
    assert first == second
    assert first is not second


@pytest.mark.parametrize(
    ("column_type", "text"),
    [(int, "1.5"), (bool, "yes"), (Types.BYTE(), "128"), (decimal.Decimal, "x"), (datetime.date, "2013-13-01")],
)
def test_texts_of_no_such_type(column_type: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        converter("c", column_type, frozenset())([text])


@given(st.lists(st.lists(st.sampled_from(["", "a", '"', ",", "\n", "\r\n", "\r", "1", '""']), max_size=12), max_size=8))
def test_blocks_and_lines_agree(parts: list[list[str]]) -> None:
    """G8: what a line gives does not depend on the lines around it."""
    lines = ["".join(part).replace("\n", "") for part in parts]
    block = "".join(line + "\n" for line in lines).encode()
    decoder = CsvFormat(["x", "y"], header=False, as_tuple=True).create_decoder(b"")
    whole = decoder.decode(block, True)
    each = [decoder.decode(f"{line}\n".encode(), True) for line in lines]
    assert whole.values == [value for decoded in each for value in decoded.values]
    assert [(found.line, found.reason) for found in whole.malformed] == [
        (number, found.reason) for number, decoded in enumerate(each) for found in decoded.malformed
    ]


def test_rows_have_names() -> None:
    csv_format = CsvFormat(Types.ROW_NAMED(["b", "a"], [Types.INT(), Types.STRING()]))
    values = csv_format.create_decoder(b"a,b\n").decode(b"x,1\ny,\n", True).values
    assert values == [Row(b=1, a="x"), Row(b=None, a="y")]


def test_column_names_may_be_anything() -> None:
    names = ['"', "'", "\\", "{x}", "v0", "ü\n"]
    values = CsvFormat(names, header=False).create_decoder(b"").decode(b"1,2,3,4,5,6\n", True).values
    assert values == [dict(zip(names, "123456", strict=True))]


@pytest.mark.parametrize("plain", [True, False])
def test_signs(plain: bool) -> None:
    csv_format = CsvFormat(
        ["a", "b"], header=False, as_tuple=True, delimiter="|", quote="'", escape="\\", comments=True
    )
    block = b"#no\n1|2\n" if plain else b"#no\n'1|'|2\\|\n"
    assert csv_format.create_decoder(b"").decode(block, True).values == [("1", "2") if plain else ("1|", "2|")]
