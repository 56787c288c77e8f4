"""FLOAT beside DOUBLE and DECIMAL in the Table API, whose rules are not those of SQL. The answers are PyFlink's."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from penstock.table import DataTypes, EnvironmentSettings, Table, TableEnvironment
from penstock.table.expressions import array, call_sql, col, lit, map_, null_of, row

F, D, N, C = col("f"), col("d"), col("i"), col("c")
#: 0.1 as a FLOAT, and the product of it and 0.1 as a FLOAT
NARROW, PRODUCT = 0.10000000149011612, 0.010000000707805157
Make = Callable[[Table], Table]


def numbers() -> Table:
    """Two rows; FLOAT, DOUBLE and DECIMAL agree on 2.5, and not on 0.1."""
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    made.get_config().set("execution.target", "local").set("parallelism.default", "1")
    kinds = {
        "i": DataTypes.INT(),
        "f": DataTypes.FLOAT(),
        "d": DataTypes.DOUBLE(),
        "c": DataTypes.DECIMAL(10, 3),
        "fs": DataTypes.ARRAY(DataTypes.FLOAT()),
        "ds": DataTypes.ARRAY(DataTypes.DOUBLE()),
    }
    rows = [(1, 0.1, 0.1, Decimal("0.1"), [0.1], [0.1]), (2, 2.5, 2.5, Decimal("2.5"), [2.5], [2.5])]
    return made.from_elements(rows, DataTypes.ROW([DataTypes.FIELD(name, kind) for name, kind in kinds.items()]))


def values(table: Table) -> list[object]:
    """The values of the only column, after all changes."""
    found: list[object] = []
    with table.execute().collect() as rows:
        for one in rows:
            (value,) = tuple(one)
            if one.get_row_kind().short_string in ("+I", "+U"):
                found.append(value)
            else:
                found.remove(value)
    return sorted(found, key=str)


def kind(table: Table) -> str:
    """The type of the only column."""
    (found,) = table.get_schema().get_field_data_types()
    return str(found.nullable())


SELECTED: list[tuple[str, Make, str, list[object]]] = [
    ("f * d", lambda t: t.select(F * D), "DOUBLE", [PRODUCT, 6.25]),
    ("f + 0.5", lambda t: t.select(F + lit(0.5)), "DOUBLE", [0.6000000238418579, 3.0]),
    ("f - d", lambda t: t.select(F - D), "DOUBLE", [0.0, 0.0]),
    ("d - f", lambda t: t.select(D - F), "DOUBLE", [-1.4901161138336505e-09, 0.0]),
    ("f / d", lambda t: t.select(F / D), "DOUBLE", [1.0, 1.0]),
    ("f / i", lambda t: t.select(F / N), "FLOAT", [0.1, 1.25]),
    ("f * 2", lambda t: t.select(F * 2), "FLOAT", [0.2, 5.0]),
    ("f / 3.0", lambda t: t.select(F / 3.0), "DOUBLE", [0.03333333507180214, 0.8333333134651184]),
    ("f - c", lambda t: t.select(F - C), "DOUBLE", [0.0, 1.4901161138336505e-09]),
    ("f * d * d", lambda t: t.select(F * D * D), "DOUBLE", [0.0010000000474974513, 15.625]),
    ("f * d + 1.0", lambda t: t.select(F * D + lit(1.0)), "DOUBLE", [1.0099999904632568, 7.25]),
    ("1.0 + f * d", lambda t: t.select(lit(1.0) + F * D), "DOUBLE", [1.0100000007078052, 7.25]),
    (
        "cast(f * d) * d",
        lambda t: t.select((F * D).cast(DataTypes.DOUBLE()) * D),
        "DOUBLE",
        [0.0010000000707805158, 15.625],
    ),
    ("text", lambda t: t.select((F * D).cast(DataTypes.STRING())), "STRING", ["0.010000001", "6.25"]),
    ("f + null", lambda t: t.select(F + null_of(DataTypes.DOUBLE())), "DOUBLE", [None, None]),
    ("sum", lambda t: t.select((F * D).sum), "DOUBLE", [6.260000228881836]),
    ("avg", lambda t: t.select((F * D).avg), "DOUBLE", [3.130000114440918]),
    ("max", lambda t: t.select((F * D).max), "DOUBLE", [6.25]),
    ("then f", lambda t: t.select((N == 1).then(F, D)), "DOUBLE", [NARROW, 2.5]),
    ("else d", lambda t: t.select((N == 5).then(F, D)), "DOUBLE", [0.1, 2.5]),
    ("else f", lambda t: t.select((N == 5).then(D, F)), "DOUBLE", [NARROW, 2.5]),
    ("then f, c", lambda t: t.select((N == 1).then(F, C)), "DOUBLE", [NARROW, 2.5]),
    ("then c, f", lambda t: t.select((N == 1).then(C, F)), "FLOAT", [0.1, 2.5]),
    ("then arrays", lambda t: t.select((N == 1).then(col("fs"), col("ds"))), "ARRAY<DOUBLE>", [[NARROW], [2.5]]),
    ("array", lambda t: t.select(array(F, D)), "ARRAY<DOUBLE>", [[NARROW, 0.1], [2.5, 2.5]]),
    (
        "map",
        lambda t: t.select(map_("a", F, "b", D)),
        "MAP<CHAR(1) NOT NULL, DOUBLE>",
        [{"a": NARROW, "b": 0.1}, {"a": 2.5, "b": 2.5}],
    ),
    ("if_null", lambda t: t.select(F.if_null(D)), "DOUBLE", [NARROW, 2.5]),
    ("union", lambda t: t.select(F).union_all(t.select(D)), "DOUBLE", [NARROW, NARROW, 2.5, 2.5]),
    ("union of d", lambda t: t.select(D).union_all(t.select(F)), "DOUBLE", [0.1, NARROW, 2.5, 2.5]),
    (
        "union of arrays",
        lambda t: t.select(col("fs")).union_all(t.select(col("ds"))),
        "ARRAY<DOUBLE>",
        [[NARROW], [NARROW], [2.5], [2.5]],
    ),
    ("union of i", lambda t: t.select(N).union_all(t.select(F)), "FLOAT", [0.1, 1.0, 2.0, 2.5]),
    ("SQL f * d", lambda t: t.select(call_sql("f * d")), "FLOAT", [0.010000001, 6.25]),
    ("SQL CASE", lambda t: t.select(call_sql("CASE WHEN i = 1 THEN f ELSE d END")), "FLOAT", [0.1, 2.5]),
]


@pytest.mark.parametrize(
    ("make", "wanted", "rows"), [case[1:] for case in SELECTED], ids=[case[0] for case in SELECTED]
)
def test_a_value_has_the_wider_type(make: Make, wanted: str, rows: list[object]) -> None:
    """K2: the type does not depend on the order of the operands. Arithmetic that begins with FLOAT is done in FLOAT."""
    found = make(numbers())
    assert kind(found) == wanted
    assert values(found) == rows


def left(table: Table) -> Table:
    return table.select(N, F)


def right(table: Table) -> Table:
    return table.select(N.alias("j"), D.alias("dd"))


J, DD = col("j"), col("dd")
FILTERED: list[tuple[str, Make, list[object]]] = [
    ("f == d", lambda t: t.filter(F == D), [2]),
    ("f != d", lambda t: t.filter(F != D), [1]),
    ("f == 0.1", lambda t: t.filter(F == 0.1), []),
    ("f == c", lambda t: t.filter(F == C), [2]),
    ("f in 0.1", lambda t: t.filter(F.in_(0.1, 7.0)), []),
    ("f in many", lambda t: t.filter(F.in_(*[0.1 + k for k in range(80)])), []),
    ("f in decimals", lambda t: t.filter(F.in_(C, lit(Decimal("9.5")))), [2]),
    ("f in mixed", lambda t: t.filter(F.in_(lit(1), lit(0.1), F)), [1, 2]),
    ("rows", lambda t: t.filter(row(F, N) == row(D, N)), [2]),
    ("product", lambda t: t.filter(lit(PRODUCT) == F * D), [1]),
    ("aggregate", lambda t: t.group_by(N).select(N, F.sum.alias("s")).filter(col("s") == 0.1), []),
    ("f in a table", lambda t: t.filter(F.in_(t.select(D))), [1, 2]),
    ("SQL", lambda t: t.filter(call_sql("i > 0 AND f = d")), [1, 2]),
    ("SQL IN", lambda t: t.filter(call_sql("f IN (CAST(0.1 AS DOUBLE))")), [1]),
    # Flink's planner makes keys of `==` between columns of two tables, and casts keys as SQL does
    ("join", lambda t: left(t).join(right(t), F == DD), [1, 2]),
    ("join of d", lambda t: left(t).join(right(t), DD == F), [2]),
    ("join and", lambda t: left(t).join(right(t), (F == DD) & (N > 0)), [1, 2]),
    ("join and constant", lambda t: left(t).join(right(t), (F == 0.1) & (F == DD)), []),
    ("join, where", lambda t: left(t).join(right(t)).where((N == J) & (F == DD)), [1, 2]),
    ("left join, where", lambda t: left(t).left_outer_join(right(t), N == J).where(F == DD), [1, 2]),
    ("join, select, where", lambda t: left(t).join(right(t), N == J).select(N, F, DD).where(F == DD), [1, 2]),
    ("join, where or", lambda t: left(t).join(right(t)).where((N == J) & ((F == DD) | (N > 7))), [2]),
    ("join, where not", lambda t: left(t).join(right(t), N == J).where(F != DD), [1]),
]


@pytest.mark.parametrize(("make", "rows"), [case[1:] for case in FILTERED], ids=[case[0] for case in FILTERED])
def test_equality_is_that_of_the_wider_type(make: Make, rows: list[object]) -> None:
    """K2: no FLOAT equals the DOUBLE 0.1, except as a key of a join."""
    assert values(make(numbers()).select(N)) == rows


def test_the_result_of_equality_is_that_of_the_filter() -> None:
    """K2: `==` that is selected, above a join, makes no keys."""
    table = numbers()
    found = left(table).join(right(table), N == J).select(F == DD)
    assert values(found) == [False, True]
