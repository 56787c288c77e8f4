"""Calls of process table functions, in SQL and in the Table API: arguments, columns, changes, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pandas
import pyarrow as pa
import pytest
from tests.table.process import functions
from tests.table.process.called import Called, plan_call, planner_of, session_of
from tests.table.udf.jobs import changes_of, environment, read_rows

from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.common import Row, RowKind
from penstock.plan.transformation import Transformation
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.explain import plan_text
from penstock.sql.parser import parse_statement, statements
from penstock.table import EnvironmentSettings, ListView, ProcessTableFunction, TableEnvironment
from penstock.table.expressions import col, descriptor, lit
from penstock.table.udf import (
    ArgumentHint,
    ArgumentTrait,
    Context,
    ProcessTableFunctionArgument,
    ProcessTableFunctionState,
    StateHint,
    udptf,
)

SET, ROW = functions.SET, functions.ROW
PAIRS = "CREATE TEMPORARY VIEW pairs AS SELECT * FROM (VALUES ('a', 1), ('b', 2), ('a', 3)) AS v (k, n)"


@dataclass
class Pair:
    """A row of `pairs`."""

    name: str
    number: int


def pairs(**more: Any) -> TableEnvironment:
    """An environment with the view `pairs` and these functions."""
    made = environment(**more)
    made.execute_sql(PAIRS)
    return made


# --- arguments -------------------------------------------------------------------------------------------------------


def test_arguments_are_given_by_position_and_by_name() -> None:
    """Optional ones have the default of the parameter or None, and DEFAULT leaves one out."""
    called = Called("SELECT * FROM f(TABLE c, 1)", f=functions.Arguments)
    called.rows(("a", "tea"))
    assert called.take() == ["+I +I[a, tea] 1 None None 0.5"]
    called = Called("SELECT * FROM f(TABLE c, 1 + 1, DESCRIPTOR(x, y), 'w', 2, DEFAULT, 'id')", f=functions.Arguments)
    assert called.node.uid == "id"
    called.rows(("a", "tea"))
    assert called.take() == ["+I +I[a, tea] 2 ['x', 'y'] 'w' 2.0"]
    called = Called("SELECT * FROM f(label => 'x', i => 3, r => TABLE (SELECT k FROM c))", f=functions.Arguments)
    called.rows(("a",))
    assert called.take() == ["+I +I[a] 3 None 'x' 0.5"]


def test_methods_of_tables_call_functions() -> None:
    """`process`, `partition_by`, `from_call` and `as_argument`, with a class, a name, or what `udptf` made."""
    made = pairs(counting=functions.Counting)
    table = made.from_path("pairs")
    counted = [("a", 1), ("a", 2), ("b", 1)]
    assert read_rows(made, table.partition_by(col("k")).process(functions.Counting)) == counted
    named = table.partition_by(col("k")).process("Counting")
    assert read_rows(made, named) == counted
    assert "uid=[Counting]" in named.explain()
    assert read_rows(
        made, table.partition_by("k").process(udptf(functions.Counting()), lit("x").as_argument("uid"))
    ) == (counted)
    called = made.from_call("counting", table.partition_by(col("k")).as_argument("r"))
    assert read_rows(made, called.filter(col("k") == "b")) == [("b", 1)]
    shown = table.process(functions.Arguments, 1, descriptor("x"), None, 2.5, None, "a-uid")
    assert ("+I[b, 2] 1 ['x'] None 2.5",) in read_rows(made, shown)
    both = made.from_call(
        functions.Joining,
        table.partition_by(col("k")).as_argument("left"),
        table.partition_by("k").as_argument("right"),
    )
    assert len(read_rows(made, both)) == 6


def test_sql_calls_functions_in_from() -> None:
    """A call has an alias, stands in joins and WITH queries, and its table may be a WITH query."""
    made = pairs(counting=functions.Counting, passing=functions.Passing, reversing=functions.Reversing)
    rows = read_rows(made, "SELECT x.k, c FROM counting(TABLE pairs PARTITION BY k) AS x (k, c) WHERE c > 1")
    assert rows == [("a", 2)]
    query = "WITH big AS (SELECT * FROM pairs WHERE n > 1) SELECT * FROM passing(TABLE big PARTITION BY k)"
    assert read_rows(made, query) == [("a", 3, 2), ("b", 2, 2)]
    joined = (
        "SELECT p.n, c.`EXPR$0` FROM pairs AS p, counting(TABLE pairs PARTITION BY k) AS c WHERE p.k = c.k AND p.n = 2"
    )
    assert read_rows(made, joined) == [(2, 1)]
    assert read_rows(made, "SELECT * FROM TABLE(reversing(TABLE pairs))") == [(1, "a"), (2, "b"), (3, "a")]
    assert read_rows(made, "SELECT * FROM reversing(r => TABLE pairs, width => 1)") == [(1,), (2,), (3,)]


def test_functions_without_tables_are_called_once() -> None:
    """A function of values alone generates a table."""

    class Numbers(ProcessTableFunction[int]):
        def eval(self, end: int) -> Iterator[int]:
            yield from range(end)

    made = pairs(numbers=Numbers)
    assert read_rows(made, "SELECT * FROM numbers(3)") == [(0,), (1,), (2,)]
    assert read_rows(made, made.from_call(Numbers, 2)) == [(0,), (1,)]


def test_functions_are_declared_without_annotations() -> None:
    """`udptf` declares arguments, states and the result by names, as a decorator too."""

    @udptf(
        arguments=[
            ProcessTableFunctionArgument.table("r", traits={SET}),
            ProcessTableFunctionArgument.scalar("step", "INT"),
        ],
        states=[
            ProcessTableFunctionState.value("total", "ROW<n BIGINT>", ttl="1 day"),
            ProcessTableFunctionState.list("all"),
            ProcessTableFunctionState.map("last"),
        ],
        result_type=["BIGINT", "ARRAY<INT>"],
    )
    class Adding(ProcessTableFunction):
        def eval(self, ctx, total, all, last, r, step):
            total["n"] = (total.n or 0) + step
            all.add(r.n)
            last.put("n", r.n)
            return [(total.n, list(all))]

    made = pairs(adding=Adding)
    rows = read_rows(made, "SELECT * FROM adding(TABLE pairs PARTITION BY k, 10)")
    assert rows == [("a", 10, [1]), ("a", 20, [1, 3]), ("b", 10, [2])]


def test_rows_have_the_class_of_a_typed_argument() -> None:
    """A class with annotations takes the columns by position; its rows may be the result as well."""

    class Doubling(ProcessTableFunction[Pair]):
        def eval(self, r: Annotated[Pair, ROW]) -> None:
            r.number *= 2
            self.collect(r)

    made = pairs(doubling=Doubling)
    assert read_rows(made, "SELECT name, number FROM doubling(TABLE pairs)") == [("a", 2), ("a", 6), ("b", 4)]
    with pytest.raises(ValidationError, match="expected for table argument 'r'"):
        made.sql_query("SELECT * FROM doubling(TABLE words)")


def test_open_and_close_are_called() -> None:
    """As for other functions, with the context of the subtask."""

    class Opening(ProcessTableFunction[str]):
        def open(self, function_context: Any) -> None:
            self.name = function_context.get_job_parameter("name", "none")

        def eval(self, r: Annotated[Row, ROW]) -> Iterator[str]:
            yield self.name

    assert read_rows(pairs(f=Opening), "SELECT DISTINCT * FROM f(TABLE pairs)") == [("none",)]


@pytest.mark.parametrize("func_type", ["pandas", "arrow"])
def test_many_rows_in_one_call(func_type: str) -> None:
    """Data frames and Arrow tables of the rows that came together, with state and with row semantics."""

    class Totals(ProcessTableFunction):
        def eval(self, seen, r):
            numbers = r["n"].to_list() if func_type == "pandas" else r.column("n").to_pylist()
            seen["total"] = (seen.total or 0) + sum(numbers)
            frame = {"rows": [len(numbers)], "total": [seen.total]}
            yield pandas.DataFrame(frame) if func_type == "pandas" else pa.table(frame)

    table = ProcessTableFunctionArgument.table("r", {SET})
    seen = ProcessTableFunctionState.value("seen", "ROW<total BIGINT>")
    totals = udptf(
        Totals(), arguments=[table], states=[seen], result_type="ROW<`rows` INT, total BIGINT>", func_type=func_type
    )
    called = Called("SELECT * FROM f(TABLE t PARTITION BY k)", f=totals)
    called.rows(("a", 1, 0), ("b", 2, 0), ("a", 3, 0))
    called.recover(parallelism=2)
    called.rows(("a", 5, 0))
    assert called.take() == ["+I a, 1, 9"]

    class Doubled(ProcessTableFunction):
        result_type = "ROW<n INT>"

        def eval(self, r: Annotated[Row, ROW]) -> Any:
            return [r, r] if func_type == "arrow" else r[r.n > 1]

    called = Called("SELECT * FROM f(TABLE t)", f=udptf(Doubled(), func_type=func_type))
    called.rows(("a", 1, 0), ("b", 2, 0))
    assert called.take() == (["+I 1", "+I 2"] * 2 if func_type == "arrow" else ["+I 2"])
    with pytest.raises(ValidationError, match="leave out on_time and ORDER BY"):
        plan_call("SELECT * FROM f(TABLE t PARTITION BY k ORDER BY ts)", f=totals)
    with pytest.raises(ValidationError, match="does not go with PASS_COLUMNS_THROUGH"):
        udptf(functions.Passing(), func_type=func_type)


# --- columns and changes ---------------------------------------------------------------------------------------------


def columns(query: str, **more: Any) -> list[str]:
    """The columns of a call: names, types and what time they are."""
    return [f"{column.name} {column}" for column in plan_call(query, **more)[1].schema]


def test_columns_of_the_result() -> None:
    """The columns of PARTITION BY, the function's own, and the time; names that repeat get numbers."""
    assert columns("SELECT * FROM f(TABLE pair PARTITION BY (b, a))", f=functions.Counting) == [
        "b INT",
        "a STRING",
        "EXPR$0 BIGINT",
    ]
    timed = columns("SELECT * FROM f(r => TABLE t PARTITION BY k, on_time => DESCRIPTOR(ts))", f=functions.Counting)
    assert timed == ["k STRING", "EXPR$0 BIGINT", "rowtime TIMESTAMP(3) NOT NULL *ROWTIME*"]
    passed = columns("SELECT * FROM f(r => TABLE t PARTITION BY k)", f=functions.Passing)
    assert passed == ["k STRING", "n INT", "ts TIMESTAMP(3) *ROWTIME*", "EXPR$0 BIGINT"]


