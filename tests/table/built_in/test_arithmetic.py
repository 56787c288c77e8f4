"""Arithmetic and mathematics, as Flink's SQL has them: results, their types, NULL, and numbers at the ends of types."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from tests.table.flink_values import alike, parse_type
from tests.table.functions import Row, results, session_of, typed_sql

from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.numbers import JavaRandom

ROW = Row(
    ["tiny", "small", "whole", "long", "single", "twice", "money", "wide", "text", "nothing", "absent"],
    [
        parse_type(kind)
        for kind in """TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL(10, 2)|DECIMAL(38, 18)|STRING|INT|DECIMAL(5, 2)
        """.strip().split("|")
    ],
    [127, 300, 7, 2**63 - 1, 1.5, 2.5, Decimal("12.34"), Decimal("3"), "5", None, None],
)


def given(sql: str) -> tuple[Any, str]:
    """The value and the type of an expression over ROW."""
    session = session_of()
    found = typed_sql(sql, ROW, session)
    return results(found, ROW, session)[0], str(found[0].type)


def column(sql: str, kinds: dict[str, str], rows: list[tuple[Any, ...]]) -> list[Any]:
    """The values of an expression over several rows."""
    types = [parse_type(kind) for kind in kinds.values()]
    session = session_of()
    (typed,) = typed_sql(sql, Row(list(kinds), types, []), session)
    columns = [to_column(list(values), kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)]
    (found,) = Evaluator([typed], session)(Columns(columns, len(rows)))
    return to_values(found, typed.type)


def shown(sql: str, value: Any, kind: str) -> None:
    """Check an expression."""
    found, of_kind = given(sql)
    assert of_kind == kind
    expected = Decimal(value) if kind.startswith("DECIMAL") and value is not None else value
    assert alike(found, expected), found
    if isinstance(expected, Decimal):
        assert found.as_tuple().exponent == expected.as_tuple().exponent


class TestLiterals:
    @pytest.mark.parametrize(
        ("sql", "kind"),
        [
            ("0", "INT"),
            ("00123", "INT"),
            ("1.", "INT"),
            ("-2147483648", "INT"),
            ("2147483648", "BIGINT"),
            ("0.5", "DECIMAL(2, 1)"),
            ("00.5", "DECIMAL(3, 1)"),
            (".05", "DECIMAL(2, 2)"),
            ("-0.005", "DECIMAL(4, 3)"),
            ("10.50", "DECIMAL(4, 2)"),
            ("0.5e0", "DOUBLE"),
        ],
    )
    def test_digits_count_as_they_are_written(self, sql: str, kind: str) -> None:
        assert given(sql)[1] == f"{kind} NOT NULL"

    @pytest.mark.parametrize("sql", ["9223372036854775808", "100000000000000000.00"])
    def test_more_than_64_bits_are_refused(self, sql: str) -> None:
        with pytest.raises(ValidationError, match=f"Numeric literal '{sql}' out of range"):
            given(sql)

    @pytest.mark.parametrize(
        ("sql", "value", "kind"),
        [
            ("FLOOR(0.5)", "0", "DECIMAL(2, 0) NOT NULL"),
            ("CEIL(-0.5)", "0", "DECIMAL(2, 0) NOT NULL"),
            ("SIGN(-0.5)", "-1.0", "DECIMAL(2, 1) NOT NULL"),
            ("0.5 * 0.25", "0.125", "DECIMAL(6, 3) NOT NULL"),
        ],
    )
    def test_what_becomes_of_them(self, sql: str, value: str, kind: str) -> None:
        shown(sql, value, kind)


@pytest.mark.parametrize("sql", ["FIELD(1, 2)", "ITEM(ARRAY[1], 1)", "MINUS_PREFIX(1)"])
def test_forms_without_a_name_are_no_functions(sql: str) -> None:
    with pytest.raises(ValidationError, match="No match found for function signature"):
        given(sql)


class TestOperators:
    @pytest.mark.parametrize(
        ("sql", "value", "kind"),
        [
            ("5 + 5", 10, "INT NOT NULL"),
            ("tiny + tiny", -2, "TINYINT"),  # 254 leaves the type, so it begins again at the other end
            ("tiny + small", 427, "SMALLINT"),
            ("whole + long", -(2**63) + 6, "BIGINT"),
            ("whole - 10", -3, "INT"),
            ("whole * 2", 14, "INT"),
            ("whole / 2", 3, "INT"),
            ("-whole / 2", -3, "INT"),
            ("whole + single", 8.5, "FLOAT"),
            ("whole + twice", 9.5, "DOUBLE"),
            ("single * twice", 3.75, "FLOAT"),
            ("money + twice", 14.84, "DOUBLE"),
            ("money + single", 13.84, "DOUBLE"),
            ("money + money", "24.68", "DECIMAL(11, 2)"),
            ("money + whole", "19.34", "DECIMAL(13, 2)"),
            ("money - long", "-9223372036854775794.66", "DECIMAL(22, 2)"),
            ("money * money", "152.2756", "DECIMAL(21, 4)"),
            ("money / money", "1.0000000000000", "DECIMAL(23, 13)"),
            ("1.0 / 3", "0.333333333333", "DECIMAL(13, 12) NOT NULL"),
            ("2.0 / 3", "0.666666666667", "DECIMAL(13, 12) NOT NULL"),
            ("-2.0 / 3", "-0.666666666667", "DECIMAL(13, 12) NOT NULL"),
            ("wide * wide", "9.000000", "DECIMAL(38, 6)"),
            ("wide / wide", "1.000000", "DECIMAL(38, 6)"),
            ("wide + wide", "6.00000000000000000", "DECIMAL(38, 17)"),
            ("-money", "-12.34", "DECIMAL(10, 2)"),
            ("+money", "12.34", "DECIMAL(10, 2)"),
            ("-tiny", -127, "TINYINT"),
            ("-nothing", None, "INT"),
            ("whole + NULL", None, "INT"),
            ("nothing + 1", None, "INT"),
            ("nothing / 0", None, "INT"),
            ("absent * money", None, "DECIMAL(16, 4)"),
        ],
    )
    def test_give_the_wider_type(self, sql: str, value: Any, kind: str) -> None:
        shown(sql, value, kind)

    @pytest.mark.parametrize(
        "sql",
        [
            "'5' + '6'",
            "'5' + 1",
            "1 - '5'",
            "twice * text",
            "-'5'",
            "true + 1",
            "1e0 % 2",
            "NULL + NULL",
            "1 / 0e0",
            "twice / 0e0",
            "1e0 / 0",
        ],
    )
    def test_are_refused(self, sql: str) -> None:
        with pytest.raises(ValidationError):
            given(sql)

    @pytest.mark.parametrize(
        "sql", ["1 / 0", "whole / 0", "money / 0", "wide / 0", "1 / (money - money)", "MOD(whole, 0)", "money % 0.00"]
    )
    def test_do_not_divide_by_zero(self, sql: str) -> None:
        with pytest.raises(TableRuntimeError, match="Division by zero"):
            given(sql)

    def test_floating_point_numbers_divided_by_zero_are_infinite(self) -> None:
        assert given("whole / (twice - twice)")[0] == math.inf
        assert math.isnan(given("(single - single) / (twice - twice)")[0])

    def test_the_least_number_divided_by_minus_one_is_itself(self) -> None:
        rows = [(-128, -1), (-128, 1), (5, -1), (None, -1), (5, None), (-128, -128)]
        kinds = {"a": "TINYINT", "b": "TINYINT"}
        assert column("a / b", kinds, rows) == [-128, -128, -5, None, None, 1]
        assert column("a % b", kinds, rows) == [0, 0, 0, None, None, 0]

    def test_decimals_with_too_many_digits_are_null(self) -> None:
        most = Decimal("9" * 38)
        kinds = {"a": "DECIMAL(38, 0)", "b": "DECIMAL(38, 0)"}
        rows = [(most, most), (most, Decimal(1)), (Decimal(2), Decimal(3)), (None, most)]
        assert column("a + b", kinds, rows) == [None, None, 5, None]
        assert column("a * b", kinds, rows) == [None, most, 6, None]
        assert column("a - b", kinds, rows) == [0, Decimal("9" * 37 + "8"), -1, None]

    def test_decimals_of_all_digits_are_exact(self) -> None:
        one, other = Decimal("1234567890123456789.0123456789012345678"), Decimal("7.0000000000000000001")
        kinds = {"a": "DECIMAL(38, 19)", "b": "DECIMAL(38, 19)"}
        assert column("a / b", kinds, [(one, other)]) == [Decimal("176366841446208112.713530")]
        assert column("a * b", kinds, [(other, other)]) == [Decimal("49.000000")]
        assert column("a / b", {"a": "DECIMAL(38, 0)", "b": "DECIMAL(38, 38)"}, [(Decimal(1), Decimal("0.5"))]) == [2]
        assert column("a + b", {"a": "DECIMAL(38, 0)", "b": "DECIMAL(38, 38)"}, [(Decimal(1), Decimal("0.5"))]) == [
            Decimal("1.5")
        ]


class TestMod:
    @pytest.mark.parametrize(
        ("sql", "value", "kind"),
        [
            ("MOD(7, 3)", 1, "INT NOT NULL"),
            ("MOD(-7, 3)", -1, "INT NOT NULL"),
            ("MOD(7, -3)", 1, "INT NOT NULL"),
            ("long % whole", 0, "INT"),
            ("whole % long", 7, "BIGINT"),
            ("MOD(CAST(17 AS DECIMAL(19, 0)), whole)", 3, "INT"),
            ("MOD(whole, CAST(4 AS DECIMAL(19, 0)))", "3", "DECIMAL(19, 0)"),
            ("MOD(money, 5)", "2.34", "DECIMAL(10, 2)"),
            ("MOD(-money, 5)", "-2.34", "DECIMAL(10, 2)"),
            ("MOD(money, CAST(0.7 AS DECIMAL(4, 3)))", "0.440", "DECIMAL(4, 3)"),
            ("MOD(wide, wide)", "0.000000000000000000", "DECIMAL(38, 18)"),
            ("MOD(nothing, 2)", None, "INT"),
        ],
    )
    def test_has_the_sign_of_the_first_number(self, sql: str, value: Any, kind: str) -> None:
        shown(sql, value, kind)


class TestMathematics:
    @pytest.mark.parametrize(
        ("sql", "value"),
        [
            ("SQRT(4)", 2.0),
            ("SQRT(-1)", math.nan),
            ("POWER(2, 10)", 1024.0),
            ("POWER(2.0, -1)", 0.5),
            ("LN(1)", 0.0),
            ("LN(0)", -math.inf),
            ("LN(-1)", math.nan),
            ("LOG(E())", 1.0),
            ("LOG(2, 8)", 3.0),
            ("LOG10(1000)", 3.0),
            ("LOG2(8)", 3.0),
            ("EXP(0)", 1.0),
            ("SIN(0)", 0.0),
            ("COS(0)", 1.0),
            ("TAN(0)", 0.0),
            ("COT(1)", 0.6420926159343306),
            ("COT(0)", math.inf),
            ("ASIN(1)", math.pi / 2),
            ("ASIN(2)", math.nan),
            ("ACOS(1)", 0.0),
            ("ATAN(1)", math.pi / 4),
            ("ATAN2(1, -1)", 3 * math.pi / 4),
            ("SINH(0)", 0.0),
            ("COSH(0)", 1.0),
            ("TANH(0)", 0.0),
            ("DEGREES(PI())", 180.0),
            ("RADIANS(180)", math.pi),
            ("PI()", math.pi),
            ("E()", math.e),
        ],
    )
    def test_functions_of_double(self, sql: str, value: float) -> None:
        shown(sql, value, "DOUBLE NOT NULL")

    @pytest.mark.parametrize("name", ["SQRT", "LN", "LOG", "LOG2", "EXP", "SIN", "DEGREES", "TANH"])
    def test_null_gives_null(self, name: str) -> None:
        shown(f"{name}(nothing)", None, "DOUBLE")

    @pytest.mark.parametrize("sql", ["SIN()", "SIN(1, 2)", "POWER(1)", "LOG(1, 2, 3)", "SIN(true)", "PI(1)"])
    def test_wrong_operands_are_refused(self, sql: str) -> None:
        with pytest.raises(ValidationError):
            given(sql)

    @pytest.mark.parametrize(
        ("sql", "value", "kind"),
        [
            ("ABS(-5)", 5, "INT NOT NULL"),
            ("ABS(-money)", "12.34", "DECIMAL(10, 2)"),
            ("ABS(-single)", 1.5, "FLOAT"),
            ("ABS(-tiny - CAST(1 AS TINYINT))", -128, "TINYINT"),
            ("ABS(nothing)", None, "INT"),
            ("ABS(INTERVAL '-2' DAY)", 172_800_000, "INTERVAL DAY(2) NOT NULL"),
            ("ABS(INTERVAL '-2' MONTH)", 2, "INTERVAL MONTH NOT NULL"),
            ("SIGN(-twice)", -1.0, "DOUBLE"),
            ("SIGN(whole)", 1, "INT"),
            ("SIGN(-money)", "-1.00", "DECIMAL(10, 2)"),
            ("SIGN(money - money)", "0.00", "DECIMAL(11, 2)"),
            ("SIGN(nothing)", None, "INT"),
        ],
    )
    def test_size_and_sign_keep_the_type(self, sql: str, value: Any, kind: str) -> None:
        shown(sql, value, kind)


class TestRounding:
    @pytest.mark.parametrize(
        ("sql", "value", "kind"),
        [
            ("ROUND(125.315)", "125", "DECIMAL(4, 0) NOT NULL"),
            ("CAST(ROUND(-4e-3, 2) AS STRING)", "0.0", "STRING NOT NULL"),
            ("CAST(TRUNCATE(CAST(-0.4 AS FLOAT)) AS STRING)", "0.0", "STRING NOT NULL"),
            ("ROUND(125.315, 2)", "125.32", "DECIMAL(6, 2) NOT NULL"),
            ("ROUND(-125.315, 2)", "-125.32", "DECIMAL(6, 2) NOT NULL"),
            ("ROUND(125.315, 5)", "125.315", "DECIMAL(6, 3) NOT NULL"),
            ("ROUND(125.315, -1)", "130", "DECIMAL(4, 0) NOT NULL"),
            ("ROUND(125.315, -3)", "0", "DECIMAL(4, 0) NOT NULL"),
            ("ROUND(625.315, -3)", "1000", "DECIMAL(4, 0) NOT NULL"),
            ("ROUND(500.000, -3)", "1000", "DECIMAL(4, 0) NOT NULL"),
            ("ROUND(999.999, -4)", "0", "DECIMAL(4, 0) NOT NULL"),
            ("ROUND(-625.315, -3)", "-1000", "DECIMAL(4, 0) NOT NULL"),
            ("ROUND(money, -9)", "0", "DECIMAL(9, 0)"),
            ("ROUND(wide, 3)", "3.000", "DECIMAL(24, 3)"),
            ("ROUND(money, whole)", "12.34", "DECIMAL(10, 2)"),
            ("ROUND(money, nothing)", None, "DECIMAL(10, 2)"),
            ("ROUND(absent, 1)", None, "DECIMAL(5, 1)"),
            ("ROUND(47, -1)", 50, "INT NOT NULL"),
            ("ROUND(-45, -1)", -50, "INT NOT NULL"),
            ("ROUND(44, -1)", 40, "INT NOT NULL"),
            ("ROUND(tiny, -1)", -126, "TINYINT"),
            ("ROUND(whole, 3)", 7, "INT"),
            ("ROUND(1.005e0, 2)", 1.01, "DOUBLE NOT NULL"),
            ("ROUND(0.285e0, 2)", 0.29, "DOUBLE NOT NULL"),
            ("ROUND(-2.5e0)", -3.0, "DOUBLE NOT NULL"),
            ("ROUND(1234.5e0, -2)", 1200.0, "DOUBLE NOT NULL"),
            ("ROUND(single)", 2.0, "FLOAT"),
            ("TRUNCATE(42.324, 2)", "42.32", "DECIMAL(5, 2) NOT NULL"),
            ("TRUNCATE(-42.999)", "-42", "DECIMAL(3, 0) NOT NULL"),
            ("TRUNCATE(0.29e0, 2)", 0.29, "DOUBLE NOT NULL"),
            ("TRUNCATE(1.999e0, 2)", 1.99, "DOUBLE NOT NULL"),
            ("TRUNCATE(47, -1)", 40, "INT NOT NULL"),
            ("TRUNCATE(-47, -1)", -40, "INT NOT NULL"),
            ("TRUNCATE(nothing, -1)", None, "INT"),
        ],
    )
    def test_results(self, sql: str, value: Any, kind: str) -> None:
        shown(sql, value, kind)

    @pytest.mark.parametrize("digits", range(-4, 17))
    @pytest.mark.parametrize("name", ["ROUND", "TRUNCATE"])
    def test_columns_give_what_single_values_give(self, name: str, digits: int) -> None:
        values = [0.29, 0.285, 1.005, -2.675, 1e15 + 0.5, 1234.5, 15.0, 5e22, -0.05, 0.1 + 0.2, 2.5e-7, 99.995, None]
        rows = [(value,) for value in values]
        whole = column(f"{name}(x, {digits})", {"x": "DOUBLE"}, rows)
        single = [column(f"{name}(x, d)", {"x": "DOUBLE", "d": "INT"}, [(*row, digits)])[0] for row in rows]
        assert repr(whole) == repr(single)  # the two zeros are equal

    @pytest.mark.parametrize("digits", [-20, -19, -18, -2, -1, 0, 1])
    @pytest.mark.parametrize("name", ["ROUND", "TRUNCATE"])
    def test_columns_of_whole_numbers_do(self, name: str, digits: int) -> None:
        rows = [(value,) for value in (2**63 - 1, -(2**63), 5 * 10**18, 149, 150, -150, 0, None)]
        whole = column(f"{name}(x, {digits})", {"x": "BIGINT"}, rows)
        single = [column(f"{name}(x, d)", {"x": "BIGINT", "d": "INT"}, [(*row, digits)])[0] for row in rows]
        assert whole == single

    @pytest.mark.parametrize("kind", ["DECIMAL(10, 3)", "DECIMAL(38, 3)"])
    @pytest.mark.parametrize("digits", [-40, -6, -5, -1, 0, 2, 3, 5])
    @pytest.mark.parametrize("name", ["ROUND", "TRUNCATE"])
    def test_columns_of_decimals_do(self, name: str, digits: int, kind: str) -> None:
        rows = [
            (None if value is None else Decimal(value),) for value in ("99999.999", "-0.005", "50", "149.995", None)
        ]
        whole = column(f"{name}(x, {digits})", {"x": kind}, rows)
        single = [column(f"{name}(x, d)", {"x": kind, "d": "INT"}, [(*row, digits)])[0] for row in rows]
        assert whole == single

    def test_what_is_no_number_cannot_be_rounded(self) -> None:
        with pytest.raises(TableRuntimeError):
            given("ROUND(1e0 / (twice - twice))")


class TestRandomNumbers:
    def test_a_seed_gives_the_numbers_of_javas_generator(self) -> None:
        generator = JavaRandom(10)
        expected = [generator.next_double() for _ in range(5)]
        assert expected[0] == 0.7304302967434272
        assert column("RAND(10)", {"x": "INT"}, [(1,)] * 5) == expected
        integers = JavaRandom(5)
        drawn = [integers.next_int(10) for _ in range(5)]
        assert drawn[:1] == [7]
        assert column("RAND_INTEGER(5, 10)", {"x": "INT"}, [(1,)] * 5) == drawn

    def test_a_generator_goes_on_from_batch_to_batch(self) -> None:
        one, other = JavaRandom(1), JavaRandom(1)
        assert [*one.doubles(3), *one.doubles(0), *one.doubles(2)] == list(other.doubles(5))

    def test_a_seed_of_a_column_begins_again_in_every_row(self) -> None:
        assert column("RAND(x)", {"x": "INT"}, [(10,), (10,), (None,)]) == [0.7304302967434272] * 2 + [None]
        assert column("RAND_INTEGER(x, 10)", {"x": "INT"}, [(5,), (None,)]) == [7, None]

    def test_without_a_seed_every_row_has_its_own(self) -> None:
        found = column("RAND()", {"x": "INT"}, [(1,)] * 50)
        assert len(set(found)) > 40
        assert all(0 <= one < 1 for one in found)
        assert set(column("RAND_INTEGER(3)", {"x": "INT"}, [(1,)] * 200)) == {0, 1, 2}

    @pytest.mark.parametrize(
        ("sql", "kind"),
        [
            ("RAND()", "DOUBLE NOT NULL"),
            ("RAND(whole)", "DOUBLE"),
            ("RAND(CAST(NULL AS INT))", "DOUBLE"),
            ("RAND_INTEGER(whole)", "INT"),
            ("RAND_INTEGER(1, 2)", "INT NOT NULL"),
        ],
    )
    def test_types(self, sql: str, kind: str) -> None:
        assert given(sql)[1] == kind

    def test_null_gives_null(self) -> None:
        assert given("RAND(CAST(NULL AS INT))")[0] is None
        assert given("RAND_INTEGER(CAST(NULL AS INT), 5)")[0] is None
        assert given("RAND_INTEGER(nothing)")[0] is None

    def test_a_bound_must_be_above_zero(self) -> None:
        with pytest.raises(TableRuntimeError):
            given("RAND_INTEGER(0)")

    def test_bounds_of_powers_of_two(self) -> None:
        assert all(0 <= JavaRandom(seed).next_int(16) < 16 for seed in range(50))


class TestDigitsOfOtherBases:
    @pytest.mark.parametrize(
        ("sql", "value", "kind"),
        [
            ("BIN(12)", "1100", "STRING NOT NULL"),
            ("BIN(-1)", "1" * 64, "STRING NOT NULL"),
            ("BIN(nothing)", None, "STRING"),
            ("HEX(100)", "64", "STRING NOT NULL"),
            ("HEX(-1)", "F" * 16, "STRING NOT NULL"),
            ("HEX('hello,world')", "68656C6C6F2C776F726C64", "STRING NOT NULL"),
            ("HEX('ö')", "C3B6", "STRING NOT NULL"),
            ("HEX(tiny)", "7F", "STRING"),
            ("UNHEX('466C696E6B')", b"Flink", "BYTES"),
            ("UNHEX('7f')", b"\x7f", "BYTES"),
            ("UNHEX('146')", b"\x00\x46", "BYTES"),
            ("UNHEX('')", b"", "BYTES"),
            ("UNHEX('1 ')", None, "BYTES"),
            ("UNHEX('z46')", None, "BYTES"),
        ],
    )
    def test_results(self, sql: str, value: Any, kind: str) -> None:
        found, of_kind = given(sql)
        assert (found, of_kind) == (value, str(parse_type(kind)))

    @pytest.mark.parametrize("sql", ["BIN(1.5)", "HEX(1.5)", "UNHEX(1)"])
    def test_other_operands_are_refused(self, sql: str) -> None:
        with pytest.raises(ValidationError):
            given(sql)


class TestCase:
    def test_an_operand_may_have_several_values_in_one_branch(self) -> None:
        sql = "CASE x WHEN 1, 2 THEN 'a' WHEN 3 THEN 'b' ELSE 'c' END"
        assert column(sql, {"x": "INT"}, [(1,), (2,), (3,), (4,), (None,)]) == ["a", "a", "b", "c", "c"]

    def test_only_the_rows_of_a_branch_are_divided(self) -> None:
        sql = "CASE WHEN x <> 0 THEN 10 / x ELSE -1 END"
        assert column(sql, {"x": "INT"}, [(5,), (0,), (None,)]) == [2, -1, -1]


class TestIntervals:
    """Their products with numbers."""

    def test_a_product_with_a_whole_number_begins_again_at_the_other_end(self) -> None:
        rows = [(3,), (5_000_000_000,), (None,)]
        assert column("INTERVAL '3' MONTH * x", {"x": "BIGINT"}, rows) == [9, 15_000_000_000 - 2**32 * 3, None]

    def test_one_with_another_number_fails_where_it_is_too_large(self) -> None:
        with pytest.raises(TableRuntimeError):
            column("x * INTERVAL '3' DAY", {"x": "DOUBLE"}, [(1e300,)])

    def test_only_the_rows_of_a_branch_are_multiplied(self) -> None:
        sql = "CASE WHEN x < 9 THEN x * INTERVAL '1.5' SECOND ELSE INTERVAL '0' SECOND END"
        assert column(sql, {"x": "DOUBLE"}, [(1.5,), (1e300,)]) == [2250, 0]


def test_a_product_with_too_many_digits_is_null() -> None:
    """Of that row alone: the product of the next one fits."""
    rows = [(Decimal("9" * 25 + ".999999"),), (Decimal("2.500000"),)]
    assert column("a * a", {"a": "DECIMAL(38, 6)"}, rows) == [None, Decimal("6.250000")]
