"""Nodes that pass on, compute, filter, combine, join or sort rows, and `SparkCatalog`.

**Joins.** Conditions that Spark evaluates alike stay in the join; parts of others become columns of their side.

`SparkCatalog` has Spark's databases, tables and views. The connector `spark` reads them in batch mode. Nothing is
cached: each call queries the session. Tables are created in Spark; here they can be renamed, dropped, commented and
given more columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from penstock.base.errors import UnsupportedError
from penstock.drivers.spark.frames import arrow_schema
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.sql.catalogs.catalog import Catalog, CatalogBaseTable, CatalogDatabase, CatalogFunction, ObjectPath
from penstock.sql.catalogs.columns import Schema, UnresolvedColumn
from penstock.sql.data.arrow import logical_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import BooleanType, DataType, quoted
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import JoinType, TimeAttribute
from penstock.sql.optimizer.pushdown import is_key
from penstock.sql.spark.chains import build_join_chain, find_hint, hint_comment, hint_text, projected
from penstock.sql.spark.kernels import Correlated, Predicted
from penstock.sql.spark.native import NATIVE, equality_of_keys, join_text, native_text
from penstock.sql.spark.planning import BatchPlanner, column, order_text, select, with_maps
from penstock.sql.spark.stored import group_text, has_maps, spark_type, text_literal
from penstock.sql.stream.models.predict import is_asynchronous, predict_settings
from penstock.sql.tables.vectors import as_correlate
from penstock.sql.typed import Field, FunctionCall, Typed, conjuncts, transformed


def project(planner: BatchPlanner, node: logical.Project) -> str:
    """Return expressions over the columns of the input."""
    query = projected(planner, node)
    if query is not None:
        return query
    source = planner.over(planner.query(node.input), node.input.schema, node.expressions)
    return select(source.texts, source.query)


def filtered(planner: BatchPlanner, node: logical.Filter) -> str:
    """Filter first by the conditions that Spark can evaluate, so that fewer rows go through a step."""
    chain = build_join_chain(planner, node)
    if chain is not None:
        return chain.query()
    query = planner.query(node.input)
    native: list[str] = []
    rest: list[Typed] = []
    for part in conjuncts(node.condition):
        text = native_text(part, column)
        if text is None:
            rest.append(part)
        else:
            native.append(text)
    columns = [column(index) for index in range(len(node.schema))]
    if native:
        query = select(columns, query, f" WHERE {' AND '.join(native)}")
    if not rest:
        return query
    condition = rest[0] if len(rest) == 1 else FunctionCall(BooleanType(), "AND", tuple(rest))
    source = planner.over(query, node.input.schema, [condition], range(len(node.schema)))
    return select(columns, source.query, f" WHERE {source.texts[0]}")


def correlate(planner: BatchPlanner, node: logical.Correlate) -> str:
    """Join each row with the rows that a table function makes of it."""
    before = node.input.schema
    # The plan below the node need not travel to Spark's tasks.
    alone = replace(node, input=logical.Values(schema=before, rows=()))
    work = Correlated(alone, planner.session)
    return f"SELECT * FROM {planner.step(planner.query(node.input), work, before.types, node.schema.types)}"


def ml_predict(planner: BatchPlanner, node: logical.MLPredictTableFunction) -> str:
    """Join each row with the rows that a model predicts for it."""
    provider, before = node.model.provider, node.input.schema
    is_async = is_asynchronous(provider, dict(node.model.settings), node.model.path)
    settings = predict_settings(planner.options, dict(node.model.settings))
    work = Predicted(provider, node.arguments, is_async, settings, planner.session)
    return f"SELECT * FROM {planner.step(planner.query(node.input), work, before.types, node.schema.types)}"


def vector_search(planner: BatchPlanner, node: logical.VectorSearchTableFunction) -> str:
    """Join each row with the rows of a table whose vectors are nearest."""
    assert planner.vectors is not None
    return correlate(planner, as_correlate(node, planner.vectors))


def set_operation(planner: BatchPlanner, node: logical.SetOperation) -> str:
    """Return UNION, INTERSECT or EXCEPT."""
    word = f" {node.operator} {'ALL' if node.is_all else 'DISTINCT'} "
    if node.operator == "UNION" and node.is_all:
        return word.join(f"({_as_types(planner, part, node.schema.types)})" for part in node.parts)
    types = node.schema.types
    keys = [group_text(column(index), kind) for index, kind in enumerate(types)]
    parts = [_as_types(planner, part, types) for part in node.parts]
    if any(map(has_maps, types)):
        parts = [select(keys, part) for part in parts]
    if node.operator == "EXCEPT" and not node.is_all:
        return with_maps(_except(parts, len(types)), types)
    return with_maps(word.join(f"({part})" for part in parts), types)


def _except(parts: Sequence[str], width: int) -> str:
    """Return EXCEPT as the join that Spark makes of it.

    Spark first tries to make a filter of an EXCEPT of one table, and fails if the condition reads a column that a step
    has computed and that the EXCEPT does not have.
    """
    columns = ", ".join(f"t0.{column(index)}" for index in range(width))
    joins = "".join(
        f" LEFT ANTI JOIN ({part}) t{number} ON "
        + " AND ".join(f"t0.{column(index)} <=> t{number}.{column(index)}" for index in range(width))
        for number, part in enumerate(parts[1:], 1)
    )
    return f"SELECT DISTINCT {columns} FROM ({parts[0]}) t0{joins}"


def _as_types(planner: BatchPlanner, node: logical.Node, types: Sequence[DataType]) -> str:
    """Cast the rows of a part of a set operation to the types of the whole."""
    pairs = [
        (spark_type(actual), spark_type(expected)) for actual, expected in zip(node.schema.types, types, strict=True)
    ]
    texts = [
        column(index) if actual == expected else f"CAST({column(index)} AS {expected})"
        for index, (actual, expected) in enumerate(pairs)
    ]
    return select(texts, planner.query(node))


def sort(planner: BatchPlanner, node: logical.Sort) -> str:
    """Sort or limit the rows."""
    rest = f" ORDER BY {order_text(node.keys)}" if node.keys else ""
    rest += "" if node.fetch is None else f" LIMIT {node.fetch}"
    rest += f" OFFSET {node.offset}" if node.offset else ""
    return f"SELECT * FROM ({planner.query(node.input)}){rest}"


def passed_on(planner: BatchPlanner, node: logical.WatermarkAssigner) -> str:
    """Return the input unchanged: a batch has all rows, and needs no watermark."""
    return planner.query(node.input)


_WORDS: Final = {
    JoinType.INNER: "JOIN",
    JoinType.LEFT: "LEFT JOIN",
    JoinType.RIGHT: "RIGHT JOIN",
    JoinType.FULL: "FULL JOIN",
    JoinType.SEMI: "LEFT SEMI JOIN",
    JoinType.ANTI: "LEFT ANTI JOIN",
}
_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


@dataclass
class _Sides:
    """The expressions that become additional columns of each side."""

    width: int
    left: list[Typed] = field(default_factory=list)
    right: list[Typed] = field(default_factory=list)

    def name(self, index: int) -> str:
        """Return the qualified name of a column of either side."""
        return f"l.{column(index)}" if index < self.width else f"r.{column(index - self.width)}"

    def text(self, expression: Typed) -> str | None:
        """Return a part of the condition; None if it reads both sides and Spark evaluates it differently."""
        native = join_text(expression, self.width, self.name)
        if native is not None:
            return native
        read = {node.index for node in expression.walk() if isinstance(node, Field)}
        if all(index < self.width for index in read):
            return f"l.k{_added(self.left, expression)}"
        if all(index >= self.width for index in read):
            return f"r.k{_added(self.right, _shifted(expression, self.width))}"
        if isinstance(expression, FunctionCall) and expression.function in _COMPARISONS:
            operands = [self.text(operand) for operand in expression.operands]
            texts = [text for text in operands if text is not None]
            if len(texts) == len(operands):
                if expression.function == "=" and is_key(expression, self.width):
                    return equality_of_keys(texts)
                return NATIVE[expression.function](expression, texts)
        return None


def _added(expressions: list[Typed], expression: Typed) -> int:
    expressions.append(expression)
    return len(expressions) - 1


def _shifted(expression: Typed, by: int) -> Typed:
    return transformed(
        expression, lambda node: replace(node, index=node.index - by) if isinstance(node, Field) else node
    )


def join(planner: BatchPlanner, node: logical.Join) -> str:
    """Plan a join of any type."""
    chain = build_join_chain(planner, node)
    if chain is not None:
        return chain.query()
    width = len(node.left.schema)
    sides = _Sides(width)
    native, rest = [], []
    for part in conjuncts(node.condition):
        text = sides.text(part)
        if text is None:
            rest.append(part)
        else:
            native.append(text)
    if rest and node.join_type is not JoinType.INNER:
        raise UnsupportedError(
            f"a {node.join_type.value} join whose condition compares both sides by functions that Spark does not have "
            f"is not supported in batch: {node_text(node)}. Compute what is compared in a column of each side before"
        )
    left, right = _side(planner, node.left, sides.left), _side(planner, node.right, sides.right)
    has_right = node.join_type not in (JoinType.SEMI, JoinType.ANTI)
    count = width + (len(node.right.schema) if has_right else 0)
    select_list = ", ".join(f"{sides.name(index)} AS {column(index)}" for index in range(count)) or "true AS c0"
    condition = " AND ".join(native) or "true"
    hint = find_hint(node)
    comment = hint_comment([] if hint is None else [hint_text(hint, "l", "r")])
    query = f"SELECT {comment}{select_list} FROM ({left}) l {_WORDS[node.join_type]} ({right}) r ON {condition}"
    return _filtered(planner, node, query, rest) if rest else query


def process(planner: BatchPlanner, node: logical.ProcessTableFunction) -> str:
    """Refuse a process table function: as in Flink, these run in streams."""
    raise UnsupportedError(
        f"process table functions run in streams, as in Flink, and not in batch: {node.function}. Run the query in "
        "STREAMING, where bounded tables end as well, or in MICRO_BATCH"
    )


def looked_up(planner: BatchPlanner, node: logical.TemporalJoin) -> str:
    """Plan a lookup join as a regular join: in batch, a table has the same rows for both."""
    if node.left.schema[node.time.index].time is not TimeAttribute.PROCTIME:
        raise UnsupportedError(
            "FOR SYSTEM_TIME AS OF an event time is not supported in batch, where a table has its last rows alone: "
            f"{node_text(node)}. Run the query in STREAMING or MICRO_BATCH, or keep the versions as rows with the time "
            "from which each holds, and join by conditions on it"
        )
    return join(
        planner,
        logical.Join(
            schema=node.schema, left=node.left, right=node.right, join_type=node.join_type, condition=node.condition
        ),
    )


def _side(planner: BatchPlanner, node: logical.Node, more: Sequence[Typed]) -> str:
    """Return the rows of one side, with additional columns k0, k1 and so on."""
    query = planner.query(node)
    if not more:
        return query
    columns = [column(index) for index in range(len(node.schema))]
    source = planner.over(query, node.schema, more, range(len(node.schema)))
    added = [f"{text} AS k{index}" for index, text in enumerate(source.texts)]
    return f"SELECT {', '.join([*columns, *added])} FROM ({source.query})"


def _filtered(planner: BatchPlanner, node: logical.Join, query: str, rest: Sequence[Typed]) -> str:
    """Keep the pairs for which the rest of the condition is true."""
    condition = rest[0] if len(rest) == 1 else FunctionCall(BooleanType(), "AND", tuple(rest))
    schema = node.left.schema.joined(node.right.schema)
    source = planner.over(query, schema, [condition], range(len(schema)))
    return select([column(index) for index in range(len(schema))], source.query, f" WHERE {source.texts[0]}")


#: the value of the option `type`
TYPE: Final = "spark"
_OPTIONS: Final = ("type", "catalog", "default-database")


class _Relation(NamedTuple):
    """A table or view. `is_temporary`: whether it is a view of the session, which has no database."""

    name: str
    is_temporary: bool


class SparkCatalog(Catalog):
    """See the module docstring.

    Args:
        name: the catalog's name.
        session: returns the Spark session.
        spark_name: the name of the catalog in Spark.
        default_database: None for the session's current one.
    """

    def __init__(
        self,
        name: str,
        session: Callable[[], Any],
        spark_name: str = "spark_catalog",
        default_database: str | None = None,
    ) -> None:
        super().__init__(name, default_database or "default")
        self._session = session
        self._spark_name = spark_name

    def _rows(self, statement: str) -> list[Any]:
        rows: list[Any] = self._session().sql(statement).collect()
        return rows

    def _where(self, *names: str) -> str:
        return ".".join(map(quoted, (self._spark_name, *names)))

    # --- databases ---------------------------------------------------------------------------------------------------

    def list_databases(self) -> list[str]:
        """See `Catalog`."""
        return sorted(row[0] for row in self._rows(f"SHOW DATABASES IN {self._where()}"))

    def database_exists(self, database_name: str) -> bool:
        """See `Catalog`."""
        return database_name in self.list_databases()

    def get_database(self, database_name: str) -> CatalogDatabase:
        """See `Catalog`."""
        self._check_database(database_name)
        rows = self._rows(f"DESCRIBE DATABASE EXTENDED {self._where(database_name)}")
        details = {row[0]: row[1] for row in rows}
        return CatalogDatabase({}, details.get("Comment") or None)

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool = False) -> None:
        """See `Catalog`."""
        if self.database_exists(name):
            if ignore_if_exists:
                return
            raise ValidationError(f"Database {name} already exists in Catalog {self.name}.")
        comment = f" COMMENT {text_literal(database.comment)}" if database.comment else ""
        self._rows(
            f"CREATE DATABASE {self._where(name)}{comment}{_properties(' WITH DBPROPERTIES', database.properties)}"
        )

    def drop_database(self, name: str, ignore_if_exists: bool = False, cascade: bool = False) -> None:
        """See `Catalog`."""
        if not self.database_exists(name):
            if ignore_if_exists:
                return
            raise ValidationError(f"Database {name} does not exist in Catalog {self.name}.")
        tables = [relation.name for relation in self._relations(name) if not relation.is_temporary]
        if tables and not cascade:
            raise ValidationError(f"Database {name} in Catalog {self.name} is not empty: it has {name}.{tables[0]}")
        self._rows(f"DROP DATABASE {self._where(name)}{' CASCADE' if cascade else ''}")

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if not self.database_exists(name) and ignore_if_not_exists:
            return
        self._check_database(name)
        self._rows(f"ALTER DATABASE {self._where(name)} SET DBPROPERTIES{_properties('', new_database.properties)}")

    def _check_database(self, name: str) -> None:
        if not self.database_exists(name):
            raise ValidationError(f"Database {name} does not exist in Catalog {self.name}.")

    # --- tables and views --------------------------------------------------------------------------------------------

    def _relations(self, database: str) -> list[_Relation]:
        rows = self._rows(f"SHOW TABLES IN {self._where(database)}")
        return [_Relation(row.tableName, bool(row.isTemporary)) for row in rows]

    def _find(self, path: ObjectPath) -> _Relation | None:
        if not self.database_exists(path.database_name):
            return None
        matches = [relation for relation in self._relations(path.database_name) if relation.name == path.object_name]
        return min(matches, key=lambda relation: relation.is_temporary, default=None)

    def _found(self, path: ObjectPath) -> _Relation:
        relation = self._find(path)
        if relation is None:
            raise ValidationError(f"Table (or view) {path} does not exist in Catalog {self.name}.")
        return relation

    def list_tables(self, database_name: str) -> list[str]:
        """See `Catalog`. Temporary views of the Spark session appear in all databases."""
        self._check_database(database_name)
        return sorted({relation.name for relation in self._relations(database_name)})

    def list_views(self, database_name: str) -> list[str]:
        """See `Catalog`."""
        self._check_database(database_name)
        return sorted({row.viewName for row in self._rows(f"SHOW VIEWS IN {self._where(database_name)}")})

    def table_exists(self, table_path: ObjectPath) -> bool:
        """See `Catalog`."""
        return self._find(table_path) is not None

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """Return a table or view as a table of the connector `spark`.

        Raises:
            UnsupportedError: if a column's type has no equivalent here.
        """
        relation = self._found(table_path)
        name = quoted(relation.name) if relation.is_temporary else self._where(table_path.database_name, relation.name)
        frame = self._session().table(name)
        comments = [field.metadata.get("comment") for field in frame.schema.fields]
        kinds = zip(arrow_schema(frame.schema), comments, strict=True)
        columns = tuple(
            UnresolvedColumn(field.name, logical_type(field.type), comment=comment) for field, comment in kinds
        )
        return CatalogBaseTable(Schema(columns), {"connector": "spark", "table": name})

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool = False) -> None:
        """Raise `UnsupportedError`, unless the table exists and `ignore_if_exists` is set: Spark creates tables."""
        if ignore_if_exists and self.table_exists(table_path):
            return
        raise UnsupportedError(
            f"table {table_path} cannot be made in catalog {self.name}, which is Spark's: make it in Spark, or here as "
            "a TEMPORARY one, or in a catalog of type 'file'"
        )

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if self._find(table_path) is None and ignore_if_not_exists:
            return
        kind, name = self._kind_and_name(table_path)
        self._rows(f"DROP {kind} {name}")

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if self._find(table_path) is None and ignore_if_not_exists:
            return
        kind, name = self._kind_and_name(table_path)
        if self.table_exists(ObjectPath(table_path.database_name, new_table_name)):
            raise ValidationError(
                f"Table (or view) {table_path.database_name}.{new_table_name} already exists in Catalog {self.name}."
            )
        target = f"{quoted(table_path.database_name)}.{quoted(new_table_name)}"
        self._rows(f"ALTER {kind} {name} RENAME TO {target}")

    def alter_table(
        self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool = False
    ) -> None:
        """Append columns to a table, or change its comment. Raises `UnsupportedError` for any other change."""
        if self._find(table_path) is None and ignore_if_not_exists:
            return
        before = self.get_table(table_path)
        kind, name = self._kind_and_name(table_path)
        width = len(before.schema.columns)
        columns = new_table.schema.columns
        more = columns[width:]
        is_same = columns[:width] == before.schema.columns and dict(new_table.options) == dict(before.options)
        if kind != "TABLE" or not is_same or any(column.data_type is None or column.is_metadata for column in more):
            raise UnsupportedError(
                f"table {table_path} of catalog {self.name} is Spark's: here it can get more columns behind its "
                "others, and a comment. Alter it in Spark"
            )
        if more:
            texts = ", ".join(map(_render_column, more))
            self._rows(f"ALTER TABLE {name} ADD COLUMNS ({texts})")
        if new_table.comment:
            self._rows(f"COMMENT ON TABLE {name} IS {text_literal(new_table.comment)}")

    def _kind_and_name(self, path: ObjectPath) -> tuple[str, str]:
        """Return TABLE or VIEW, and the name in Spark."""
        relation = self._found(path)
        if relation.is_temporary:
            return "VIEW", quoted(relation.name)
        name = self._where(path.database_name, relation.name)
        return ("VIEW" if relation.name in self.list_views(path.database_name) else "TABLE"), name

    # --- functions ---------------------------------------------------------------------------------------------------

    def create_function(
        self, function_path: ObjectPath, function: CatalogFunction, ignore_if_exists: bool = False
    ) -> None:
        """Raise `UnsupportedError`: Spark stores no Python functions."""
        raise UnsupportedError(
            f"function {function_path} cannot be made in catalog {self.name}, which is Spark's: make it TEMPORARY, or "
            "in a catalog of type 'file'"
        )

    def list_functions(self, database_name: str) -> list[str]:
        """Return an empty list: Spark's functions cannot run here."""
        self._check_database(database_name)
        return []


def _render_column(column: UnresolvedColumn) -> str:
    assert column.data_type is not None
    comment = f" COMMENT {text_literal(column.comment)}" if column.comment else ""
    return f"{quoted(column.name)} {spark_type(column.data_type)}{comment}"


def _properties(word: str, properties: Any) -> str:
    pairs: Iterable[tuple[str, str]] = sorted(properties.items())
    text = ", ".join(f"{text_literal(key)} = {text_literal(value)}" for key, value in pairs)
    return f"{word} ({text})" if text else ""


def spark_catalog(settings: Callable[[], Mapping[str, str]], name: str, options: dict[str, str]) -> SparkCatalog:
    """Create a catalog from the options of CREATE CATALOG, over the program's Spark session or a new one.

    `settings`: the program's settings; those under `spark.` are passed to a new session.

    Raises `ValidationError` for unsupported options.
    """
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise ValidationError(
            f"Unsupported options found for catalog '{name}': {', '.join(unknown)}. A catalog of type '{TYPE}' takes "
            "catalog and default-database."
        )

    def session() -> Any:
        handle = obtain_spark(settings(), 1)
        hand_back(handle, 1)
        return handle.session

    return SparkCatalog(name, session, options.get("catalog", "spark_catalog"), options.get("default-database"))