def test_updates_arrive_as_the_function_needs_them() -> None:
    """By key if PARTITION BY is the key of the table, with the previous row if it must be or is none."""
    made = pairs(changes=functions.Changes, whole=functions.WholeChanges)
    made.execute_sql("CREATE TEMPORARY VIEW counts AS SELECT k, COUNT(*) AS c FROM pairs GROUP BY k")
    by_key = changes_of(made, "SELECT * FROM changes(TABLE counts PARTITION BY k)")
    assert by_key[-1] == "+I['a', '+U[a, 2] [INSERT,UPDATE_AFTER]']"
    assert len(by_key) == 3
    by_count = changes_of(made, "SELECT * FROM changes(TABLE counts PARTITION BY c)")
    assert [change for change in by_count if "-U" in change] == [
        "+I[1, '-U[a, 1] [INSERT,UPDATE_BEFORE,UPDATE_AFTER]']"
    ]
    assert len(changes_of(made, "SELECT * FROM whole(TABLE counts PARTITION BY k)")) == 4


def test_functions_emit_changes() -> None:
    """By ChangelogMode: retractions go on as they are, and updates by key get the previous row where it is needed."""
    made = pairs(retracting=functions.Retracting, upserting=functions.Upserting)
    values = "(SELECT * FROM (VALUES ('a', 1), ('a', 4), ('b', 2), ('a', 0)) AS v (k, n))"
    sums = changes_of(made, f"SELECT * FROM retracting(TABLE {values} PARTITION BY k)")
    assert [change for change in sums if "'a'" in change] == [
        "+I['a', 1]",
        "-U['a', 1]",
        "+U['a', 5]",
        "-D['a', 5]",
    ]
    counts = changes_of(made, "SELECT * FROM upserting(TABLE pairs PARTITION BY k)")
    assert [change for change in counts if "'a'" in change] == ["+I['a', 1]", "-U['a', 1]", "+U['a', 2]"]
    assert read_rows(made, "SELECT COUNT(*) FROM upserting(TABLE pairs PARTITION BY k)")[-1] == (2,)


