"""What is parsed can be printed, and what is printed parses to the same, whatever names and texts hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import WrongTypeError
from penstock.sql.data.types import IntervalResolution
from penstock.sql.parser import parse_statement, syntax, to_sql
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.statements import QueryStatement
from penstock.sql.parser.syntax import Call, Expression
from penstock.table.types import DataTypes

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = st.one_of(st.sampled_from(["a", "order", "A b", "`", "x.y", "COUNT"]), TEXTS.filter(bool))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
TYPES = st.sampled_from(
    [
        DataTypes.INT(),
        DataTypes.DECIMAL(10, 2),
        DataTypes.MAP(DataTypes.STRING(), DataTypes.ARRAY(DataTypes.TIMESTAMP_LTZ(3))),
        DataTypes.ROW([DataTypes.FIELD("order", DataTypes.BYTES(), "it's")]),
        DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.SECOND(3)),
    ]
)
LEAVES: st.SearchStrategy[Expression] = st.one_of(
    st.builds(syntax.Reference, PATHS),
    st.builds(syntax.TextLiteral, TEXTS),
    st.builds(syntax.NumberLiteral, st.sampled_from(["0", "12", ".5", "1.25", "1e3", "3.E-2"])),
    st.builds(syntax.BooleanLiteral, st.sampled_from([True, False, None])),
    st.builds(syntax.TemporalLiteral, st.sampled_from(["DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"]), TEXTS),
    st.just(syntax.NullLiteral()),
    st.just(syntax.IntervalLiteral("1", syntax.IntervalQualifier(IntervalResolution.DAY, 2, times=7), True)),
)


def larger(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    some = st.lists(parts, min_size=1, max_size=3).map(tuple)
    maybe = st.none() | parts
    lambdas = st.builds(syntax.LambdaFunction, st.lists(NAMES, min_size=1, max_size=2).map(tuple), parts)
    orders = st.lists(st.builds(syntax.OrderItem, parts, st.booleans(), st.sampled_from([None, "FIRST"])), max_size=2)
    windows = st.builds(
        syntax.WindowSpecification,
        st.none() | NAMES,
        some,
        orders.map(tuple),
        st.just("RANGE"),
        st.builds(syntax.Bound, st.just("PRECEDING"), maybe),
        st.none() | st.just(syntax.Bound("CURRENT ROW")),
    )
    calls = st.builds(
        lambda path, operands, order: Call(path[-1].upper(), operands, path, len(operands) == 2, order),
        PATHS.filter(lambda path: len(path) > 1),
        st.lists(parts | lambdas, max_size=3).map(tuple),
        orders.map(tuple),
    )
    return st.one_of(
        st.builds(Call, st.sampled_from(["+", "AND", "OR", "=", "||", "IS DISTINCT FROM"]), st.tuples(parts, parts)),
        st.builds(Call, st.sampled_from(["NOT", "MINUS_PREFIX", "IS NULL", "IS NOT TRUE"]), st.tuples(parts)),
        calls,
        st.builds(syntax.Over, calls, windows | NAMES),
        st.builds(syntax.Between, parts, parts, parts, st.booleans(), st.booleans()),
        st.builds(syntax.In, parts, some, st.booleans()),
        st.builds(syntax.Like, parts, parts, maybe, st.sampled_from(["LIKE", "SIMILAR TO"]), st.booleans()),
        st.builds(syntax.Case, maybe, st.lists(st.tuples(parts, parts), min_size=1, max_size=2).map(tuple), maybe),
        st.builds(syntax.Cast, parts, TYPES, st.booleans()),
        st.builds(syntax.Collection, st.sampled_from(["ARRAY", "MAP", "MULTISET"]), some),
        st.builds(syntax.RowValue, some),
        st.builds(syntax.Item, parts, parts),
    )


EXPRESSIONS = st.recursive(LEAVES, larger, max_leaves=8)


def parsed(sql: str) -> syntax.Query:
    statement = parse_statement(sql)
    assert isinstance(statement, QueryStatement)
    return statement.query


@given(st.lists(EXPRESSIONS, min_size=1, max_size=3), NAMES)
def test_expressions(expressions: list[Expression], name: str) -> None:
    items = tuple(relations.SelectItem(expression, name) for expression in expressions)
    query = relations.Select(items, relations.NamedTable((name, name), alias=name))
    assert parsed(to_sql(query)) == query


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT /*+ BROADCAST(a) */ DISTINCT t.*, COUNT(*) FROM t GROUP BY a, (b, c), CUBE (d), GROUPING SETS ((a))",
        "SELECT * FROM a CROSS JOIN b JOIN c ON a.x = c.x",
        "SELECT * FROM a, b LEFT JOIN c USING (x), d NATURAL JOIN e",
        "SELECT * FROM (a JOIN b ON TRUE) WHERE EXISTS (SELECT 1) AND x = ALL (VALUES 1)",
        "SELECT * FROM t /*+ OPTIONS('a' = 'b') */ FOR SYSTEM_TIME AS OF o.p + c AS r TABLESAMPLE BERNOULLI (1)",
        "SELECT * FROM a, LATERAL TABLE(f(a.x)) AS f (y), LATERAL (SELECT 1), UNNEST(a.z) WITH ORDINALITY AS u (v, n)",
        "SELECT * FROM TABLE(HOP(DATA => TABLE t PARTITION BY (a, b) ORDER BY c, TIMECOL => DESCRIPTOR(ts)))",
        "SELECT SUM(a) OVER w FROM t WINDOW w AS (PARTITION BY b ORDER BY c ROWS 2 PRECEDING) QUALIFY a > 1",
        "WITH RECURSIVE t (a) AS (SELECT 1), u AS (TABLE t) SELECT * FROM t UNION ALL SELECT * FROM u ORDER BY 1",
        "(SELECT 1 ORDER BY 1 OFFSET 1) EXCEPT ALL (VALUES (1, 2), (3, 4)) INTERSECT SELECT 2",
        "SELECT EXTRACT(DAY FROM a), TRIM(LEADING 'x' FROM b), POSITION('x' IN b), CEIL(a TO HOUR), CURRENT_DATE",
        "SELECT JSON_VALUE(a, '$' RETURNING INT DEFAULT 1 ON EMPTY NULL ON ERROR), JSON_OBJECT('a' VALUE 1)",
        "SELECT JSON_QUERY(a, '$' WITH WRAPPER EMPTY ARRAY ON ERROR), JSON_ARRAYAGG(a ORDER BY b ABSENT ON NULL)",
        "SELECT LISTAGG(a) WITHIN GROUP (ORDER BY b) FILTER (WHERE c), LAG(a) IGNORE NULLS OVER (ORDER BY b) FROM t",
        "SELECT a[1].b.c, f(x).d, a MULTISET UNION b, a MEMBER OF b, NEXT VALUE FOR s FROM t",
        """
        SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FINAL LAST(A.x) AS x ALL ROWS PER MATCH
        AFTER MATCH SKIP TO FIRST A PATTERN (^ (A | B C)+? PERMUTE(D, E){2,} {- F* -} $) WITHIN INTERVAL '1' HOUR
        SUBSET U = (A, B) DEFINE A AS A.x > PREV(A.x), B AS TRUE) AS m
        """,
    ],
)
def test_queries(sql: str) -> None:
    query = parsed(sql)
    assert parsed(to_sql(query)) == query


def test_what_it_looks_like() -> None:
    query = parsed("select a, sum(b) from t where a > 1 or a is null and not b like 'x' group by a")
    assert to_sql(query) == (
        "SELECT `a`, sum(`b`) FROM `t` WHERE ((`a` > 1) OR ((`a` IS NULL) AND (NOT (`b` LIKE 'x')))) GROUP BY `a`"
    )


def test_what_is_no_syntax() -> None:
    with pytest.raises(WrongTypeError, match="int is no expression and no query"):
        to_sql(1)
