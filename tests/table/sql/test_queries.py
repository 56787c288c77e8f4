"""Queries: clauses, set operations, what stands in FROM, hints, and patterns."""

import pytest
from tests.table.sql.shown import shown

from penstock.sql.parser import SqlParserError, parse_statement
from penstock.sql.parser.statements import QueryStatement
from penstock.sql.parser.syntax import Join, MatchRecognize, Ordered, Query, Select, With


def parsed(sql: str) -> Query:
    statement = parse_statement(sql)
    assert isinstance(statement, QueryStatement)
    return statement.query


def print_source(text: str) -> str:
    query = parsed(f"SELECT * FROM {text}")
    assert isinstance(query, Select)
    return shown(query.source)


def test_clauses_of_select() -> None:
    query = parsed(
        "SELECT DISTINCT a, SUM(b) total FROM t WHERE a > 1 GROUP BY a HAVING SUM(b) > 2 WINDOW w AS (PARTITION BY a) "
        "QUALIFY c = 1;"
    )
    assert shown(query) == (
        "Select(items=(SelectItem(expression=a), SelectItem(expression=[SUM b], alias=total)), "
        "source=NamedTable(path=(t)), where=[> a 1], group=(GroupItem(kind=SET, expressions=(a))), "
        "having=[> [SUM b] 2], windows=((w, WindowSpecification(partition=(a)))), qualify=[= c 1], is_distinct=True)"
    )


def test_groups() -> None:
    query = parsed("SELECT * FROM t GROUP BY a, (b, c), ROLLUP (d), GROUPING SETS ((a), ())")
    assert isinstance(query, Select)
    assert shown(query.group) == (
        "(GroupItem(kind=SET, expressions=(a)), GroupItem(kind=SET, expressions=(b, c)), "
        "GroupItem(kind=ROLLUP, sets=(GroupItem(kind=SET, expressions=(d)))), "
        "GroupItem(kind=GROUPING SETS, sets=(GroupItem(kind=SET, expressions=(a)), GroupItem(kind=SET))))"
    )


def test_intersect_binds_tighter_than_union() -> None:
    one = "Select(items=(SelectItem(expression=1)))"
    two, three = one.replace("1", "2"), one.replace("1", "3")
    assert shown(parsed("SELECT 1 UNION ALL SELECT 2 INTERSECT SELECT 3")) == (
        f"SetOperation(operator=UNION, parts=({one}, SetOperation(operator=INTERSECT, parts=({two}, {three}))), "
        "is_all=True)"
    )
    assert shown(parsed("(SELECT 1 UNION SELECT 2) EXCEPT SELECT 3")).startswith("SetOperation(operator=EXCEPT")


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("ORDER BY a DESC NULLS LAST", "order=(OrderItem(expression=a, is_descending=True, nulls=LAST))"),
        ("LIMIT 3 OFFSET 2", "offset=2, fetch=3"),
        ("OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY", "offset=2, fetch=3"),
    ],
)
def test_order_and_limit(clause: str, expected: str) -> None:
    query = parsed(f"WITH t (a) AS (SELECT 1) SELECT * FROM t {clause}")
    assert isinstance(query, Ordered)
    assert isinstance(query.query, With)
    assert shown(query).endswith(f", {expected})")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b.c AS x (d, e)", "NamedTable(alias=x, columns=(d, e), path=(a, b, c))"),
        ("t /*+ OPTIONS('k' = 'v'), STATE_TTL('a' = '1d') */", "NamedTable(path=(t), hints=(Hint(name=OPTIONS, "
         "options=((k, v))), Hint(name=STATE_TTL, options=((a, 1d)))))"),
        ("t FOR SYSTEM_TIME AS OF o.p AS r", "NamedTable(alias=r, path=(t), as_of=o.p)"),
        ("(SELECT 1) x", "DerivedTable(alias=x, query=Select(items=(SelectItem(expression=1))))"),
        ("(VALUES (1, 2), (3, 4)) AS v (a, b)", "DerivedTable(alias=v, columns=(a, b), query=Values(rows=((1, 2), "
         "(3, 4))))"),
        ("UNNEST(a.b) WITH ORDINALITY AS u (v, n)", "UnnestedTable(alias=u, columns=(v, n), expressions=(a.b), "
         "with_ordinality=True)"),
        ("LATERAL TABLE(f(a)) AS x (b)", "FunctionTable(alias=x, columns=(b), call=[F a], is_lateral=True)"),
        (
            "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
            "FunctionTable(call=[TUMBLE TableArgument(query=TableQuery(path=(bids))) "
            "DescriptorArgument(columns=((ts))) "
            "IntervalLiteral(text=1, qualifier=IntervalQualifier(resolution=MINUTE))])",
        ),
        (
            "f(input => TABLE t PARTITION BY (a, b), n => 1)",
            "FunctionTable(call=[F NamedArgument(name=input, value=TableArgument(query=TableQuery(path=(t)), "
            "partition=(a, b))) NamedArgument(name=n, value=1)])",
        ),
    ],
)  # fmt: skip
def test_what_stands_in_from(text: str, expected: str) -> None:
    assert print_source(text) == expected