def test_a_kind_that_the_mode_lacks_is_refused() -> None:
    """A function without `get_changelog_mode` emits inserts alone."""

    class Updating(ProcessTableFunction):
        result_type = "ROW<n INT>"

        def eval(self, r: Annotated[Row, SET]) -> Iterator[Row]:
            yield Row.of_kind(RowKind.DELETE, 1)

    called = Called("SELECT * FROM f(TABLE t PARTITION BY k)", f=Updating)
    with pytest.raises(UserCodeError) as error:
        called.rows(("a", 1, 0))
    assert "Invalid row kind received: DELETE. Expected produced changelog mode: [INSERT]" in str(error.value.__cause__)


def test_equal_calls_are_one_step() -> None:
    """Calls with one uid in the INSERTs of a set are one step; different uids are two."""
    for second, steps in (("x", 1), ("y", 2)):
        session = session_of(f=functions.Counting)
        added: list[Transformation] = []
        planner = planner_of(session, added)
        for uid, key in (("x", "a"), (second, "b")):
            query = f"SELECT * FROM f(r => TABLE t PARTITION BY k, uid => '{uid}') WHERE k = '{key}'"
            statement = parse_statement(query)
            assert isinstance(statement, statements.QueryStatement)
            planner.query(session.manager.analyser().result(statement.query), True)
        assert sum(step.kind == "Process Table Function" for step in added) == steps


