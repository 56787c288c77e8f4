"""FROM: tables, views, queries, joins and table functions, the scopes that they create, and hints.

**Hints.** The known hints may appear only in certain places. A hint that nothing reads is rejected. The LOOKUP hint
defines how a lookup join queries a table. The STATE_TTL hint sets the lifetime of the state of joins and aggregates, by
the names of their inputs. It applies to the joins and the aggregate of its own SELECT, not to nested queries. Hints of
join strategies apply to the same joins, and have an effect in batch. See Flink's document "Hints".

**Relations that depend on rows.** UNNEST and table functions are joined with the calling rows. A LATERAL query is
evaluated for each row of the preceding tables, whose columns it may use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.base.copies import repeats_if_deep
from penstock.base.errors import UnsupportedError, WrongValueError, did_you_mean
from penstock.base.time import parse_duration
from penstock.sql.analyzer import subqueries
from penstock.sql.analyzer.calls import Calls, number
from penstock.sql.analyzer.changelog import CHANGELOG_FUNCTIONS, changelog_table
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.match_recognize import match_recognize
from penstock.sql.analyzer.models import MODEL_FUNCTIONS, VECTOR_SEARCH, is_vector_search, model_table, vector_search
from penstock.sql.analyzer.process_tables import process_table
from penstock.sql.analyzer.scopes import Part, Queries, RelationScope, VisibleColumn, build_scope, visible_columns
from penstock.sql.analyzer.select import project
from penstock.sql.analyzer.windows import WINDOW_FUNCTIONS, window_table
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.data.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
)
from penstock.sql.functions.type_rules import least_restrictive
from penstock.sql.logical import nodes
from penstock.sql.parser import syntax
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.syntax import Hint, NamedTable
from penstock.sql.typed import Constant, Field, Typed
from penstock.sql.user_functions.definition import TABLES, UserFunction
from penstock.sql.user_functions.signature import ProcessFunction

OPTIONS: Final = "OPTIONS"
#: hints that choose a join strategy in batch; in streams, where a join's state decides how it runs, they have no effect
_STRATEGIES: Final = frozenset({"BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP"})
_JOIN_HINTS: Final = _STRATEGIES | {"MULTI_JOIN"}
_QUERY_HINTS: Final = frozenset({"STATE_TTL", "LOOKUP"}) | _JOIN_HINTS


def check_query_hints(hints: Iterable[relations.Hint], source: relations.Relation | None) -> None:
    """Check hints after SELECT. `source`: its FROM. As in Flink, names count only if it has joins.

    Raises:
        ValidationError: for an unknown hint, for OPTIONS, and for a join hint without names, or with one that is not in
            FROM.
    """
    names, unknown = set(collect_relation_names(source)), []
    for hint in hints:
        _check_name(hint, _QUERY_HINTS, "after SELECT")
        if hint.name in _JOIN_HINTS:
            _check_arguments(hint)
            if missing := [name for name in hint.arguments if name not in names]:
                unknown.append(f"`{', '.join(missing)}` in `{hint.name}`")
    if unknown and isinstance(source, relations.Join | relations.AliasedJoin):
        raise ValidationError(
            "The options of following hints cannot match the name of input tables or views: \n" + "\n".join(unknown)
        )


def check_table_hints(hints: Iterable[relations.Hint], table: str) -> None:
    """Check hints after a table name. Raises `ValidationError` for all but OPTIONS and join hints."""
    for hint in hints:
        _check_name(hint, frozenset({OPTIONS}) | _JOIN_HINTS, f"after table '{table}'")
        if hint.name in _JOIN_HINTS:
            _check_arguments(hint)


def _check_arguments(hint: relations.Hint) -> None:
    if hint.options or not hint.arguments:
        raise ValidationError(
            f"Invalid hint: {hint.name}, expecting at least one table or view specified in hint {hint.name}."
        )


def _join_hints(
    hints: Iterable[relations.Hint], left: relations.Relation, right: relations.Relation
) -> tuple[nodes.JoinHint, ...]:
    """Return the join hints that name a side of a join. Within a hint, the first such name counts."""
    sides = {get_relation_name(right): False, get_relation_name(left): True}
    named = [(hint.name, [sides[name] for name in hint.arguments if name in sides]) for hint in hints]
    return tuple(nodes.JoinHint(name, is_left[0]) for name, is_left in named if is_left and name in _STRATEGIES)


def options_of_hints(hints: Iterable[relations.Hint]) -> tuple[tuple[str, str], ...]:
    """Return the table options of the hints `OPTIONS('key' = 'value')`."""
    return tuple(pair for hint in hints if hint.name == OPTIONS for pair in hint.options)


def _check_name(hint: relations.Hint, known: Collection[str], location: str) -> None:
    if hint.name in known:
        return
    if hint.name == OPTIONS:
        raise ValidationError(
            "Hint OPTIONS stands after the name of a table, not after SELECT: FROM t /*+ OPTIONS(…) */"
        )
    if hint.name in _QUERY_HINTS:
        raise ValidationError(f"Hint {hint.name} stands after SELECT, not {location}")
    raise ValidationError(f"There is no hint {hint.name}{did_you_mean(hint.name, sorted({OPTIONS, *_QUERY_HINTS}))}")


#: the options of the hint, by table name
LookupHints: TypeAlias = Mapping[str, tuple[tuple[str, str], ...]]

_RETRY: Final = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")


def _accept_words(*words: str) -> Callable[[str], bool]:
    return lambda text: text.lower() in words


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text).to_millis() > 0
    except ValueError:
        return False


def _is_whole(text: str) -> bool:
    return text.strip().isdecimal() and int(text) > 0


_OPTIONS: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "table": (bool, "the name or alias of a table"),
    "async": (_accept_words("true", "false"), "'true' or 'false'"),
    "output-mode": (_accept_words("ordered", "allow_unordered"), "'ordered' or 'allow_unordered'"),
    "capacity": (_is_whole, "a whole number above 0"),
    "timeout": (_is_duration, "a duration above 0"),
    "retry-predicate": (_accept_words("lookup_miss"), "'lookup_miss'"),
    "retry-strategy": (_accept_words("fixed_delay"), "'fixed_delay'"),
    "fixed-delay": (_is_duration, "a duration above 0"),
    "max-attempts": (_is_whole, "a whole number above 0"),
    "shuffle": (_accept_words("true", "false"), "'true' or 'false'"),
}


def lookup_hints(hints: Iterable[Hint]) -> LookupHints:
    """Return the LOOKUP hints of a query. The first of several hints for a table wins.

    Raises `ValidationError` for options that the hint does not have.
    """
    options_by_table: dict[str, tuple[tuple[str, str], ...]] = {}
    for hint in hints:
        if hint.name.upper() == "LOOKUP":
            options = dict(hint.options)
            _check(options)
            options_by_table.setdefault(options["table"], tuple(options.items()))
    return options_by_table


def _check(options: Mapping[str, str]) -> None:
    if "table" not in options:
        raise ValidationError("Invalid LOOKUP hint: incomplete required option(s): [Key: 'table']")
    for key, value in options.items():
        if key not in _OPTIONS:
            raise ValidationError(f"Invalid LOOKUP hint: unknown option '{key}'. There are {', '.join(_OPTIONS)}")
        is_good, expected = _OPTIONS[key]
        if not is_good(value):
            raise ValidationError(f"Invalid LOOKUP hint: option '{key}' has to be {expected}, not '{value}'")
    given = [key for key in _RETRY if key in options]
    if given and len(given) < len(_RETRY):
        missing = ", ".join(key for key in _RETRY if key not in options)
        raise ValidationError(f"Invalid LOOKUP hint: retry options can be all null or all not null; missing: {missing}")


def hinted_name(table: NamedTable) -> str:
    """Return the name by which hints refer to a table: its alias, if it has one."""
    return table.alias or table.path[-1]


STATE_TTL: Final = "STATE_TTL"


def collect_state_ttls(node: relations.Select) -> Mapping[str, int]:
    """Return the state lifetimes (ms) that the hints of a SELECT set, by relation name.

    Of several hints with a name, the first counts; within a hint, the last value of a name counts.

    Raises:
        ValidationError: for a name that is not in FROM, and for an invalid duration.
    """
    lifetimes: dict[str, int] = {}
    unknown = []
    names = set(collect_relation_names(node.source))
    for hint in node.hints:
        if hint.name.upper() != STATE_TTL:
            continue
        if hint.arguments or not hint.options:
            raise ValidationError(
                f"Invalid {STATE_TTL} hint, expecting pairs of name and time: {STATE_TTL}('t' = '1d')"
            )
        for name, text in dict(hint.options).items():
            if name not in names:
                unknown.append(name)
            lifetimes.setdefault(name, _milliseconds(name, text))
    if unknown:
        unknown_text = ", ".join(f"`{name}` in `{STATE_TTL}`" for name in unknown)
        raise ValidationError(
            f"The options of following hints cannot match the name of input tables or views: \n{unknown_text}"
        )
    return lifetimes


def get_relation_name(relation: relations.Relation | None) -> str | None:
    """Return the name of a relation in hints; None for joins and unnamed relations."""
    if relation is None or isinstance(relation, relations.Join):
        return None
    if relation.alias is None and isinstance(relation, relations.NamedTable):
        return relation.path[-1]
    return relation.alias


def collect_relation_names(relation: relations.Relation | None) -> Iterable[str]:
    """Yield the names by which hints refer to the relations of a FROM."""
    if isinstance(relation, relations.Join):
        yield from collect_relation_names(relation.left)
        yield from collect_relation_names(relation.right)
    elif isinstance(relation, relations.AliasedJoin):
        yield from collect_relation_names(relation.relation)
    name = get_relation_name(relation)
    if name is not None:
        yield name


def _milliseconds(name: str, text: str) -> int:
    try:
        milliseconds = parse_duration(text).to_millis()
    except WrongValueError as error:
        raise ValidationError(f"Invalid {STATE_TTL} hint: '{name}' = '{text}' is {error}") from error
    return int(milliseconds)


ORDINALITY = "WITH ORDINALITY"


def correlated(
    left: RelationScope, relation: relations.Relation, node: relations.Join | None, queries: Queries
) -> RelationScope:
    """Join each row of the left side with the rows that a function makes of it. `node`: the join, if any."""
    keeps, calls = node is not None and node.join_type == "LEFT", queries.calls
    analyser = ScalarAnalyser(left, calls)
    user: UserFunction | None = None
    search: nodes.VectorSearchTableFunction | None = None
    if isinstance(relation, relations.FunctionTable) and is_vector_search(relation.call):
        search = vector_search(relation.call, left, queries)
        name, columns = VECTOR_SEARCH, list(search.schema.columns[len(left.schema) :])
    elif isinstance(relation, relations.UnnestedTable):
        name, operands = "UNNEST", [analyser.typed(expression) for expression in relation.expressions]
        columns = _unnest_columns(operands, relation)
    else:
        assert isinstance(relation, relations.FunctionTable)
        user, operands = _called(relation.call, analyser)
        name = user.name
        assert isinstance(user.result_type, RowType)
        columns = [nodes.PlanColumn(field.name, field.data_type) for field in user.result_type.fields]
    schema = nodes.RowSchema(tuple(columns)).renamed(_names(columns, relation, name))
    _check_join(node, left, schema, name)
    joined = left.schema.joined(schema, right_nullable=keeps)
    plan: nodes.Correlate | nodes.VectorSearchTableFunction
    if search is not None:
        plan = replace(search, schema=joined, keeps=keeps)
    else:
        plan = nodes.Correlate(
            schema=joined,
            input=left.plan,
            function=name,
            operands=tuple(operands),
            keeps=keeps,
            options=(ORDINALITY,) if getattr(relation, "with_ordinality", False) else (),
            user=user,
        )
    part = Part(relation.alias, (), len(left.schema), nodes.RowSchema(plan.schema.columns[len(left.schema) :]))
    visible = [*left.visible, *visible_columns(plan.schema, len(left.schema))]
    scope = RelationScope([*left.parts, part], plan, visible, calls, left.outer)
    if node is not None and node.condition is not None:
        condition = calls.implicit(ScalarAnalyser(scope, calls).typed(node.condition), BooleanType())
        if not subqueries.is_true(condition):
            scope.plan = replace(plan, condition=condition)
    return scope


def _called(call: syntax.Expression, analyser: ScalarAnalyser) -> tuple[UserFunction, list[Typed]]:
    """Return a table function and its cast operands."""
    user = analyser.calls.user_function(call, gives_rows=True) if isinstance(call, syntax.Call) else None
    if user is None:
        name = call.name if isinstance(call, syntax.Call) else str(call)
        reason = f"No match found for function signature {name}: there is no table function of this name"
        raise UnknownNameError(reason, name=f"{name}(")
    if user.kind not in TABLES:
        raise ValidationError(f"{user} gives no rows: only a table function can be used here")
    assert isinstance(call, syntax.Call)
    operands = analyser.calls.user_operands(user, [analyser.typed(operand) for operand in call.operands])
    return user, operands


def _names(columns: Sequence[nodes.PlanColumn], relation: relations.Relation, name: str) -> Sequence[str]:
    """Return the names of the columns; a single column of UNNEST takes the alias of the table."""
    if not relation.columns:
        if relation.alias is not None and len(columns) == 1 and isinstance(relation, relations.UnnestedTable):
            return (relation.alias,)
        return [column.name for column in columns]
    if len(relation.columns) != len(columns):
        raise ValidationError(
            f"List of column aliases must have same degree as table; table {name} gives {len(columns)} columns "
            f"({', '.join(column.name for column in columns)}), whereas alias list has {len(relation.columns)} columns"
        )
    return relation.columns


def _check_join(node: relations.Join | None, left: RelationScope, schema: nodes.RowSchema, name: str) -> None:
    if node is None:
        return
    if node.join_type not in ("INNER", "CROSS", "LEFT"):
        raise ValidationError(
            f"{node.join_type} JOIN of {name} is not possible: it is called for rows of the left side, so the join is "
            "CROSS, INNER or LEFT"
        )
    shared = set(left.schema.names) & set(schema.names)
    if node.using or (node.is_natural and shared):
        raise UnsupportedError(f"NATURAL and USING with {name} are not supported: write the condition after ON")


def _unnest_columns(operands: Sequence[Typed], relation: relations.UnnestedTable) -> list[nodes.PlanColumn]:
    if len(operands) != 1:
        raise ValidationError("UNNEST takes one array, map or multiset")
    columns = _unnested(operands[0].type)
    if relation.with_ordinality:
        columns.append(nodes.PlanColumn("ORDINALITY", IntType(False)))
    return columns


def _unnested(collection: DataType) -> list[nodes.PlanColumn]:
    """Return the columns for the elements of an array or multiset, or for the entries of a map."""
    if isinstance(collection, MapType):
        return [nodes.PlanColumn("KEY", collection.key_type), nodes.PlanColumn("VALUE", collection.value_type)]
    if not isinstance(collection, ArrayType | MultisetType):
        raise ValidationError(f"UNNEST takes an array, a map or a multiset, not {collection}")
    element = collection.element_type
    if isinstance(element, RowType):
        # A NULL row has NULL in all columns.
        kinds = [kind.nullable() if element.is_nullable else kind for kind in element.field_types()]
        return [nodes.PlanColumn(name, kind) for name, kind in zip(element.field_names(), kinds, strict=True)]
    return [nodes.PlanColumn("EXPR$0", element)]


def lateral_query(
    left: RelationScope, relation: relations.DerivedTable, node: relations.Join, queries: Queries
) -> RelationScope:
    """Join each row of the left side with the rows of the query for it.

    Raises:
        ValidationError: for a RIGHT or FULL join.
        UnsupportedError: if the query cannot be decorrelated.
    """
    if node.join_type not in ("INNER", "CROSS", "LEFT"):
        raise ValidationError(f"{node.join_type} JOIN of LATERAL is not possible: the join is CROSS, INNER or LEFT")
    if node.using or node.is_natural:
        raise UnsupportedError("NATURAL and USING with LATERAL are not supported: write the condition after ON")
    calls, keeps, width = queries.calls, node.join_type == "LEFT", len(left.schema)
    query = queries.query(relation.query, left)
    names = relation.columns or query.schema.names
    if len(names) != len(query.schema):
        raise ValidationError(f"the list of names has {len(names)} columns, and the query {len(query.schema)}")
    # Do not rename by a projection: the query's own projection may use the left columns, and must be the last step.
    query = replace(query, schema=query.schema.renamed(names))
    plan = _joined(left.plan, query, keeps, subqueries.TRUE, calls)
    part = Part(relation.alias, (), width, nodes.RowSchema(plan.schema.columns[width:]))
    visible = [*left.visible, *visible_columns(plan.schema, width)]
    scope = RelationScope([*left.parts, part], plan, visible, calls, left.outer)
    if node.condition is not None:
        condition = calls.implicit(ScalarAnalyser(scope, calls).typed(node.condition), BooleanType())
        if condition != subqueries.TRUE and keeps:
            scope.plan = _joined(left.plan, query, keeps, condition, calls)
        elif condition != subqueries.TRUE:
            scope.plan = nodes.Filter(schema=plan.schema, input=plan, condition=condition)
    return scope


def _joined(left: nodes.Node, query: nodes.Node, keeps: bool, on: Typed, calls: Calls) -> nodes.Node:
    """Join `left` with the query. `keeps`: whether to keep rows without a match.

    `on`: an additional condition over the columns of both.
    """
    selected: tuple[Typed, ...] | None = None
    names = query.schema.names
    if isinstance(query, nodes.Project) and any(map(subqueries.uses_outer, query.expressions)):
        # Evaluate the selected expressions over the join, where the outer columns are available.
        selected, query = query.expressions, query.input
    inner = subqueries.uncorrelated(query, calls)
    width = len(left.schema)
    is_one = bool(inner.conditions) and subqueries.has_one_row(query)
    if is_one and not subqueries.is_true(on):
        raise UnsupportedError(
            "LEFT JOIN LATERAL of an aggregate without groups takes ON TRUE: put the condition into the query around it"
        )
    join_type = nodes.JoinType.LEFT if keeps or is_one else nodes.JoinType.INNER
    joined = nodes.Join(
        schema=left.schema.joined(inner.plan.schema, right_nullable=join_type is nodes.JoinType.LEFT),
        left=left,
        right=inner.plan,
        join_type=join_type,
        condition=subqueries.join_condition(inner, width, () if on == subqueries.TRUE else (on,), calls),
    )
    columns: list[Typed] = list(joined.schema.fields()[:width])
    if selected is None:
        columns += [_column(joined, query, index, is_one, calls) for index in range(len(query.schema))]
    elif join_type is nodes.JoinType.LEFT:
        raise UnsupportedError(
            "a LATERAL query that selects what it works out of columns of the table before it cannot be joined by LEFT "
            "JOIN, nor have an aggregate without groups"
        )
    else:
        columns += [subqueries.settled(expression, width) for expression in selected]
    return project(joined, columns, [*left.schema.names, *names])


def _column(joined: nodes.Join, query: nodes.Node, index: int, is_one: bool, calls: Calls) -> Typed:
    """Return a column of the query. An aggregate without groups has a row even without input, where COUNT is 0."""
    column = joined.schema.field(len(joined.left.schema) + index)
    if not is_one or query.schema[index].type.is_nullable:
        return column
    if not _is_count(query, index):
        raise UnsupportedError(
            f"column '{query.schema[index].name}' of a LATERAL query with an aggregate without groups must be the "
            "aggregate itself: work with its result in the query around it"
        )
    return calls.call("COALESCE", [column, calls.cast(number("0"), column.type)])


def _is_count(node: nodes.Node, index: int) -> bool:
    while isinstance(node, nodes.Project):
        column = node.expressions[index]
        if not isinstance(column, Field):
            return False
        node, index = node.input, column.index
    return isinstance(node, nodes.Aggregate) and node.calls[index - len(node.keys)].function == "COUNT"


NEEDS_TIME: Final = (
    "Temporal table join currently only supports 'FOR SYSTEM_TIME AS OF' left table's time attribute field"
)
_JOINS = {"CROSS": nodes.JoinType.INNER} | {join_type.value: join_type for join_type in nodes.JoinType}


class RelationAnalyser:
    """Plans relations for the query analyser."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.calls = queries.calls
        self._lifetimes: Mapping[str, int] = {}
        self._hints: Sequence[Hint] = ()
        self._lookups: LookupHints = {}
        self._looked_up: set[str] = set()

    @contextmanager
    def looking_up(self, hints: LookupHints) -> Iterator[None]:
        """Apply the LOOKUP hints of a query while its FROM is analysed.

        Raises `ValidationError` for a hint whose table is not in FROM.
        """
        before = self._lookups, self._looked_up
        self._lookups, self._looked_up = hints, set()
        try:
            yield
            for name in hints.keys() - self._looked_up:
                raise ValidationError(
                    "The options of following hints cannot match the name of input tables or views: "
                    f"`{name}` in `LOOKUP`"
                )
        finally:
            self._lookups, self._looked_up = before

    @contextmanager
    def hinted(self, hints: Sequence[Hint], lifetimes: Mapping[str, int]) -> Iterator[None]:
        """Apply the hints of a query to its joins, and the lifetimes (ms) of their state, by the names in FROM."""
        before = self._hints, self._lifetimes
        self._hints, self._lifetimes = hints, lifetimes
        try:
            yield
        finally:
            self._hints, self._lifetimes = before

    @repeats_if_deep
    def scope(self, relation: relations.Relation | None, outer: RelationScope | None) -> RelationScope:
        """Return the scope of a FROM. Without FROM, there is one row without columns."""
        if relation is None:
            return self.nothing(outer)
        _check_sample(relation)
        match relation:
            case relations.Join():
                return self._join(relation, outer)
            case relations.AliasedJoin(inner):
                return self.scope(inner, outer)
            case relations.NamedTable():
                version = self._find_time_ms(relation) if relation.version is None else relation.version
                plan, path = self.named(relation.path, relation.hints, relation.at, version)
                return self._called(plan, relation, path)
            case relations.DerivedTable(query):
                if relation.hints:
                    raise ValidationError("a query in FROM takes no hints: put them into it")
                return self._called(self.queries.query(query, outer if relation.is_lateral else None), relation)
            case relations.FunctionTable(call) if isinstance(call, syntax.Call) and call.name in WINDOW_FUNCTIONS:
                return self._called(window_table(call, self.queries), relation)
            case relations.FunctionTable(call) if isinstance(call, syntax.Call) and call.name in CHANGELOG_FUNCTIONS:
                return self._called(changelog_table(call, self.queries), relation)
            case relations.FunctionTable(call) if isinstance(call, syntax.Call) and call.name in MODEL_FUNCTIONS:
                return self._called(model_table(call, self.queries), relation)
            case relations.MatchRecognize(source):
                return self._called(match_recognize(relation, self.scope(source, outer), self.calls), relation)
            case relations.FunctionTable(call) if (process := find_process_function(call, self.calls)) is not None:
                assert isinstance(call, syntax.Call)
                return self._called(process_table(call, process, self.queries), relation)
            case relations.UnnestedTable() | relations.FunctionTable():
                return correlated(self.nothing(outer), relation, None, self.queries)
            case _:
                raise UnsupportedError(f"{type(relation).__name__} is not supported in FROM")

    def nothing(self, outer: RelationScope | None) -> RelationScope:
        """Return the scope of one row without columns."""
        plan = nodes.Values(schema=nodes.RowSchema(()), rows=((),))
        return RelationScope([], plan, [], self.calls, outer)

    def _follows_time(self, relation: relations.NamedTable) -> bool:
        """Return whether FOR SYSTEM_TIME AS OF follows the rows of a join, instead of being a constant."""
        if relation.as_of is None:
            return False
        try:
            return not isinstance(ScalarAnalyser(self.nothing(None), self.calls).typed(relation.as_of), Constant)
        except UnknownNameError:
            return True

    def _find_time_ms(self, relation: relations.NamedTable) -> int | None:
        """Return the time of FOR SYSTEM_TIME AS OF (ms since 1970), in the session's time zone; None without it."""
        if relation.as_of is None:
            return None
        title = ".".join(relation.path)
        try:
            moment = ScalarAnalyser(self.nothing(None), self.calls).typed(relation.as_of)
        except UnknownNameError as error:
            raise UnsupportedError(
                f"FOR SYSTEM_TIME AS OF a column is only supported in a join, after the time attribute of the table "
                f"before it; '{title}' by itself takes a constant, such as TIMESTAMP '2026-01-31 12:00:00'"
            ) from error
        if isinstance(moment.type, TimestampType | LocalZonedTimestampType):
            moment = self.calls.cast(moment, LocalZonedTimestampType(3))
            if isinstance(moment, Constant) and moment.value is not None:
                assert isinstance(moment.value, int)
                return moment.value // 1_000_000
        raise ValidationError(
            f"FOR SYSTEM_TIME AS OF of '{title}' needs a constant of type TIMESTAMP or TIMESTAMP_LTZ, such as "
            "TIMESTAMP '2026-01-31 12:00:00'"
        )

    def named(
        self, path: tuple[str, ...], hints: tuple[relations.Hint, ...], at: int, version: int | str | None = None
    ) -> tuple[nodes.Node, tuple[str, ...]]:
        """Return the plan and path of a table, view or WITH query. Raises `UnknownNameError` for an unknown name."""
        check_table_hints(hints, ".".join(path))
        if len(path) == 1 and version is None:
            for table in reversed(self.queries.common):
                if table.name == path[0]:
                    if hints:
                        raise ValidationError(f"'{path[0]}' is a query of WITH, which takes no hints: put them into it")
                    return table.plan, path
        scan = self.queries.tables.scan(path, hints, version)
        if scan is None:
            where = f" within '{'.'.join(path[:-1])}'" if len(path) > 1 else ""
            names = [*(table.name for table in self.queries.common), *self.queries.tables.table_names()]
            raise UnknownNameError(f"Object '{path[-1]}' not found{where}{did_you_mean(path[-1], names)}", at, path[-1])
        return scan

    def renamed(self, plan: nodes.Node, names: Sequence[str]) -> nodes.Node:
        """Rename the columns of a plan."""
        if len(names) != len(plan.schema):
            raise ValidationError(f"the list of names has {len(names)} columns, and the table {len(plan.schema)}")
        return project(plan, plan.schema.fields(), names)

    def _called(self, plan: nodes.Node, relation: relations.Relation, path: tuple[str, ...] = ()) -> RelationScope:
        if relation.columns:
            plan = self.renamed(plan, relation.columns)
        return build_scope(plan, self.calls, relation.alias, path)

    # --- joins -------------------------------------------------------------------------------------------------------

    def _join(self, node: relations.Join, outer: RelationScope | None) -> RelationScope:
        left = self.scope(node.left, outer)
        _check_sample(node.right)
        if node.join_type not in _JOINS:
            raise UnsupportedError(f"{node.join_type} JOIN is not supported")
        join_type = _JOINS[node.join_type]
        if isinstance(node.right, relations.NamedTable) and self._follows_time(node.right):
            return self._temporal(left, node, node.right, join_type)
        if isinstance(node.right, relations.UnnestedTable) or _is_lateral_function(node.right, self.calls):
            return correlated(left, node.right, node, self.queries)
        if isinstance(node.right, relations.DerivedTable) and node.right.is_lateral:
            return lateral_query(left, node.right, node, self.queries)
        right = self.scope(node.right, outer)
        # As in Flink, the LOOKUP hint may name the table of any join, and has no effect if the join is not a lookup
        # join.
        self._looked_up.add(get_relation_name(node.right) or "")
        joined = self._joined(left, right, join_type)
        joined.outer = outer
        conditions = self._merge(node, left, right, joined, join_type)
        if node.condition is not None:
            conditions.append(ScalarAnalyser(joined, self.calls).typed(node.condition))
        condition = self.calls.implicit(subqueries.conjoin(conditions, self.calls), BooleanType())
        schema = left.schema if join_type in (nodes.JoinType.SEMI, nodes.JoinType.ANTI) else joined.schema
        ttl = (
            self._lifetimes.get(get_relation_name(node.left) or ""),
            self._lifetimes.get(get_relation_name(node.right) or ""),
        )
        joined.plan = nodes.Join(
            schema=schema,
            left=left.plan,
            right=right.plan,
            join_type=join_type,
            condition=condition,
            state_ttl_ms=ttl,
            hints=_join_hints(self._hints, node.left, node.right),
        )
        if join_type in (nodes.JoinType.SEMI, nodes.JoinType.ANTI):
            joined.parts = left.parts
        return joined

    def _joined(self, left: RelationScope, right: RelationScope, join_type: nodes.JoinType) -> RelationScope:
        """Combine the columns of both sides; the plan follows when the condition is known."""
        width = len(left.schema)
        schema = left.schema.joined(right.schema, join_type.keeps_right, join_type.keeps_left)
        parts = [*left.parts, *(replace(part, offset=part.offset + width) for part in right.parts)]
        plan = nodes.Join(
            schema=schema, left=left.plan, right=right.plan, join_type=join_type, condition=subqueries.TRUE
        )
        visible = [*left.visible, *(column.moved(width) for column in right.visible)]
        return RelationScope(parts, plan, visible, self.calls, left.outer)

    def _merge(
        self,
        node: relations.Join,
        left: RelationScope,
        right: RelationScope,
        joined: RelationScope,
        join_type: nodes.JoinType,
    ) -> list[Typed]:
        """Return the conditions on the columns of USING. Each becomes one merged column, and these come first."""
        width, conditions, merged = len(left.schema), [], []
        names = list(node.using)
        if node.is_natural:
            shared = {column.name for column in right.visible}
            names = [column.name for column in left.visible if column.name in shared]
        for name in dict.fromkeys(names):
            # If the left side has several such columns, Flink takes the first.
            left_column, right_column = left.first_column(name), right.column(name)
            if left_column is None or right_column is None:
                side = "left" if left_column is None else "right"
                visible = (left if left_column is None else right).visible
                near = did_you_mean(name, (column.name for column in visible))
                reason = f"Column '{name}' of USING not found on the {side} side of the join{near}"
                raise UnknownNameError(reason, name=name)
            values = left_column.star_value(left.schema, self.calls), right_column.star_value(right.schema, self.calls)
            conditions.append(self.calls.call("=", [values[0], subqueries.shifted(values[1], width)]))
            merged.append(self._merged(left_column, right_column.moved(width), joined.schema, join_type))
            joined.visible.remove(left_column)
            joined.visible.remove(right_column.moved(width))
            joined.visible = [replace(it, is_shadowed=it.is_shadowed or it.name == name) for it in joined.visible]
        joined.visible[:0] = merged
        return conditions

    def _merged(
        self, left: VisibleColumn, right: VisibleColumn, schema: nodes.RowSchema, join_type: nodes.JoinType
    ) -> VisibleColumn:
        """Merge two columns: COALESCE of both, or the one that always has the value."""
        mine, its = left.value(schema, self.calls), right.value(schema, self.calls)
        if mine.type.nullable() != its.type.nullable():
            merged_type = self.calls.call("COALESCE", [mine, its]).type
            star_types = [column.star_value(schema, self.calls).type for column in (left, right)]
            star_type = least_restrictive(star_types) or merged_type
            if join_type in (nodes.JoinType.RIGHT, nodes.JoinType.FULL):
                return VisibleColumn(left.name, (*left.places, *right.places), merged_type, star_type)
            return replace(left, merged_type=merged_type, star_type=star_type)
        if join_type is nodes.JoinType.FULL:
            return replace(left, places=(*left.places, *right.places))
        is_known = not its.type.is_nullable and mine.type.is_nullable
        return right if join_type is nodes.JoinType.RIGHT or (join_type is nodes.JoinType.INNER and is_known) else left

    def _temporal(
        self, left: RelationScope, node: relations.Join, table: relations.NamedTable, join_type: nodes.JoinType
    ) -> RelationScope:
        """Plan a join with FOR SYSTEM_TIME AS OF a time attribute of the left side."""
        plan, path = self.named(table.path, table.hints, table.at)
        right = self._called(plan, table, path)
        assert table.as_of is not None
        time = ScalarAnalyser(left, self.calls).typed(table.as_of)
        if not isinstance(time, Field) or left.schema[time.index].time is None:
            raise ValidationError(NEEDS_TIME)
        if join_type not in (nodes.JoinType.INNER, nodes.JoinType.LEFT):
            raise ValidationError(
                f"Temporal table join currently only support INNER JOIN and LEFT JOIN, but was {join_type.value} JOIN."
            )
        joined = self._joined(left, right, join_type)
        conditions = self._merge(node, left, right, joined, join_type)
        if node.condition is not None:
            conditions.append(ScalarAnalyser(joined, self.calls).typed(node.condition))
        joined.plan = nodes.TemporalJoin(
            schema=joined.schema,
            left=left.plan,
            right=right.plan,
            join_type=join_type,
            condition=subqueries.conjoin(conditions, self.calls),
            time=time,
            lookup=self._lookups.get(hinted_name(table), ()),
        )
        self._looked_up.add(hinted_name(table))
        return joined


def _check_sample(relation: relations.Relation) -> None:
    if relation.sample is not None:
        raise UnsupportedError(f"TABLESAMPLE {relation.sample} is not supported: filter rows by WHERE, as with RAND()")


#: the built-in functions that take whole tables
TABLE_FUNCTIONS: Final = frozenset({*WINDOW_FUNCTIONS, *CHANGELOG_FUNCTIONS, *MODEL_FUNCTIONS})


def _is_lateral_function(relation: relations.Relation, calls: Calls) -> bool:
    if not isinstance(relation, relations.FunctionTable):
        return False
    call = relation.call
    if isinstance(call, syntax.Call) and call.name in TABLE_FUNCTIONS:
        return False
    return find_process_function(call, calls) is None


def find_process_function(call: syntax.Expression, calls: Calls) -> ProcessFunction | None:
    """Return the process table function that is called, or None."""
    user = calls.user_function(call, gives_rows=True) if isinstance(call, syntax.Call) else None
    return user if isinstance(user, ProcessFunction) else None