@pytest.mark.parametrize(
    ("words", "join_type"),
    [("JOIN", "INNER"), ("LEFT OUTER JOIN", "LEFT"), ("RIGHT JOIN", "RIGHT"), ("FULL JOIN", "FULL")],
)
def test_joins(words: str, join_type: str) -> None:
    query = parsed(f"SELECT * FROM a {words} b ON a.x = b.x, c NATURAL JOIN d")
    assert isinstance(query, Select)
    outer = query.source
    assert isinstance(outer, Join)
    assert outer.is_natural
    crossed = outer.left
    assert isinstance(crossed, Join)
    assert crossed.join_type == "CROSS"
    assert shown(crossed.left) == (
        f"Join(left=NamedTable(path=(a)), right=NamedTable(path=(b)), join_type={join_type}, condition=[= a.x b.x])"
    )


def test_using() -> None:
    assert print_source("a CROSS JOIN b JOIN c USING (x, y)").endswith("join_type=INNER, using=(x, y))")


def test_hints_of_a_query() -> None:
    query = parsed("SELECT /*+ BROADCAST(t1), LOOKUP('table'='t2') */ * FROM t1")
    assert isinstance(query, Select)
    assert shown(query.hints) == ("(Hint(name=BROADCAST, arguments=(t1)), Hint(name=LOOKUP, options=((table, t2))))")


def test_patterns() -> None:
    query = parsed(
        """
        SELECT * FROM t MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY ts
            MEASURES FIRST(A.x) AS low, FINAL LAST(B.x) AS high
            ONE ROW PER MATCH
            AFTER MATCH SKIP TO LAST B
            PATTERN (A B+? C{2,3} | {- D -} E*) WITHIN INTERVAL '1' HOUR
            SUBSET U = (A, B)
            DEFINE A AS A.x > 1, B AS B.x > LAST(A.x, 1)
        ) AS m
        """
    )
    assert isinstance(query, Select)
    match = query.source
    assert isinstance(match, MatchRecognize)
    assert (match.alias, match.rows_per_match, match.skip) == ("m", "ONE ROW PER MATCH", "TO LAST B")
    assert shown(match.pattern) == (
        "Pattern(kind=ALTER, parts=(Pattern(kind=CONCAT, parts=(Pattern(kind=VARIABLE, variable=A), "
        "Pattern(kind=REPEAT, parts=(Pattern(kind=VARIABLE, variable=B)), most=None, is_reluctant=True), "
        "Pattern(kind=REPEAT, parts=(Pattern(kind=VARIABLE, variable=C)), least=2, most=3))), "
        "Pattern(kind=CONCAT, parts=(Pattern(kind=EXCLUDE, parts=(Pattern(kind=VARIABLE, variable=D))), "
        "Pattern(kind=REPEAT, parts=(Pattern(kind=VARIABLE, variable=E)), least=0, most=None)))))"
    )
    assert shown(match.measures) == (
        "(SelectItem(expression=[FIRST A.x], alias=low), SelectItem(expression=[FINAL [LAST B.x]], alias=high))"
    )
    assert shown(match.within) == "(1, IntervalQualifier(resolution=HOUR))"
    assert shown(match.subsets) == "((U, (A, B)))"


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM", 'Encountered "<EOF>": expected a name, at line 1, column 14.'),
        ("SELECT a\nb FROM t x y", 'Encountered "y": expected the end of the statement, at line 2, column 12.'),
        ("SELECT * FROM t LIMIT -1", 'Encountered "-": expected a whole number, at line 1, column 23.'),
        ("SELECT * FROM t LIMIT 1, 2", "LIMIT takes one number, and OFFSET says where to begin"),
        ("SELECT * FROM VALUES (1)", "expected a table, and VALUES is one only in parentheses"),
        ("SELECT * FROM (SELECT 1) FOR SYSTEM_TIME AS OF p", "FOR SYSTEM_TIME AS OF follows the name of a table"),
    ],
)
def test_errors(sql: str, error: str) -> None:
    with pytest.raises(SqlParserError) as raised:
        parse_statement(sql)
    assert error in str(raised.value)