def test_explain_shows_the_call() -> None:
    """As in Flink: the invocation, the uid and the columns."""
    session = session_of(f=functions.Joining)
    query = (
        "SELECT * FROM f(`left` => TABLE t PARTITION BY k ORDER BY ts, `right` => TABLE u PARTITION BY k, uid => 'j')"
    )
    statement = parse_statement(query)
    assert isinstance(statement, statements.QueryStatement)
    text = plan_text(session.manager.analyser().result(statement.query))
    line = next(line for line in text.splitlines() if "ProcessTableFunction" in line).strip()
    assert line == (
        "ProcessTableFunction(invocation=[f(TABLE(#0) PARTITION BY(k) ORDER BY(ts ASC), TABLE(#1) PARTITION BY(k), "
        "DEFAULT(), DEFAULT(), 'j')], uid=[j], select=[k,k0,EXPR$0], "
        "rowType=[RecordType(STRING k, STRING k0, STRING EXPR$0)])"
    )


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "query", "message"),
    [
        (
            functions.Counting,
            "f(TABLE t)",
            "Table argument 'r' requires a PARTITION BY clause for parallel processing.",
        ),
        (functions.Counting, "f(5)", "Invalid argument value. Argument 'r' expects a table to be passed."),
        (functions.Counting, "f(TABLE t PARTITION BY k, DEFAULT, '1a')", r"follows the pattern .* But found: 1a"),
        (functions.Counting, "f(r => TABLE t PARTITION BY k, x => 1)", "there is no argument 'x'"),
        (functions.Counting, "f(r => TABLE t PARTITION BY k, r => TABLE t)", "Duplicate argument name: 'r'"),
        (functions.Counting, "f(TABLE t PARTITION BY k, 1, 2, 3, 4)", "it takes 3 arguments at most"),
        (functions.Arguments, "f(TABLE t PARTITION BY k, 1)", "Only tables with set semantics may be partitioned"),
        (functions.Arguments, "f(r => TABLE t)", "DEFAULT is only allowed for optional parameters"),
        (functions.Arguments, "f(TABLE t, 'x')", "INT expected but CHAR"),
        (functions.Timing, "f(r => TABLE t PARTITION BY k, on_time => DESCRIPTOR(n))", "column 'n' .* data type 'INT'"),
        (functions.Timing, "f(r => TABLE t PARTITION BY k, on_time => DESCRIPTOR(x))", r"Unknown references: \[x\]"),
        (
            functions.Timing,
            "f(r => TABLE (SELECT k, CAST(ts + INTERVAL '1' DAY AS TIMESTAMP(3)) AS ts FROM t) "
            "PARTITION BY k, on_time => DESCRIPTOR(ts))",
            "Column 'ts' is not a valid time attribute. Only columns with a watermark declaration qualify",
        ),
        (functions.Counting, "f(TABLE t PARTITION BY k ORDER BY n)", "The first ORDER BY column must be a TIMESTAMP"),
        (functions.Counting, "f(TABLE t PARTITION BY k ORDER BY (ts DESC))", "must be in ascending order"),
        (functions.Counting, "f(TABLE t PARTITION BY k ORDER BY (ts, n, n))", "Column 'n' appears more than once"),
        (
            functions.Joining,
            "f(`left` => TABLE t PARTITION BY k, `right` => TABLE t PARTITION BY n)",
            r"Invalid PARTITION BY columns.* Given partition key sets: \[STRING\], \[INT\]",
        ),
        (
            functions.Joining,
            "f(`left` => TABLE t PARTITION BY k, `right` => TABLE u PARTITION BY k, on_time => DESCRIPTOR(ts))",
            r"Missing time attributes for: \[right\]",
        ),
        (
            functions.Counting,
            "f(TABLE up PARTITION BY k)",
            "StreamPhysicalProcessTableFunction doesn't support consuming update and delete changes which is produced",
        ),
        (
            functions.Retracting,
            "f(r => TABLE t PARTITION BY k, on_time => DESCRIPTOR(ts))",
            "Time operations using the `on_time` argument are currently not supported for PTFs that consume or produce",
        ),
        (
            functions.Counting,
            "f(TABLE t PARTITION BY k) UNION ALL SELECT * FROM f(TABLE t PARTITION BY k, DEFAULT, 'f')"
            " UNION ALL SELECT * FROM f(TABLE (SELECT * FROM t WHERE n > 1) PARTITION BY k)",
            "Duplicate unique identifier 'f' detected among process table functions",
        ),
    ],
)
def test_invalid_calls(function: Any, query: str, message: str) -> None:
    """Flink's messages where it has them."""
    with pytest.raises(ValidationError, match=message):
        plan_call(f"SELECT * FROM {query}", f=function)


