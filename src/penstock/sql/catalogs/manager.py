"""`CatalogManager`: a program's catalogs, the current one, and its temporary tables, views and models.

Temporary objects hide permanent ones.

An `InlineView` is a view that the Table API creates: it has a plan but no SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo

from penstock.base.errors import UnsupportedError, did_you_mean
from penstock.base.secrets import remember
from penstock.sql.analyzer.calls import Calls, FindFunction
from penstock.sql.analyzer.from_clause import options_of_hints
from penstock.sql.analyzer.queries import QueryAnalyser
from penstock.sql.analyzer.select import project
from penstock.sql.catalogs.catalog import Catalog, CatalogBaseTable, CatalogModel, ObjectPath
from penstock.sql.catalogs.columns import (
    ColumnKind,
    ResolvedSchema,
    Schema,
    UnresolvedColumn,
    list_metadata_columns,
    resolve,
    row_schema,
)
from penstock.sql.catalogs.ddl import with_null_times
from penstock.sql.data.errors import UnknownNameError, ValidationError, names_located
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import Model, Node, PlanColumn, RowSchema, Scan, WatermarkAssigner
from penstock.sql.models.provider import ModelProviders
from penstock.sql.parser import parse_statement, statements
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.unparse import format_path
from penstock.sql.typed import Typed
from penstock.sql.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineView(CatalogBaseTable):
    """A view of a plan."""

    plan: Node

    @property
    def is_view(self) -> bool:
        """Always true."""
        return True


def inline_view(plan: Node) -> InlineView:
    """Return a view of a plan."""
    return InlineView(schema=view_schema(plan), plan=plan)


def view_schema(plan: Node) -> Schema:
    """Return the columns of a plan as the schema of a view."""
    return Schema(tuple(UnresolvedColumn(column.name, column.type) for column in plan.schema))


Path = tuple[str, str, str]


class CatalogManager:
    """Finds tables by name. `session` is called for each query, because options change.

    `functions` finds user-defined functions by path.
    """

    def __init__(
        self,
        catalog: Catalog,
        session: Callable[[], Session] = Session,
        functions: FindFunction = lambda path, hidden: None,
    ) -> None:
        self._catalogs = {catalog.name: catalog}
        self._temporary: dict[Path, CatalogBaseTable] = {}
        self._temporary_models: dict[Path, CatalogModel] = {}
        self.model_providers = ModelProviders()
        self._session = session
        self._functions = functions
        #: changes the options of tables that are read
        self.options_to_read: Callable[[Mapping[str, str]], Mapping[str, str]] = dict
        self.current_catalog = catalog.name
        self.current_database = catalog.get_default_database()

    def share(self, other: CatalogManager) -> None:
        """Have the catalogs, temporary objects and models of another manager, and begin at its current database."""
        self._catalogs, self._temporary, self._temporary_models = (
            other._catalogs,
            other._temporary,
            other._temporary_models,
        )
        self.model_providers = other.model_providers
        self.current_catalog, self.current_database = other.current_catalog, other.current_database

    # --- where the program is ----------------------------------------------------------------------------------------

    def list_catalogs(self) -> list[str]:
        """Return the names of all catalogs."""
        return sorted(self._catalogs)

    def catalog(self, name: str) -> Catalog:
        """Return a catalog by name. Raises `ValidationError` if it does not exist."""
        if name not in self._catalogs:
            raise ValidationError(f"Catalog {name} does not exist")
        return self._catalogs[name]

    def register_catalog(self, name: str, catalog: Catalog) -> None:
        """Add a catalog."""
        if name in self._catalogs:
            raise ValidationError(f"Catalog {name} already exists.")
        self._catalogs[name] = catalog

    def replace_catalog(self, name: str, catalog: Catalog) -> None:
        """Put a catalog with other options in the place of an existing one."""
        before = self.catalog(name)
        self._catalogs[name] = catalog
        before.close()

    def unregister_catalog(self, name: str) -> None:
        """Remove a catalog that is not the current one."""
        self.catalog(name)
        if name == self.current_catalog:
            raise ValidationError("Cannot drop a catalog which is currently in use.")
        self._catalogs.pop(name).close()

    def use_catalog(self, name: str) -> None:
        """Make a catalog the current one, with its default database."""
        self.current_database = self.catalog(name).get_default_database()
        self.current_catalog = name

    def use_database(self, name: str) -> None:
        """Make a database of the current catalog the current one."""
        self.catalog(self.current_catalog).get_database(name)
        self.current_database = name

    def qualified(self, path: tuple[str, ...]) -> Path:
        """Return the full path of a name, which may omit the catalog and the database."""
        match path:
            case (name,):
                return self.current_catalog, self.current_database, name
            case (database, name):
                return self.current_catalog, database, name
            case (catalog, database, name):
                return catalog, database, name
            case _:
                raise ValidationError(f"a name has at most a catalog and a database before it: {'.'.join(path)}")

    # --- tables ------------------------------------------------------------------------------------------------------

    def find(self, path: tuple[str, ...]) -> tuple[Path, CatalogBaseTable] | None:
        """Return a table or view with its full path; temporary ones take precedence."""
        full_path = self.qualified(path)
        temporary = self._temporary.get(full_path)
        if temporary is not None:
            return full_path, temporary
        catalog = self._catalogs.get(full_path[0])
        at = ObjectPath(full_path[1], full_path[2])
        if catalog is None or not catalog.table_exists(at):
            return None
        return full_path, catalog.get_table(at)

    def temporary(self, path: tuple[str, ...]) -> CatalogBaseTable | None:
        """Return a temporary table or view."""
        return self._temporary.get(self.qualified(path))

    def list_temporary(self, views: bool | None = None) -> list[str]:
        """Return the names of temporary tables and views in the current database.

        `views`: only views, or only tables.
        """
        return sorted(
            name
            for (catalog, database, name), table in self._temporary.items()
            if (catalog, database) == (self.current_catalog, self.current_database)
            and (views is None or table.is_view is views)
            and not name.startswith("*anonymous_")
        )

    def create(
        self, path: tuple[str, ...], table: CatalogBaseTable, is_temporary: bool, if_not_exists: bool = False
    ) -> None:
        """Add a table or view."""
        full_path = self.qualified(path)
        if not is_temporary:
            self.catalog(full_path[0]).create_table(ObjectPath(full_path[1], full_path[2]), table, if_not_exists)
            return
        if full_path not in self._temporary:
            self._temporary[full_path] = table
        elif not if_not_exists:
            raise ValidationError(f"Temporary table '{'.'.join(full_path)}' already exists")

    def missing(self, reason: str, path: tuple[str, ...]) -> UnknownNameError:
        """Return the error for a missing table or view. `reason`: a whole sentence."""
        near = did_you_mean(path[-1], self.table_names())
        return UnknownNameError(f"{reason.removesuffix('.')}{near}" if near else reason, name=path[-1])

    def drop(self, path: tuple[str, ...], is_view: bool, is_temporary: bool, if_exists: bool) -> bool:
        """Remove a table or view. Returns whether it existed."""
        full_path = self.qualified(path)
        kind = "view" if is_view else "table"
        temporary = self._temporary.get(full_path)
        if is_temporary:
            if temporary is None or temporary.is_view is not is_view:
                if if_exists:
                    return False
                raise self.missing(f"Temporary {kind} with identifier '{'.'.join(full_path)}' does not exist.", path)
            del self._temporary[full_path]
            return True
        if temporary is not None and temporary.is_view is is_view:
            raise ValidationError(
                f"Temporary {kind} with identifier '{'.'.join(full_path)}' exists. Drop it first before removing the "
                f"permanent {kind}."
            )
        entry = self.find(path)
        if entry is None or entry[1].is_view is not is_view:
            if if_exists:
                return False
            raise self.missing(f"{kind.capitalize()} with identifier '{'.'.join(full_path)}' does not exist.", path)
        self.catalog(full_path[0]).drop_table(ObjectPath(full_path[1], full_path[2]))
        return True

    # --- models ------------------------------------------------------------------------------------------------------

    def find_model(self, path: tuple[str, ...]) -> tuple[Path, CatalogModel] | None:
        """Return a model with its full path; temporary ones take precedence."""
        full_path = self.qualified(path)
        temporary = self._temporary_models.get(full_path)
        if temporary is not None:
            return full_path, temporary
        catalog = self._catalogs.get(full_path[0])
        at = ObjectPath(full_path[1], full_path[2])
        if catalog is None or not catalog.model_exists(at):
            return None
        return full_path, catalog.get_model(at)

    def temporary_model(self, path: tuple[str, ...]) -> CatalogModel | None:
        """Return a temporary model."""
        return self._temporary_models.get(self.qualified(path))

    def list_temporary_models(self) -> list[str]:
        """Return the names of temporary models in the current database."""
        here = self.current_catalog, self.current_database
        names = [path[2] for path in self._temporary_models if path[:2] == here]
        return sorted(name for name in names if not name.startswith("*anonymous_"))

    def create_model(
        self, path: tuple[str, ...], model: CatalogModel, is_temporary: bool, if_not_exists: bool = False
    ) -> None:
        """Add a model."""
        full_path = self.qualified(path)
        for schema, side in ((model.input_schema, "input"), (model.output_schema, "output")):
            _check_model_columns(schema, side)
        remember(model.options)
        if not is_temporary:
            self.catalog(full_path[0]).create_model(ObjectPath(full_path[1], full_path[2]), model, if_not_exists)
        elif full_path not in self._temporary_models:
            self._temporary_models[full_path] = model
        elif not if_not_exists:
            raise ValidationError(f"Temporary model '{format_path(full_path)}' already exists")

    def drop_model(self, path: tuple[str, ...], is_temporary: bool, if_exists: bool) -> bool:
        """Remove a model. Returns whether it existed."""
        full_path = self.qualified(path)
        is_there = full_path in self._temporary_models if is_temporary else self._has_model(full_path)
        if not is_there:
            if if_exists:
                return False
            kind = "Temporary model" if is_temporary else "Model"
            reason = f"{kind} with identifier '{'.'.join(full_path)}' does not exist"
            raise UnknownNameError(f"{reason}{did_you_mean(path[-1], self.model_names())}", name=path[-1])
        if is_temporary:
            del self._temporary_models[full_path]
        else:
            self.catalog(full_path[0]).drop_model(ObjectPath(full_path[1], full_path[2]))
        return True

    def _has_model(self, full_path: Path) -> bool:
        catalog = self._catalogs.get(full_path[0])
        return catalog is not None and catalog.model_exists(ObjectPath(full_path[1], full_path[2]))

    def model(self, path: tuple[str, ...]) -> Model | None:
        """See `Tables`."""
        entry = self.find_model(path)
        return None if entry is None else self.planned_model(*entry)

    def planned_model(self, full_path: Path, model: CatalogModel) -> Model:
        """Return a model with its provider. Raises `ValidationError` for options that no provider takes."""
        calls = self.calls()
        inputs, outputs = (
            row_schema(resolve(schema, calls).columns) for schema in (model.input_schema, model.output_schema)
        )
        zone = calls.session.zone
        provider = self.model_providers.create(full_path, inputs, outputs, model.options, zone, model.source)
        return Model(full_path, inputs, outputs, (), provider)

    def model_names(self) -> list[str]:
        """See `Tables`. Lists the models of the current database."""
        stored = self.catalog(self.current_catalog).list_models(self.current_database)
        return sorted({*self.list_temporary_models(), *stored})

    # --- for the analyser --------------------------------------------------------------------------------------------

    def function(self, name: str, gives_rows: bool) -> UserFunction | None:
        """Return the user-defined function of a name; `gives_rows`: see `Calls.user_function`."""
        return self._functions((name,), gives_rows)

    def calls(self) -> Calls:
        """Return a builder of typed function calls with the session's current options."""
        return Calls(self._session(), self._functions)

    def analyser(self) -> QueryAnalyser:
        """Return an analyser for queries over these tables."""
        return QueryAnalyser(self, self.calls())

    def resolved(self, table: CatalogBaseTable) -> ResolvedSchema:
        """Return the resolved schema of a table."""
        return resolve(table.schema, self.calls())

    def scan(
        self, path: tuple[str, ...], hints: tuple[relations.Hint, ...], version: int | str | None = None
    ) -> tuple[Node, tuple[str, ...]] | None:
        """See `Tables`.

        A view expands to its query; a table is a scan of stored columns, with computed columns on top.
        """
        entry = self.find(path)
        if entry is None:
            return None
        full_path, table = entry
        given = options_of_hints(hints)
        if version is not None:
            if table.is_view or full_path in self._temporary:
                clause = "VERSION AS OF" if isinstance(version, str) else "FOR SYSTEM_TIME AS OF a constant"
                raise UnsupportedError(
                    f"{clause} reads an earlier version of a catalog's table, and '{'.'.join(full_path)}' is a view or "
                    "temporary: name the table itself"
                )
            catalog, at = self._catalogs[full_path[0]], ObjectPath(*full_path[1:])
            if isinstance(version, int):
                table = catalog.get_table_at(at, version)
            else:
                given = (*given, *catalog.find_version(at, version).items())
        if table.is_view:
            if given:
                raise ValidationError(
                    f"View '{'.'.join(full_path)}' cannot be enriched with new options: only tables take hints."
                )
            return self._view(full_path, table), full_path
        if given and not isinstance(version, int) and full_path not in self._temporary:
            table = self._catalogs[full_path[0]].with_hints(ObjectPath(*full_path[1:]), table, dict(given))
        options = self.options_to_read({**table.options_for_connector(), **dict(given)})
        schema = self.resolved(table)
        scan = _scan(full_path, schema, tuple(options.items()), table.partition_keys, self.calls().session.zone)
        return with_null_times(with_computed(scan, schema), scan, table.schema.primary_key, self), full_path

    def table_names(self) -> list[str]:
        """See `Tables`. Lists the tables and views of the current database."""
        catalog, database = self.current_catalog, self.current_database
        temporary = [path[2] for path in self._temporary if path[:2] == (catalog, database)]
        return sorted(
            {*temporary, *self.catalog(catalog).list_tables(database), *self.catalog(catalog).list_views(database)}
        )

    def view_schema(self, plan: Node, names: tuple[str, ...]) -> Schema:
        """Return the schema of a view of this plan. `names`: its column names, if the statement lists any."""
        if names and len(names) != len(plan.schema):
            raise ValidationError(
                "VIEW definition and input fields not match:\n"
                f"\tDef fields: [{', '.join(names)}].\n\tInput fields: [{', '.join(plan.schema.names)}]."
            )
        titles = names or plan.schema.names
        for name in titles:
            if list(titles).count(name) > 1:
                raise ValidationError(f"A column with the same name `{name}` has been defined in the view")
        pairs = zip(titles, plan.schema.types, strict=True)
        return Schema(tuple(UnresolvedColumn(name, data_type) for name, data_type in pairs))

    def _view(self, path: Path, view: CatalogBaseTable) -> Node:
        if isinstance(view, InlineView):
            return view.plan
        assert view.query is not None
        statement = parse_statement(view.query)
        assert isinstance(statement, statements.QueryStatement)
        before = self.current_catalog, self.current_database
        self.current_catalog, self.current_database = view.place or path[:2]
        try:
            with names_located(view.query):
                plan = self.analyser().query(statement.query)
        finally:
            self.current_catalog, self.current_database = before
        names = [column.name for column in view.schema.columns]
        return project(plan, plan.schema.fields(), names) if names and names != plan.schema.names else plan


