"""Expressions: how tightly operators bind, literals, names and what functions take."""

import pytest
from tests.table.sql.shown import shown

from penstock.sql.parser import SqlParserError, parse_statement
from penstock.sql.parser.statements import CreateTable, QueryStatement
from penstock.sql.parser.syntax import Expression, Select


def parsed(text: str) -> Expression:
    statement = parse_statement(f"SELECT {text} FROM t")
    assert isinstance(statement, QueryStatement)
    assert isinstance(statement.query, Select)
    (item,) = statement.query.items
    return item.expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * c - d", "[- [+ a [* b c]] d]"),
        ("a || b || c = d", "[= [|| a b c] d]"),
        ("a OR b AND NOT c = d", "[OR a [AND b [NOT [= c d]]]]"),
        ("NOT a IS NULL", "[NOT [IS NULL a]]"),
        ("a = b IS NOT TRUE", "[IS NOT TRUE [= a b]]"),
        ("-a * -1", "[* [MINUS_PREFIX a] [MINUS_PREFIX 1]]"),
        ("a <> b AND c < d", "[AND [<> a b] [< c d]]"),
        ("a IS NOT DISTINCT FROM b + 1", "[IS NOT DISTINCT FROM a [+ b 1]]"),
        ("a BETWEEN 1 AND 2 AND b", "[AND Between(a, low=1, high=2) b]"),
        ("a NOT BETWEEN SYMMETRIC b - 1 AND b", "Between(a, low=[- b 1], high=b, is_negated=True, is_symmetric=True)"),
        ("a = b LIKE 'x'", "[= a Like(b, pattern='x')]"),
        ("a NOT LIKE 'x!_' ESCAPE '!'", "Like(a, pattern='x!_', escape='!', is_negated=True)"),
        ("a SIMILAR TO 'x'", "Like(a, pattern='x', kind=SIMILAR TO)"),
        ("a IN (1, 2)", "In(a, among=(1, 2))"),
        ("a IS JSON OBJECT", "[IS JSON OBJECT a]"),
        ("a = SOME (1, 2)", "Quantified(operator==, a, quantifier=SOME, among=(1, 2))"),
    ],
)
def test_operators(text: str, expected: str) -> None:
    """As Calcite has them."""
    assert shown(parsed(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'it''s' ' one'", '"it\'s one"'),
        ("U&'\\0041\\+00005A'", "'AZ'"),
        ("U&'#0041' UESCAPE '#'", "'A'"),
        ("x'0aFF'", "BinaryLiteral(digits=0aFF)"),
        (".5e-3", ".5e-3"),
        ("TRUE", "BooleanLiteral(value=True)"),
        ("DATE '2020-01-01'", "TemporalLiteral(root=DATE, text=2020-01-01)"),
        ("{ts '2020-01-01 00:00:00'}", "TemporalLiteral(root=TIMESTAMP, text=2020-01-01 00:00:00)"),
        ("{fn UPPER(a)}", "[UPPER a]"),
        ("INTERVAL -'1' DAY", "IntervalLiteral(text=1, qualifier=IntervalQualifier(resolution=DAY), is_negative=True)"),
        (
            "INTERVAL '1 2:03.45' DAY(3) TO SECOND(2)",
            "IntervalLiteral(text=1 2:03.45, qualifier=IntervalQualifier("
            "resolution=DAY TO SECOND, precision=3, fraction=2))",
        ),
        ("INTERVAL '2' WEEKS", "IntervalLiteral(text=2, qualifier=IntervalQualifier(resolution=DAY, times=7))"),
        ("ARRAY[1, ARRAY[2]]", "Collection(root=ARRAY, items=(1, Collection(root=ARRAY, items=(2))))"),
        ("MAP['a', 1]", "Collection(root=MAP, items=('a', 1))"),
        ("ROW(1, NULL)", "RowValue(items=(1, NULL))"),
        ("(1, a)", "RowValue(items=(1, a))"),
    ],
)
def test_literals(text: str, expected: str) -> None:
    assert shown(parsed(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b.c", "a.b.c"),
        ("`a b`.`c``d`", "a b.c`d"),
        ("t.*", "t.*"),
        ("a[1].b", "FieldAccess(Item(a, index=1), name=b)"),
        ("f(a).b.c", "FieldAccess(FieldAccess([F a], name=b), name=c)"),
        ("COUNT(*)", "[COUNT *]"),
        ("cat.db.f(DISTINCT a, b => 1)", "[F a NamedArgument(name=b, value=1) True]"),
        ("SUM(a) FILTER (WHERE b > 1)", "[SUM a [> b 1]]"),
        ("ARRAY_AGG(a ORDER BY b DESC)", "[ARRAY_AGG a (OrderItem(expression=b, is_descending=True))]"),
        (
            "ROW_NUMBER() OVER (PARTITION BY a ORDER BY b)",
            "Over(call=[ROW_NUMBER], window=WindowSpecification(partition=(a), order=(OrderItem(expression=b))))",
        ),
        (
            "SUM(a) OVER (ORDER BY b ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
            "Over(call=[SUM a], window=WindowSpecification(order=(OrderItem(expression=b)), unit=ROWS, "
            "lower=Bound(direction=PRECEDING, distance=2), upper=Bound(direction=CURRENT ROW)))",
        ),
        ("SUM(a) OVER w", "Over(call=[SUM a], window=w)"),
        ("CAST(a AS DECIMAL(10, 2))", "Cast(a, to=DECIMAL(10, 2))"),
        ("TRY_CAST(a AS INT)", "Cast(a, to=INT, is_try=True)"),
        ("CASE a WHEN 1 THEN 'x' ELSE b END", "Case(a, branches=((1, 'x')), otherwise=b)"),
        ("EXTRACT(DAY FROM a)", "[EXTRACT Unit(word=DAY) a]"),
        ("FLOOR(a TO HOUR)", "[FLOOR a Unit(word=HOUR)]"),
        ("CEILING(a)", "[CEIL a]"),
        ("TRIM(LEADING 'x' FROM a)", "[TRIM a 'x' (LEADING)]"),
        ("POSITION('x' IN a)", "[POSITION 'x' a]"),
        ("SUBSTRING(a FROM 2 FOR 3)", "[SUBSTRING a 2 3]"),
        ("TIMESTAMPADD(MONTH, 1, a)", "[TIMESTAMPADD Unit(word=MONTH) 1 a]"),
        (
            "JSON_VALUE(a, '$.b' RETURNING INT DEFAULT 1 ON EMPTY ERROR ON ERROR)",
            "[JSON_VALUE a '$.b' 1 (DEFAULT ON EMPTY, ERROR ON ERROR) INT]",
        ),
        ("JSON_QUERY(a, '$' WITH ARRAY WRAPPER)", "[JSON_QUERY a '$' (WITH WRAPPER)]"),
        ("JSON_OBJECT(KEY 'a' VALUE 1 ABSENT ON NULL)", "[JSON_OBJECT 'a' 1 (ABSENT ON NULL)]"),
        ("CURRENT_TIMESTAMP", "[CURRENT_TIMESTAMP]"),
        ("TRANSFORM(a, x -> x + 1)", "[TRANSFORM a LambdaFunction(parameters=(x), body=[+ x 1])]"),
    ],
)
def test_names_and_calls(text: str, expected: str) -> None:
    assert shown(parsed(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DOUBLE PRECISION NOT NULL", "DOUBLE NOT NULL"),
        ("VARCHAR(2147483647)", "STRING"),
        ("CHARACTER VARYING(3)", "VARCHAR(3)"),
        ("VARBINARY(2147483647)", "BYTES"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP(6) WITH TIME ZONE"),
        ("TIME", "TIME(0)"),
        ("INTERVAL YEAR", "INTERVAL YEAR(2)"),
        ("INTERVAL DAY TO SECOND(3)", "INTERVAL DAY(2) TO SECOND(3)"),
        ("INT ARRAY NOT NULL", "ARRAY<INT> NOT NULL"),
        (
            "MAP<STRING NOT NULL, ROW<a INT 'first', `b c` BYTES>>",
            "MAP<STRING NOT NULL, ROW<`a` INT 'first', `b c` BYTES>>",
        ),
        ("ROW(a INT)", "ROW<`a` INT>"),
        ("ROW<>", "ROW<>"),
        ("RAW('class', 'bytes')", "RAW('class', 'bytes')"),
        ("my_catalog.my_type", "`my_catalog`.`my_type`"),
    ],
)
def test_types(text: str, expected: str) -> None:
    statement = parse_statement(f"CREATE TABLE t (a {text})")
    assert isinstance(statement, CreateTable)
    (column,) = statement.elements.columns
    assert str(column.type) == expected


@pytest.mark.parametrize("text", ["INT NOT NULL", "INT NULL", "INT ARRAY NOT NULL", "NULL"])
def test_cast_to_a_type_that_says_whether_it_is_null(text: str) -> None:
    with pytest.raises(SqlParserError):
        parsed(f"CAST(a AS {text})")
    assert shown(parsed("CAST(a AS ROW<b INT NOT NULL>)")) == "Cast(a, to=ROW<`b` INT NOT NULL>)"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a +", 'Encountered "FROM": expected an expression, at line 1, column 12.'),
        ("order", 'Encountered "order": expected an expression, at line 1, column 8.'),
        (
            "a AS order",
            "expected a name, and this word is reserved; put it in backticks (`order`), at line 1, column 13.",
        ),
        ("CAST(a AS DECIMAL(50, 2))", "The precision of decimal must be 1 to 38, not 50: at line 1, column 18."),
        ("CAST(a AS INTERVAL DAY TO YEAR)", "An interval cannot go from DAY to YEAR, at line 1, column 34."),
        ("'a", "A text begins with ' and does not end, at line 1, column 8."),
        ('"a"', 'Encountered "\\"": names are in backticks (`name`), and texts in single quotes, at line 1, column 8.'),
        ("x'0'", "x'0' does not consist of pairs of hexadecimal digits, at line 1, column 8."),
        ("a /* b", "The comment has no end, which begins at line 1, column 10."),
        ("EXTRACT('day' FROM a)", "expected a unit of time, such as DAY or SECOND, at line 1, column 16."),
    ],
)
def test_errors_name_the_place(text: str, error: str) -> None:
    with pytest.raises(SqlParserError) as raised:
        parsed(text)
    assert error in str(raised.value)


def test_comments_are_spaces() -> None:
    assert shown(parsed("a -- one\n+ /* two */ b // three\n")) == "[+ a b]"