def refused(evaluate: Any, **more: Any) -> str:
    """Why a class with this `eval` is refused."""
    kind = type("Refused", (ProcessTableFunction,), {"eval": evaluate, "result_type": "STRING", **more})
    with pytest.raises((ValidationError, WrongTypeError)) as error:
        udptf(kind)
    return str(error.value)


def test_invalid_declarations() -> None:
    """Signatures that make no sense, with Flink's messages where it has them."""

    def many(self: Any, *rows: Any) -> None: ...

    def reserved(self: Any, uid: str) -> None: ...

    def untyped(self: Any, value) -> None: ...

    def mixed(self: Any, left: Annotated[Row, ROW], right: Annotated[Row, SET]) -> None: ...

    def passing(
        self: Any, r: Annotated[Row, SET, ArgumentTrait.PASS_COLUMNS_THROUGH, ArgumentTrait.SUPPORT_UPDATES]
    ) -> None: ...

    def alone(self: Any, r: Annotated[Row, ArgumentTrait.OPTIONAL_PARTITION_BY]) -> None: ...

    def needing(self: Any, r: Annotated[Row, ROW, ArgumentTrait.OPTIONAL_PARTITION_BY]) -> None: ...

    def optional(self: Any, r: Annotated[Row, ArgumentHint(ROW, is_optional=True)]) -> None: ...

    def stateless(self: Any, n: Annotated[int, StateHint()], r: Annotated[Row, SET]) -> None: ...

    def of_rows(self: Any, n: ListView[int], r: Annotated[Row, ROW]) -> None: ...

    def late(self: Any, r: Annotated[Row, SET], n: ListView[int]) -> None: ...

    class Made:
        def __init__(self, n: int) -> None:
            self.n = n

    def made(self: Any, n: Annotated[Made, StateHint()], r: Annotated[Row, SET]) -> None: ...

    made.__annotations__["n"] = Annotated[Made, StateHint()]
    assert "non-overloaded, non-vararg" in refused(many)
    assert "must not declare system arguments" in refused(reserved)
    assert "Data type missing for scalar argument 'value'" in refused(untyped)
    assert "must use set semantics if multiple table arguments" in refused(mixed)
    assert "Signatures with updating inputs must not pass columns through." in refused(passing)
    assert "must be declared as either scalar, table, or model." in refused(alone)
    assert "Trait OPTIONAL_PARTITION_BY requires SET_SEMANTIC_TABLE." in refused(needing)
    assert refused(optional) == "Table arguments must not be optional."
    assert "must use a mutable, composite data type. But was: <class 'int'>" in refused(stateless)
    assert "a function with state takes a table with set semantics" in refused(of_rows)
    assert "must precede all arguments" in refused(late)
    assert "cannot be used as state because a default constructor is missing" in refused(made)
    with pytest.raises(WrongTypeError, match="a ProcessTableFunction is expected"):
        udptf(lambda row: row)
    with pytest.raises(WrongTypeError, match=r"call it by table\.process"):
        udptf(functions.Counting)(1)


def test_functions_that_say_no_type() -> None:
    """A call of a function whose result nothing declares."""

    class Silent(ProcessTableFunction):
        def eval(self, ctx: Context, r: Annotated[Row, ROW]) -> None: ...

    with pytest.raises(ValidationError, match="says nowhere what its rows are"):
        plan_call("SELECT * FROM f(TABLE t)", f=Silent)


def test_batch_refuses_calls() -> None:
    """As Flink does: process table functions run in streams."""
    made = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    made.create_temporary_function("f", functions.Arguments)
    with pytest.raises(UnsupportedError, match="process table functions run in streams"):
        made.execute_sql("SELECT * FROM f(TABLE (SELECT 1), 1)")


def test_functions_are_no_scalars() -> None:
    """A process table function gives a table."""
    made = pairs(f=functions.Counting)
    with pytest.raises(ValidationError, match="gives a table: call it in FROM"):
        made.sql_query("SELECT f(n) FROM pairs")
    with pytest.raises(ValidationError, match="could not be found"):
        made.from_path("pairs").process("nothing")
