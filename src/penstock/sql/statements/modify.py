"""DELETE, UPDATE, MERGE and TRUNCATE TABLE, in batch.

A DELETE whose condition the connector evaluates as a query would, and TRUNCATE, run without a job. For all others a
query finds the rows that change, in the version of the table that the statement pins, and computes their new values.
The connector then changes these rows at once (`penstock.connectors.row_changes`). DELETE, UPDATE and TRUNCATE have
Flink's grammar and results, MERGE has the grammar of Spark and of the SQL standard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.connectors.row_changes import DELETE, INSERT, KIND, UPDATE, after, before
from penstock.sql.analyzer.from_clause import check_table_hints, options_of_hints
from penstock.sql.analyzer.select import project
from penstock.sql.catalogs.catalog import CatalogBaseTable
from penstock.sql.catalogs.columns import Column
from penstock.sql.catalogs.sinks import accepts, without_not_null
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.data.types import NullType, TinyIntType
from penstock.sql.logical.nodes import Filter, Node, PlanColumn, RowSchema, Scan, Write
from penstock.sql.parser import statements, syntax
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.sql.statements import insert as results
from penstock.sql.typed import Constant, Typed

#: columns of MERGE that say whether a joined row has a part of the table, and one of the source
_OF_TABLE: Final = "__penstock_table"
_OF_SOURCE: Final = "__penstock_source"
_MATCHES: Final = {"MATCHED": (True, True), "NOT MATCHED": (False, True), "NOT MATCHED BY SOURCE": (True, False)}
_KINDS: Final = {"DELETE": DELETE, "UPDATE": UPDATE, "INSERT": INSERT}


class _Target:
    """The table that a statement changes.

    Args:
        session: the session.
        statement: the statement.
        verb: its name in errors.
    """

    def __init__(
        self, session: TableSession, statement: statements.Delete | statements.Update | statements.Merge, verb: str
    ) -> None:
        self.session, self.verb = session, verb
        self.alias = statement.alias or statement.path[-1]
        self._path, self._hints = statement.path, statement.hints
        self._pinned: dict[str, str] = {}
        check_table_hints(statement.hints, ".".join(statement.path))
        entry = session.manager.find(statement.path)
        if entry is None:
            self.plan(syntax.Select((syntax.SelectItem(syntax.Star()),), self.relation()))  # raises
        assert entry is not None
        self.path: tuple[str, str, str] = entry[0]
        self.table: CatalogBaseTable = entry[1]
        self.title = ".".join(self.path)
        if self.table.is_view:
            raise ValidationError(f"'{self.title}' is a view, and {verb} needs a table")
        self.columns: list[Column] = [
            column for column in session.manager.resolved(self.table).columns if column.is_persisted()
        ]
        self._given = dict(options_of_hints(statement.hints))

    @property
    def names(self) -> list[str]:
        """The names of the stored columns."""
        return [column.name for column in self.columns]

    @property
    def options(self) -> dict[str, str]:
        """The options of the table, with hints."""
        return {**self.table.options_for_connector(), **self._given, **self._pinned}

    def relation(self, alias: str | None = None) -> syntax.NamedTable:
        """Return the table as a relation, in the version that is pinned."""
        options = {**dict(options_of_hints(self._hints)), **self._pinned}
        hints = (syntax.Hint("OPTIONS", tuple(options.items())),) if options else ()
        return syntax.NamedTable(self._path, hints, alias=alias)

    def plan(self, query: syntax.Query) -> Node:
        """Return the plan of a query."""
        return self.session.manager.analyser().query(query)

    def check_mode(self) -> None:
        """Raise `UnsupportedError` in streams, with Flink's words."""
        if self.session.config.is_streaming():
            raise UnsupportedError(
                f"{self.verb} statement is not supported for streaming mode now. Set 'execution.runtime-mode' = 'batch'"
            )

    def pin(self) -> None:
        """Choose the version whose rows change. Raises `UnsupportedError` if the connector cannot change rows."""
        self._pinned = self.session.executor.connectors.pin_version(self.path, self.options)

    def column(self, name: str) -> Column:
        """Return a stored column by its name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownNameError(f"Unknown target column '{name}'. The table has {', '.join(self.names)}", name=name)

    def write(self, plan: Node, kind: Typed, old: Sequence[Typed], new: Sequence[Typed]) -> TableResult:
        """Start the job that changes rows. `kind`, `old` and `new`: expressions over the plan."""
        names = [KIND, *map(before, self.names), *map(after, self.names)]
        plan = project(plan, [kind, *old, *new], names)
        kinds = [TinyIntType(), *(without_not_null(column.data_type) for column in self.columns)]
        schema = RowSchema(tuple(map(PlanColumn, names, [*kinds, *kinds[1:]])))
        write = Write(
            schema=schema,
            input=plan,
            path=self.path,
            options=tuple(self.options.items()),
            zone=self.session.manager.calls().session.zone,
        )
        return self.session.write([write])

    def nothing(self) -> list[Typed]:
        """Return NULL for each column."""
        return [self.cast(Constant(NullType(), None), column) for column in self.columns]

    def cast(self, expression: Typed, column: Column) -> Typed:
        """Return a new value in the type of its column. The sink checks for NULL."""
        to = without_not_null(column.data_type)
        if without_not_null(expression.type) == to:
            return expression
        return self.session.manager.calls().implicit(expression, to)

    def check_assignment(self, column: Column, value: Typed) -> None:
        """Raise `ValidationError` for a value of a type that the column does not take."""
        if not accepts(value.type, column.data_type):
            raise ValidationError(
                f"Cannot assign to target field '{column.name}' of type {column.data_type} from a value of type "
                f"{value.type}: write CAST(… AS {column.data_type.nullable()})"
            )

    def check_names(self, names: Sequence[str]) -> None:
        """Raise `ValidationError` for a column that does not exist, or is assigned twice."""
        for name in names:
            self.column(name)
            if list(names).count(name) > 1:
                raise ValidationError(f"Target column '{name}' is assigned more than once")


def _kind(kind: int) -> Constant:
    return Constant(TinyIntType(False), kind)


def _delete(session: TableSession, statement: statements.Delete) -> TableResult:
    target = _Target(session, statement, "DELETE")
    items = tuple(syntax.SelectItem(syntax.Reference((name,))) for name in target.names)
    plan = target.plan(syntax.Select(items, target.relation(statement.alias), statement.where))
    target.check_mode()
    removed = _remove(target, plan, statement.where is not None)
    if removed is not None:
        return removed
    target.pin()
    plan = target.plan(syntax.Select(items, target.relation(statement.alias), statement.where))
    return target.write(plan, _kind(DELETE), plan.schema.fields(), target.nothing())


def _remove(target: _Target, plan: Node, has_condition: bool) -> TableResult | None:
    """Let the connector remove rows without a job, if it can; None if it cannot."""
    condition, names = None, target.names
    if has_condition:
        filtered = getattr(plan, "input", plan)
        if not isinstance(filtered, Filter) or not isinstance(filtered.input, Scan):
            return None
        condition, names = filtered.condition, filtered.input.schema.names
    count = target.session.executor.connectors.remove_rows(target.path, target.options, condition, names)
    if count is None:
        return None
    return results.done() if count < 0 else results.affected(count)


def _truncate(session: TableSession, statement: statements.Truncate) -> TableResult:
    entry = results.target(session, statement.path, "TRUNCATE TABLE")
    title = ".".join(entry[0])
    if session.config.is_streaming():
        raise UnsupportedError("TRUNCATE TABLE statement is not supported in streaming mode.")
    options = entry[1].options_for_connector()
    if session.executor.connectors.remove_rows(entry[0], options, None, ()) is None:
        raise UnsupportedError(
            f"TRUNCATE TABLE statement is not supported for the table {title} since its connector "
            f"'{options.get('connector', '')}' does not remove rows"
        )
    return results.done()


def _update(session: TableSession, statement: statements.Update) -> TableResult:
    target = _Target(session, statement, "UPDATE")
    assigned = [name for name, _ in statement.assignments]
    target.check_names(assigned)
    columns = [syntax.SelectItem(syntax.Reference((name,))) for name in target.names]
    values = [syntax.SelectItem(value, f"__value_{name}") for name, value in statement.assignments]

    def query() -> Node:
        relation = target.relation(statement.alias)
        return target.plan(syntax.Select((*columns, *values), relation, statement.where))

    plan, count = query(), len(columns)
    for index, name in enumerate(assigned):
        target.check_assignment(target.column(name), plan.schema.field(count + index))
    target.check_mode()
    target.pin()
    plan = query()
    fields = plan.schema.fields()
    given = dict(zip(assigned, fields[count:], strict=True))
    new = [
        target.cast(given.get(column.name, field), column)
        for column, field in zip(target.columns, fields[:count], strict=True)
    ]
    return target.write(plan, _kind(UPDATE), fields[:count], new)


# --- MERGE ------------------------------------------------------------------------------------------------------------


class _Merge:
    """The query of a MERGE: the table joined with the source, and what happens to each joined row."""

    def __init__(self, target: _Target, statement: statements.Merge) -> None:
        self._target, self._statement = target, statement
        source = statement.source
        name = source.path[-1] if isinstance(source, syntax.NamedTable) else None
        self._source_alias = source.alias or name
        self.assignments = [self._complete(clause) for clause in statement.clauses]

    def _complete(self, clause: statements.MergeClause) -> dict[str, syntax.Expression]:
        """Return the value of each column that a clause assigns."""
        target = self._target
        if clause.action == "DELETE":
            return {}
        if not clause.assignments:
            alias = () if self._source_alias is None else (self._source_alias,)
            return {name: syntax.Reference((*alias, name)) for name in target.names}
        names = [name for name, _ in clause.assignments]
        if not any(names):
            if len(names) != len(target.names):
                raise ValidationError(
                    f"Number of INSERT target columns ({len(target.names)}) does not equal number of source items "
                    f"({len(names)})"
                )
            names = target.names
        target.check_names(names)
        if clause.action == "INSERT":
            for column in target.columns:
                if column.name not in names and not column.data_type.is_nullable:
                    raise ValidationError(f"Column '{column.name}' has no default value and does not allow NULLs")
        return dict(zip(names, (value for _, value in clause.assignments), strict=True))

    def _joined(self) -> syntax.Relation:
        target, statement = self._target, self._statement
        mark = syntax.BooleanLiteral(True)
        columns = tuple(syntax.SelectItem(syntax.Reference((name,))) for name in target.names)
        of_table = syntax.Select((*columns, syntax.SelectItem(mark, _OF_TABLE)), target.relation())
        of_source = syntax.Select(
            (syntax.SelectItem(syntax.Star()), syntax.SelectItem(mark, _OF_SOURCE)), statement.source
        )
        matches = {clause.matches for clause in statement.clauses}
        keeps_source, keeps_table = "NOT MATCHED" in matches, "NOT MATCHED BY SOURCE" in matches
        kinds = {(False, False): "INNER", (False, True): "RIGHT", (True, False): "LEFT", (True, True): "FULL"}
        return syntax.Join(
            syntax.DerivedTable(of_table, alias=target.alias),
            syntax.DerivedTable(of_source, alias=self._source_alias),
            kinds[keeps_table, keeps_source],
            statement.condition,
        )

    def check_types(self) -> None:
        """Raise `ValidationError` for a value of a type that its column does not take."""
        values = [(name, value) for assigned in self.assignments for name, value in assigned.items()]
        items = tuple(syntax.SelectItem(value, f"__value_{index}") for index, (_, value) in enumerate(values))
        mark = syntax.SelectItem(syntax.Reference((_OF_TABLE,)))
        guards = tuple(syntax.SelectItem(guard, f"__guard_{index}") for index, guard in enumerate(self._guards()))
        plan = self._target.plan(syntax.Select((mark, *items, *guards), self._joined()))
        for index, (name, _) in enumerate(values):
            self._target.check_assignment(self._target.column(name), plan.schema.field(index + 1))

    def _guards(self) -> list[syntax.Expression]:
        """Return the condition of each clause."""
        guards: list[syntax.Expression] = []
        for clause in self._statement.clauses:
            parts: list[syntax.Expression] = [
                syntax.Call("IS NOT NULL" if has else "IS NULL", (syntax.Reference((name,)),))
                for name, has in zip((_OF_TABLE, _OF_SOURCE), _MATCHES[clause.matches], strict=True)
            ]
            guard = syntax.Call("AND", tuple(parts))
            guards.append(guard if clause.condition is None else syntax.Call("AND", (guard, clause.condition)))
        return guards

    def plan(self) -> Node:
        """Return the plan with the kind of change, the columns before, and the columns after."""
        target, guards = self._target, self._guards()
        any_guard = guards[0]
        for guard in guards[1:]:
            any_guard = syntax.Call("OR", (any_guard, guard))

        def choose(values: Sequence[syntax.Expression]) -> syntax.Expression:
            return syntax.Case(None, tuple(zip(guards, values, strict=True)), None)

        kinds = [syntax.NumberLiteral(str(_KINDS[clause.action])) for clause in self._statement.clauses]
        items = [syntax.SelectItem(syntax.Cast(choose(kinds), TinyIntType()), KIND)]
        old = {name: syntax.Reference((target.alias, name)) for name in target.names}
        items += [syntax.SelectItem(old[name], before(name)) for name in target.names]
        for column in target.columns:
            values: list[syntax.Expression] = []
            for clause, assigned in zip(self._statement.clauses, self.assignments, strict=True):
                unassigned = old[column.name] if clause.action == "UPDATE" else syntax.NullLiteral()
                value = assigned.get(column.name, unassigned)
                values.append(syntax.Cast(value, without_not_null(column.data_type)))
            items.append(syntax.SelectItem(choose(values), after(column.name)))
        return target.plan(syntax.Select(tuple(items), self._joined(), any_guard))


def _merge(session: TableSession, statement: statements.Merge) -> TableResult:
    target = _Target(session, statement, "MERGE")
    merge = _Merge(target, statement)
    merge.check_types()
    target.check_mode()
    target.pin()
    plan = merge.plan()
    fields, count = plan.schema.fields(), len(target.columns)
    return target.write(plan, fields[0], fields[1 : 1 + count], fields[1 + count :])


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Delete: _delete,
    statements.Update: _update,
    statements.Merge: _merge,
    statements.Truncate: _truncate,
}
