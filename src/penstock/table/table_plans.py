"""Plans of the Table API: builds its operations on existing plans, as the equivalent SQL queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.changelog_functions import changelog_table
from penstock.table.analyser.literals import constant
from penstock.table.analyser.planned import MethodCalls, PlannedQuery, set_operation
from penstock.table.analyser.queries import QueryAnalyser
from penstock.table.analyser.rewriting import rewritten
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import build_scope
from penstock.table.analyser.select import project
from penstock.table.analyser.sql_rules import are_of_both_sides, join_condition
from penstock.table.catalog.manager import CatalogManager
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType
from penstock.table.methods.aggregates import WINDOW_PARTS
from penstock.table.methods.operand import Operand, to_node
from penstock.table.plan.logical import Distinct, Node, Sort
from penstock.table.plan.row_schema import TimeAttribute
from penstock.table.selection import expanded, selected, to_operand
from penstock.table.sql import relations, syntax
from penstock.table.sql.relations import DerivedTable, GroupItem, Relation, SelectItem
from penstock.table.window import GroupWindow, OverWindow


@dataclass(frozen=True, slots=True)
class Plans:
    """Builds plans from the tables, functions and options that a catalog manager knows. All methods are pure."""

    manager: CatalogManager

    def _analyser(self) -> QueryAnalyser:
        return QueryAnalyser(self.manager, MethodCalls(self.manager.calls()))

    def calls(self) -> Calls:
        """Return the builder of function calls."""
        return self._analyser().calls

    def scalars(self, plan: Node) -> ScalarAnalyser:
        """Return an analyser that types expressions over the columns of a plan."""
        analyser = self._analyser()
        return ScalarAnalyser(build_scope(plan, analyser.calls), analyser.calls)

    def changelog(self, function: str, plan: Node, arguments: Sequence[object]) -> Node:
        """Apply FROM_CHANGELOG or TO_CHANGELOG (`function`) to a plan."""
        call = syntax.Call(function, (syntax.TableArgument(PlannedQuery(plan)), *map(to_node, arguments)), (function,))
        return changelog_table(call, self._analyser())

    # --- columns -----------------------------------------------------------------------------------------------------

    def items(self, plan: Node, fields: Sequence[object]) -> list[SelectItem]:
        """Return the columns that `fields` expand to, each with its name."""

        def analyse_type(node: syntax.Expression) -> DataType:
            return self.scalars(plan).typed(node).type

        return selected(fields, plan.schema.names, analyse_type, self.calls())

    def select(self, plan: Node, fields: Sequence[object], windows: Sequence[OverWindow] = ()) -> Node:
        """Select `fields`; aggregates range over `windows`, or over all rows."""
        named = tuple((window.name, window.specification) for window in windows)
        return self._selected(self.items(plan, fields), _rows(plan), windows=named)

    def _selected(
        self,
        items: Iterable[SelectItem],
        source: Relation,
        group: tuple[GroupItem, ...] | None = None,
        windows: tuple[tuple[str, syntax.WindowSpecification], ...] = (),
    ) -> Node:
        return self._analyser().query(relations.Select(tuple(items), source, group=group, windows=windows))

    def added(self, plan: Node, fields: Sequence[object], replaces: bool) -> Node:
        """Add columns; with `replaces`, a new column replaces the existing one of the same name."""
        items = self.items(plan, ["*", *fields] if not replaces else ["*"])
        if replaces:
            for item in self.items(plan, fields):
                same = [index for index, existing in enumerate(items) if existing.alias == item.alias]
                if same:
                    items[same[0]] = item
                else:
                    items.append(item)
        return self._selected(items, _rows(plan))

    def renamed(self, plan: Node, names: Sequence[str]) -> Node:
        """Rename the leading columns; the remaining columns keep their names."""
        if len(names) > len(plan.schema):
            raise ValidationError(
                f"Aliasing more fields than we actually have: {len(names)} names, and the table has {len(plan.schema)}"
            )
        if len(set(names)) < len(names):
            raise ValidationError(f"Duplicate names in alias: {', '.join(names)}")
        return project(plan, plan.schema.fields(), [*names, *plan.schema.names[len(names) :]])

    def columns_renamed(self, plan: Node, fields: Sequence[object]) -> Node:
        """Rename the columns that `fields` alias."""
        new = {}
        for field in map(to_operand, fields):
            if not isinstance(field._node, syntax.Reference) or len(field._names) != 1:
                raise ValidationError(
                    f'rename_columns takes columns and new names, as col("a").alias("b"), not {field}'
                )
            new[_known(field._node.path[0], plan)] = field._names[0]
        return self.renamed(plan, [new.get(name, name) for name in plan.schema.names])

    def dropped(self, plan: Node, fields: Sequence[object]) -> Node:
        """Drop columns."""
        names = set()
        for field in expanded(fields, plan.schema.names):
            if not isinstance(field._node, syntax.Reference):
                raise ValidationError(f"drop_columns takes columns, not {field}")
            names.add(_known(field._node.path[0], plan))
        remaining = [name for name in plan.schema.names if name not in names]
        return self.select(plan, remaining)

    # --- rows --------------------------------------------------------------------------------------------------------

    def filtered(self, plan: Node, condition: object) -> Node:
        """Keep the rows for which a condition is true."""
        names = plan.schema.names

        def are_keys(one: str, other: str) -> bool:
            is_known = one in names and other in names
            return is_known and are_of_both_sides(plan, names.index(one), names.index(other))

        return self._analyser().filtered(plan, join_condition(to_operand(condition)._node, are_keys))

    def distinct(self, plan: Node) -> Node:
        """Remove duplicate rows."""
        return Distinct(schema=plan.schema, input=plan)

    def ordered(self, plan: Node, fields: Sequence[object]) -> Node:
        """Sort the rows."""
        if not fields:
            raise ValidationError("order_by takes at least one expression")
        items = [
            syntax.OrderItem(_no_place(operand._node), operand._is_descending is True)
            for field in fields
            for operand in [to_operand(field)]
        ]
        query: syntax.Query = PlannedQuery(plan)
        if not all(isinstance(item.expression, syntax.Reference) for item in items):
            query = relations.Select((SelectItem(syntax.Star()),), DerivedTable(query))
        return self._analyser().query(relations.Ordered(query, tuple(items)))

    def offset(self, plan: Node, rows: int) -> Node:
        """Skip the first `rows` rows."""
        _check_count("offset", rows)
        if isinstance(plan, Sort) and not plan.offset and plan.fetch is None:
            return replace(plan, offset=rows)
        return Sort(schema=plan.schema, input=plan, offset=rows)

    def fetch(self, plan: Node, rows: int) -> Node:
        """Keep the first `rows` rows."""
        _check_count("fetch", rows)
        if isinstance(plan, Sort) and plan.fetch is None:
            return replace(plan, fetch=rows)
        return Sort(schema=plan.schema, input=plan, fetch=rows)

    # --- several tables ----------------------------------------------------------------------------------------------

    def joined(self, left: Node, right: Node, join_type: str, condition: object | None) -> Node:
        """Join two tables, on a condition if there is one."""
        both = sorted(set(left.schema.names) & set(right.schema.names))
        if both:
            raise ValidationError(
                f"join relations with ambiguous names: [{', '.join(both)}]; rename columns of one table with alias"
            )
        if condition is not None:
            of_left = set(left.schema.names)
            node = join_condition(
                to_operand(condition)._node, lambda name, other: (name in of_left) != (other in of_left)
            )
            condition = Operand(node)
        return self.related(relations.Join(_rows(left), _rows(right), join_type), condition)

    def related(self, join: relations.Join, condition: object | None) -> Node:
        """Plan a join, on a condition if there is one."""
        node = None if condition is None else to_operand(condition)._node
        return self._analyser().relations.scope(replace(join, condition=node), None).plan

    def combined(self, left: Node, right: Node, operator: str, is_all: bool) -> Node:
        """Combine two tables by UNION, INTERSECT or EXCEPT (`operator`)."""
        calls = MethodCalls(self.manager.calls())
        return set_operation(operator, (left, right), is_all, self._analyser().query, calls)

    # --- groups ------------------------------------------------------------------------------------------------------

    def grouped(self, plan: Node, keys: Sequence[Operand], fields: Sequence[object]) -> Node:
        """Group by keys, with one row for each group."""
        items = _with_keys(self.items(plan, fields), keys)
        return self._selected(items, _rows(plan), tuple(GroupItem("SET", (_no_place(key._node),)) for key in keys))

    def window_grouped(
        self, plan: Node, window: GroupWindow, keys: Sequence[Operand], fields: Sequence[object]
    ) -> Node:
        """Group by keys and window, with one row for each group and window."""
        time = plan.schema.names.index(_known(window.time.path[0], plan))
        parts: set[str] = set()
        items = [
            SelectItem(_of_window(item.expression, window, parts), item.alias)
            for item in _with_keys(self.items(plan, fields), keys)
        ]
        is_processing = plan.schema[time].time is TimeAttribute.PROCTIME
        if ("$ROWTIME" in parts and is_processing) or ("$PROCTIME" in parts and not is_processing):
            raise ValidationError(
                f"window {window.name!r} is on {window.time.path[0]!r}, which is no "
                f"{'event' if is_processing else 'processing'} time: take {'proctime' if is_processing else 'rowtime'}"
            )
        columns = ["window_start", "window_end"]
        columns += ["window_time"] if parts & {"$ROWTIME", "$PROCTIME"} else []
        group = [GroupItem("SET", (_no_place(key._node),)) for key in keys]
        group += [GroupItem("SET", (syntax.Reference((name,)),)) for name in columns]
        return self._selected(items, relations.FunctionTable(_window_call(plan, window, keys)), tuple(group))


def _rows(plan: Node) -> Relation:
    return DerivedTable(PlannedQuery(plan))


def _known(name: str, plan: Node) -> str:
    if name not in plan.schema.names:
        raise ValidationError(f"Cannot resolve field [{name}], input field list:[{', '.join(plan.schema.names)}].")
    return name


def _check_count(method: str, rows: int) -> None:
    if rows < 0:
        raise ValidationError(f"{method} takes a number of rows from 0 on, not {rows}")


def _no_place(node: syntax.Expression) -> syntax.Expression:
    """Type a number literal: a column's position in SQL's GROUP BY and ORDER BY, here the number itself."""
    number = constant(node) if isinstance(node, syntax.NumberLiteral) else None
    return node if number is None else syntax.TypedLiteral(number.value, number.type)


def _with_keys(items: Iterable[SelectItem], keys: Sequence[Operand]) -> list[SelectItem]:
    """Replace references to named keys in the select list by the keys' expressions."""
    named = {key._names[0]: key._node for key in keys if key._names}

    def change(node: syntax.Expression) -> Iterable[syntax.Expression] | None:
        is_key = isinstance(node, syntax.Reference) and node.path[0] in named
        return (named[node.path[0]],) if is_key and isinstance(node, syntax.Reference) else None

    return [SelectItem(rewritten(item.expression, change)[0], item.alias) for item in items]


def _of_window(node: syntax.Expression, window: GroupWindow, parts: set[str]) -> syntax.Expression:
    """Replace window properties in an expression by columns, and add them to `parts`."""

    def change(one: syntax.Expression) -> Iterable[syntax.Expression] | None:
        if not isinstance(one, syntax.Call) or one.name not in WINDOW_PARTS:
            return None
        if one.operands != (syntax.Reference((window.name,)),):
            raise ValidationError(f"{one.name[1:].lower()} belongs to the window {window.name!r} of the group")
        parts.add(one.name)
        return (syntax.Reference((WINDOW_PARTS[one.name],)),)

    return rewritten(node, change)[0]


def _window_call(plan: Node, window: GroupWindow, keys: Sequence[Operand]) -> syntax.Call:
    partition = tuple(key._node for key in keys) if window.function == "SESSION" else ()
    if not all(isinstance(expression, syntax.Reference) for expression in partition):
        raise UnsupportedError("session windows group by columns: add what else you group by with add_columns first")
    table = syntax.TableArgument(PlannedQuery(plan), partition)
    descriptor = syntax.DescriptorArgument((window.time.path,))
    return syntax.Call(window.function, (table, descriptor, *window.sizes), (window.function,))
