"""Row programs: a filter and a projection as generated Python, for batches of a few rows.

An expression has two forms, made from the same typed expression. Kernels (`penstock.sql.expressions.evaluator`) process
a column at once; each costs microseconds, however few rows there are. A row program is one Python function for all
conditions and all output columns, which costs less for a few rows (`ROWS_MAX`). The size of a batch decides, at each
batch.

**Which expressions.** `build_row_program` returns None unless all functions are deterministic and have scalar forms
(`penstock.sql.functions.scalar_forms`), but for PROCTIME. Other expressions run by kernels at every size.

**The same results.** A row program computes internal values, and NULL is None. An operand of AND, OR, CASE or COALESCE
is evaluated only if it decides, so whatever fails in one form fails in the other. If a program fails, the caller lets
the kernels report the error, which may be about another row or column: the text of an error does not depend on the size
of a batch.

**Rows** are read from tuples (`RowData`), or value by value from the columns of an Arrow batch. A column that only rows
that pass the filter need is not read for others. Each value and each repeated subexpression is computed once per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.base.errors import PenstockError
from penstock.codecs.arrow_columns import NANOSECONDS
from penstock.codecs.column_data import ColumnData
from penstock.sql import typed
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.datetimes import MILLISECOND_NS
from penstock.sql.data.row_data import RowData
from penstock.sql.data.types import (
    ArrayType,
    DataType,
    DateType,
    DayTimeIntervalType,
    LocalZonedTimestampType,
    MapType,
    NullType,
    RawType,
    RowType,
    TimestampType,
    TimeType,
    VariantType,
)
from penstock.sql.expressions.evaluator import CASTS, bind_operands, column_path, has_zero, is_pure
from penstock.sql.functions.casts import cast_kernel
from penstock.sql.functions.definition import Call, Session
from penstock.sql.functions.registry import SCALAR_FUNCTIONS
from penstock.sql.functions.scalar_forms import ScalarForm, cast_form, scalar_form, wrapped

#: Arrow batches of at most this many rows run by a row program: reading a value costs a quarter of a microsecond. At 16
#: rows the cheapest plan, a CASE over columns, costs as much by kernels; a plan with texts costs a tenth.
ROWS_MAX: Final = 16
#: The same for tuples, which are there already, and would have to become columns for kernels.
TUPLES_MAX: Final = 128
#: Nested blocks of the generated code; Python allows a hundred.
_DEPTH_MAX: Final = 60

_PROCTIME: Final = "PROCTIME"
#: what does not depend on the row alone, but is the same for all rows of a batch
_OF_BATCH: Final = frozenset([_PROCTIME])

Rows: TypeAlias = "list[tuple[Any, ...]]"
#: takes an Arrow batch or tuples, and the numbers of rows
Function: TypeAlias = Callable[[Any, Iterable[int]], list[Any]]


class _NoFormError(PenstockError, LookupError):
    """An expression has no row form."""


class _Value(NamedTuple):
    """A value of the generated code: a name or a literal, and whether it may be None."""

    text: str
    may_be_null: bool


class _Writer:
    """Writes the code of expressions that read rows from a batch (`of_arrow`) or from tuples."""

    def __init__(self, session: Session, of_arrow: bool) -> None:
        self.lines: list[str] = []
        self.names: dict[str, object] = {"wrapped": wrapped}
        #: what a batch's columns are read into before the rows
        self.columns: dict[tuple[int, ...], str] = {}
        #: the name of the processing time of a batch, if it is used
        self.now: str | None = None
        #: the columns whose values are read at once
        self.listed: set[str] = set()
        self._session = session
        self._of_arrow = of_arrow
        self._indent = 2
        self._count = 0
        #: the values that are known in the current block and in the ones around it
        self._scopes: list[dict[object, _Value]] = [{}]

    # --- code ---------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Write a line of the current block."""
        self.lines.append("    " * self._indent + text)

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _bound(self, value: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a block. What it computes is unknown after it."""
        if self._indent > _DEPTH_MAX:
            raise _NoFormError("the expression is too deep")
        self.line(head)
        self._indent += 1
        self._scopes.append({})
        begin = len(self.lines)
        yield
        if len(self.lines) == begin:
            self.line("pass")
        self._scopes.pop()
        self._indent -= 1

    # --- expressions --------------------------------------------------------------------------------------------------

    def value(self, expression: typed.Typed) -> _Value:
        """Write the code of an expression, and return its value."""
        if isinstance(expression, typed.Constant):
            return self._constant(expression)
        key = _key(expression)
        if key is not None:
            for scope in self._scopes:
                if key in scope:
                    return scope[key]
        value = self._computed(expression)
        if key is not None:
            self._scopes[-1][key] = value
        return value

    def _constant(self, expression: typed.Constant) -> _Value:
        value, kind = expression.value, expression.type
        if value is None:
            return _Value("None", True)
        if not isinstance(kind, NullType):  # a unit of time, which is a word
            (value,) = to_values(to_column([value], kind), kind)
        # Python warns about forms such as "is None" of a literal, so other constants have names.
        return _Value(repr(value) if isinstance(value, bool) else self._bound(value), False)

    def _computed(self, expression: typed.Typed) -> _Value:
        path = column_path(expression)
        if path is not None:
            return self._read(path, expression.type)
        if type(expression) not in (typed.FunctionCall, typed.WidenedFloat):
            raise _NoFormError(f"{type(expression).__name__} has no row form")
        assert isinstance(expression, typed.FunctionCall)
        if expression.function == _PROCTIME:
            return self._now()
        write = _LAZY.get(expression.function)
        if write is not None:
            return write(self, expression.operands)
        if any(isinstance(operand, typed.Lambda) for operand in expression.operands):
            raise _NoFormError("lambdas have no row form")
        form = _form(expression, self._session)
        if expression.function == "IN":
            return self._applied(form, [self.value(expression.operands[0])])
        return self._applied(form, [self.value(operand) for operand in expression.operands])

    def _now(self) -> _Value:
        """Processing time is read once for a batch, as kernels do."""
        if self.now is None:
            clock = self._session.now
            self.now = self._bound(lambda: clock() // MILLISECOND_NS * MILLISECOND_NS)
        return _Value(f"{self.now}_now", False)

    def _applied(self, form: ScalarForm, operands: list[_Value]) -> _Value:
        if form.text == "{0}" and form.bounds is None:
            return operands[0]
        bound = {name: self._bound(value) for name, value in form.names.items() if f"{{{name}}}" in form.text}
        text = form.text.format(*[operand.text for operand in operands], **bound)
        nullable = [] if form.takes_null else [operand.text for operand in operands if operand.may_be_null]
        if "None" in nullable:
            return _Value("None", True)
        nulls = " or ".join(f"{name} is None" for name in dict.fromkeys(nullable))
        name = self._new_name()
        if form.bounds is None:
            self.line(f"{name} = None if {nulls} else {text}" if nulls else f"{name} = {text}")
        elif nulls:
            with self.block(f"if {nulls}:"):
                self.line(f"{name} = None")
            with self.block("else:"):
                self._wrap(name, text, form.bounds)
        else:
            self._wrap(name, text, form.bounds)
        return _Value(name, form.may_be_null or bool(nulls))

    def _wrap(self, name: str, text: str, bounds: tuple[int, int]) -> None:
        least, most = bounds
        self.line(f"{name} = {text}")
        with self.block(f"if not {least} <= {name} <= {most}:"):
            self.line(f"{name} = wrapped({name}, {least}, {most})")

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, path: tuple[int, ...], kind: DataType) -> _Value:
        name = self._new_name()
        if not self._of_arrow:
            self.line(f"{name} = row[{path[0]}]")
            for index in path[1:]:
                self.line(f"{name} = None if {name} is None else {name}[{index}]")
            return _Value(name, True)
        column = self.columns.setdefault(path, f"c{'_'.join(map(str, path))}")
        if isinstance(kind, TimestampType | LocalZonedTimestampType):
            self.line(f"{name} = {column}[i].value")
            factor = NANOSECONDS[arrow_type(kind).unit]
            if factor > 1:
                with self.block(f"if {name} is not None:"):
                    self.line(f"{name} *= {factor}")
        elif isinstance(kind, DateType | TimeType | DayTimeIntervalType):
            self.line(f"{name} = {column}[i].value")
        elif isinstance(kind, RowType | ArrayType | MapType | RawType | VariantType):
            self.line(f"{name} = {self._bound(to_values)}({column}.slice(i, 1), {self._bound(kind)})[0]")
        else:
            self.listed.add(column)
            self.line(f"{name} = {column}[i]")
        return _Value(name, True)

    # --- operators that choose ----------------------------------------------------------------------------------------

    def case(self, operands: Sequence[typed.Typed]) -> _Value:
        """CASE: alternating conditions and values, then the value of all other rows."""
        name, undecided = self._new_name(), self._new_name()
        self.line(f"{undecided} = True")
        for index in range(0, len(operands) - 1, 2):
            if index:
                with self.block(f"if {undecided}:"):
                    self._branch(operands[index], operands[index + 1], name, undecided)
            else:
                self._branch(operands[0], operands[1], name, undecided)
        with self.block(f"if {undecided}:"):
            self.line(f"{name} = {self.value(operands[-1]).text}")
        return _Value(name, True)

    def _branch(self, condition: typed.Typed, chosen: typed.Typed, name: str, undecided: str) -> None:
        answer = self.value(condition)
        with self.block(f"if {answer.text}:"):
            self.line(f"{name} = {self.value(chosen).text}")
            self.line(f"{undecided} = False")

    def coalesce(self, operands: Sequence[typed.Typed]) -> _Value:
        """COALESCE: the first operand that is not NULL."""
        first = self.value(operands[0])
        if not first.may_be_null:
            return first
        name = self._new_name()
        self.line(f"{name} = {first.text}")
        for operand in operands[1:]:
            with self.block(f"if {name} is None:"):
                self.line(f"{name} = {self.value(operand).text}")
        return _Value(name, True)

    def logic(self, decisive: bool, operands: Sequence[typed.Typed]) -> _Value:
        """AND or OR: False or True decides; NULL stays unless a later operand decides."""
        name = self._new_name()
        first = self.value(operands[0])
        self.line(f"{name} = {first.text}")
        may_be_null = first.may_be_null
        for operand in operands[1:]:
            with self.block(f"if {name} is not {decisive}:"):
                answer = self.value(operand)
                if may_be_null:
                    with self.block(f"if {name} is not None or {answer.text} is {decisive}:"):
                        self.line(f"{name} = {answer.text}")
                else:
                    self.line(f"{name} = {answer.text}")
                may_be_null = may_be_null or answer.may_be_null
        return _Value(name, may_be_null)


_LAZY: Final[dict[str, Callable[[_Writer, Sequence[typed.Typed]], _Value]]] = {
    "CASE": _Writer.case,
    "COALESCE": _Writer.coalesce,
    "AND": lambda writer, operands: writer.logic(False, operands),
    "OR": lambda writer, operands: writer.logic(True, operands),
}


def _key(expression: typed.Typed) -> object:
    """Return what identifies an expression among the known ones; None if it is computed anew each time."""
    # The two zeros are equal, but give different quotients.
    if any(isinstance(part, typed.Constant) and has_zero(part.value) for part in expression.walk()):
        return None
    try:
        hash(expression)
    except TypeError:
        return None
    return expression


def _form(call: typed.FunctionCall, session: Session) -> ScalarForm:
    """Return the scalar form of a call; raise `_NoFormError` if it has none."""
    form: ScalarForm | None
    if call.function in CASTS:
        (operand,) = call.operands
        kernel = cast_kernel(operand.type, call.type, session, call.function == "TRY_CAST")
        form = cast_form(operand.type, call.type, kernel)
    else:
        function = SCALAR_FUNCTIONS[call.function]
        bound = Call(bind_operands(call.operands, call.options, session), call.type)
        form = None if function.takes_rows else scalar_form(function.name, bound, function.bind(bound))
    if form is None:
        raise _NoFormError(f"{call.function} has no scalar form")
    return form


class RowProgram:
    """A filter and a projection as Python. Use `build_row_program`.

    Args:
        condition: None to choose all rows.
        expressions: the output columns.
        session: the session of the operator.
    """

    def __init__(self, condition: typed.Typed | None, expressions: Sequence[typed.Typed], session: Session) -> None:
        self._condition = condition
        self._expressions = tuple(expressions)
        self._session = session
        #: for Arrow batches and for tuples: the functions that choose and that project
        self._functions = {
            of_arrow: (self._choosing(of_arrow) if condition is not None else None, self._projecting(of_arrow))
            for of_arrow in (True, False)
        }
        parts = [*self._expressions, *(() if condition is None else (condition,))]
        fields = [part for expression in parts for part in expression.walk() if isinstance(part, typed.Field)]
        #: the types of the columns that are read
        self._read = {field.index: arrow_type(field.type) for field in fields}
        self._schema: pa.Schema | None = None

    def takes(self, data: ColumnData) -> bool:
        """Return whether a batch is small enough, and its columns have the types that the program reads."""
        if isinstance(data, RowData):
            return len(data) <= TUPLES_MAX
        if len(data) > ROWS_MAX:
            return False
        schema = data.columns.schema
        if self._schema is not None and schema.equals(self._schema):
            return True
        types = schema.types
        if any(types[index] != kind for index, kind in self._read.items()):
            return False
        self._schema = schema
        return True

    def choose(self, data: ColumnData) -> list[int] | None:
        """Return the numbers of the rows that satisfy the condition; None for all rows if there is no condition."""
        choose = self._functions[not isinstance(data, RowData)][0]
        return None if choose is None else choose(_list_rows(data), range(len(data)))

    def project(self, data: ColumnData, rows: Sequence[int]) -> Rows:
        """Return the output columns of these rows, as tuples."""
        return self._functions[not isinstance(data, RowData)][1](_list_rows(data), rows)

    def _choosing(self, of_arrow: bool) -> Function:
        writer = _Writer(self._session, of_arrow)
        assert self._condition is not None
        answer = writer.value(self._condition)
        with writer.block(f"if {answer.text}:"):
            writer.line("append(i)")
        return _compiled(writer, of_arrow)

    def _projecting(self, of_arrow: bool) -> Function:
        writer = _Writer(self._session, of_arrow)
        values = [writer.value(expression).text for expression in self._expressions]
        writer.line(f"append(({''.join(f'{value}, ' for value in values)}))")
        return _compiled(writer, of_arrow)


def _list_rows(data: ColumnData) -> Any:
    return data.tuples if isinstance(data, RowData) else data.columns


def _list_fields(column: pa.StructArray) -> Callable[[int], pa.Array]:
    """Return a function that returns a field of each row, by index; the kernel for one costs ten times as much."""
    return column.flatten().__getitem__ if column.null_count else column.field  # type: ignore[no-any-return]


def _compiled(writer: _Writer, of_arrow: bool) -> Function:
    """Return the function of written code."""
    head = ["def function(batch, rows):", "    output = []", "    append = output.append"]
    read: set[str] = set()
    for path, name in writer.columns.items():
        text = f"batch.column({path[0]})"
        for depth, index in enumerate(path[1:], 1):
            fields = f"f{'_'.join(map(str, path[:depth]))}"
            if fields not in read:
                head.append(f"    {fields} = fields_of({text})")
                read.add(fields)
            text = f"{fields}({index})"
        head.append(f"    {name} = {text}{'.to_pylist()' if name in writer.listed else ''}")
    if writer.now is not None:
        head.append(f"    {writer.now}_now = {writer.now}()")
    head.append("    for i in rows:")
    if not of_arrow:
        head.append("        row = batch[i]")
    source = "\n".join([*head, *writer.lines, "    return output"])
    names: dict[str, Any] = {**writer.names, "fields_of": _list_fields}
    # The code consists of templates and of names made here.
    exec(compile(source, "<row program>", "exec"), names)
    function: Function = names["function"]
    return function


def build_row_program(
    condition: typed.Typed | None, expressions: Sequence[typed.Typed], session: Session
) -> RowProgram | None:
    """Return the row program of a filter and a projection; None if a part of them has no row form."""
    parts = (*expressions, *(() if condition is None else (condition,)))
    if not all(is_pure(part, _OF_BATCH) for part in parts):
        return None
    try:
        return RowProgram(condition, expressions, session)
    except (_NoFormError, RecursionError):
        return None