def _check_model_columns(schema: Schema, side: str) -> None:
    names = [column.name for column in schema.columns]
    for column in schema.columns:
        if names.count(column.name) > 1:
            raise ValidationError(f"Duplicate {side} column name: '{column.name}'.")
        if column.data_type is None or column.is_metadata:
            raise ValidationError(f"Column `{column.name}` of a model's {side} can only be a physical column.")


def _scan(
    path: Path,
    schema: ResolvedSchema,
    options: tuple[tuple[str, str], ...],
    partition_keys: tuple[str, ...],
    zone: tzinfo,
) -> Scan:
    """Return the scan of a table's stored columns."""
    stored = [column for column in schema.columns if column.kind is not ColumnKind.COMPUTED]
    key = schema.primary_key.columns if schema.primary_key is not None else ()
    indexes = tuple(index for index, column in enumerate(stored) if column.name in key)
    return Scan(
        schema=row_schema(stored).without_time(),
        path=path,
        options=options,
        key=indexes,
        metadata=list_metadata_columns(stored),
        partition_keys=partition_keys,
        zone=zone,
    )


def with_computed(plan: Node, schema: ResolvedSchema) -> Node:
    """Return a plan with all columns of a table and its watermark, over a plan of its stored columns."""
    stored = [column for column in schema.columns if column.kind is not ColumnKind.COMPUTED]
    names = [column.name for column in schema.columns]
    if len(stored) < len(schema.columns):
        fields = {column.name: plan.schema.field(index) for index, column in enumerate(stored)}
        expressions: list[Typed] = [
            fields[column.name] if column.expression is None else column.expression for column in schema.columns
        ]
        plan = project(plan, expressions, names)
    for mark in schema.watermark_specs:
        index = names.index(mark.rowtime_attribute)
        columns = tuple(
            PlanColumn(column.name, plan.schema[position].type, column.time)
            for position, column in enumerate(schema.columns)
        )
        plan = WatermarkAssigner(schema=RowSchema(columns), input=plan, column=index, expression=mark.expression)
    return plan
