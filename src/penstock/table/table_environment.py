"""`TableEnvironment`: the entry point for creating tables, querying them and running SQL.

`ExecutorOfMode` selects the executor of a plan by `execution.runtime-mode`: Spark SQL for BATCH, streams for all other
modes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import tzinfo
from functools import cached_property
from typing import Any

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.errors import MissingPathError, UnsupportedError, WrongTypeError
from penstock.base.options import PYTHON_ARCHIVES, PYTHON_FILES, RUNTIME_MODE
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.drivers.global_configuration import default_configuration
from penstock.plan.stream_graph import Plan
from penstock.sql.catalogs.catalog import Catalog
from penstock.sql.catalogs.columns import ResolvedSchema
from penstock.sql.catalogs.manager import inline_view
from penstock.sql.connectors.built_in import built_in
from penstock.sql.data.errors import ValidationError, names_located
from penstock.sql.executor import ChangelogRow, CollectingJob, Executor, Job, PlanCompiler
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.parser import parse_path, parse_statement, statements
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableConfig, TableSession, parse_zone
from penstock.sql.statements.plans import plan_writes
from penstock.sql.statements.run import run
from penstock.sql.statements.show import plan_statement
from penstock.sql.stream.executor import StreamExecutor
from penstock.sql.tables.connector import Connectors
from penstock.table.compiled_plan import CompiledPlan, PlanReference
from penstock.table.environment_catalogs import CatalogMethods
from penstock.table.environment_settings import EnvironmentSettings
from penstock.table.explain_detail import ExplainDetail, detail_names
from penstock.table.frame_methods import FrameMethods
from penstock.table.model import ModelMethods
from penstock.table.python_rows import RowsSchema, rows_of_elements
from penstock.table.sinks import anonymous_table, write_into
from penstock.table.statement_set import StatementSet
from penstock.table.stream_methods import StreamMethods
from penstock.table.table import Table
from penstock.table.table_descriptor import TableDescriptor
from penstock.table.table_pipeline import TablePipeline


class ExecutorOfMode:
    """An `Executor` that delegates each plan to the executor of the mode then set in the options."""

    def __init__(self, connectors: Connectors) -> None:
        self._streams: Executor = StreamExecutor(connectors)
        self.connectors = self._connectors = connectors

    @cached_property
    def _batches(self) -> Executor:
        from penstock.sql.spark.executor import BatchExecutor  # imports PySpark

        return BatchExecutor(self._connectors)

    def _select_executor(self, options: Mapping[str, str]) -> Executor:
        return self._batches if options.get(RUNTIME_MODE.key(), "").upper() == "BATCH" else self._streams

    def write(
        self, plans: Sequence[Write], options: Mapping[str, str], session: Session, name: str | None = None
    ) -> Job:
        """Start one job that writes to all these tables."""
        return self._select_executor(options).write(plans, options, session, name)

    def check_overwrites(self, plan: Write) -> None:
        """Raise `UnsupportedError` unless a batch job may replace the contents of the table."""
        self._streams.check_overwrites(plan)

    def options_up_to_now(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options with which a table is read up to its present end, if its connector can do so."""
        return self._connectors.options_up_to_now(options)

    def collect(self, plan: Node, options: Mapping[str, str], session: Session) -> CollectingJob:
        """Start a job that sends the rows of a plan to the client."""
        return self._select_executor(options).collect(plan, options, session)

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> Any:
        """Return the rows of a plan as a Spark data frame."""
        return self._select_executor(options).frame(plan, options, session)

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return how the plans would run, for EXPLAIN."""
        return self._select_executor(options).explain(plans, options, session, details)

    def plan(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> Plan:
        """Return the job plan without running it."""
        return self._select_executor(options).plan(plans, options, session)

    def compiler(self) -> PlanCompiler:
        """Return the compiler of plans, which are for streams."""
        return self._streams.compiler()


__all__ = ["StreamTableEnvironment", "TableEnvironment"]


class TableEnvironment(CatalogMethods, ModelMethods, FrameMethods):
    """Named tables, queries over them, and SQL. Created by `create`.

    Args:
        environment_settings: execution mode, options, and the names of the initial catalog and database.
        executor: runs plans; without one, plans are only validated, planned and explained.
        root: options of the enclosing program; they apply where none is set here.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.from_elements([("tea", 2), ("rum", 1)], ["drink", "cups"])
        >>> t_env.create_temporary_view("orders", orders)
        >>> t_env.sql_query("SELECT drink FROM orders WHERE cups > 1").execute().print()
        +----+--------------------------------+
        | op |                          drink |
        +----+--------------------------------+
        | +I |                            tea |
        +----+--------------------------------+
        1 row in set
    """

    def __init__(
        self,
        environment_settings: EnvironmentSettings,
        executor: Executor | None = None,
        root: Configuration | None = None,
    ) -> None:
        settings = environment_settings
        self._config = TableConfig(Configuration(settings.get_configuration()), root)
        catalog = Catalog(settings.get_built_in_catalog_name(), settings.get_built_in_database_name())
        self._session = TableSession(self._config, catalog, executor)
        self._manager = self._session.manager

    @staticmethod
    def create(environment_settings: EnvironmentSettings | Configuration) -> TableEnvironment:
        """Create an environment; options that it does not set come from `config.yaml` and `penstock run`.

        Args:
            environment_settings: streaming or batch mode and options; a `Configuration` sets the mode by
                `execution.runtime-mode`.

        Examples:
            >>> settings = EnvironmentSettings.in_streaming_mode()
            >>> _ = settings.get_configuration().set_string("execution.target", "local")
            >>> t_env = TableEnvironment.create(settings)
            >>> list(t_env.from_elements([("tea", 2)], ["drink", "cups"]).execute().collect())
            [<Row('tea', 2)>]
        """
        return TableEnvironment(_settings(environment_settings), _runtime(), default_configuration())

    def get_config(self) -> TableConfig:
        """Return the options. A change applies to everything that is planned later.

        Examples:
            >>> t_env.get_config().set("parallelism.default", "2").get("parallelism.default")
            '2'
        """
        return self._config

    # --- SQL ---------------------------------------------------------------------------------------------------------

    def execute_sql(self, stmt: str) -> TableResult:
        """Run one SQL statement: a query, INSERT, EXPLAIN, or a statement that changes or shows metadata.

        Queries and INSERT start a job and return at once.

        Raises:
            SqlParserError: if it is not valid SQL, or more than one statement.
            ValidationError: if it cannot be planned, or refers to an object that does not exist.
            UnsupportedError: if Penstock does not support it.

        Examples:
            >>> t_env.execute_sql("SELECT drink, cups * 2 AS doubled FROM orders").print()
            +----+--------------------------------+----------------------+
            | op |                          drink |              doubled |
            +----+--------------------------------+----------------------+
            | +I |                            tea |                    4 |
            | +I |                            rum |                    2 |
            +----+--------------------------------+----------------------+
            2 rows in set
        """
        with names_located(stmt):
            return run(self._session, parse_statement(stmt))

    def sql_query(self, query: str) -> Table:
        """Return the table that a SQL query describes. Nothing runs yet.

        Raises:
            SqlParserError: if it is not valid SQL.
            ValidationError: if it is not a query, or cannot be planned.

        Examples:
            >>> many = t_env.sql_query("SELECT * FROM orders WHERE cups > 1")
            >>> list(many.execute().collect())
            [<Row('tea', 2)>]
        """
        statement = parse_statement(query)
        if not isinstance(statement, statements.QueryStatement):
            raise ValidationError(
                "Unsupported SQL query! sql_query() only accepts a single SQL query of type SELECT, UNION, INTERSECT, "
                "EXCEPT, VALUES, and ORDER_BY."
            )
        with names_located(query):
            return self._table(self._session.manager.analyser().result(statement.query))

    def explain_sql(self, stmt: str, *extra_details: ExplainDetail) -> str:
        """Return the plan of a query or an INSERT, as EXPLAIN shows it.

        Args:
            stmt: one statement in SQL.
            extra_details: further parts to show.

        Examples:
            >>> print(t_env.explain_sql("SELECT drink FROM orders"))
            == Abstract Syntax Tree ==
            Project(select=[drink])
              ArrowRows(2 rows, fields=[drink, cups])
            <BLANKLINE>
            == Streams ==
            Project(select=[drink], changelogMode=[I])
              ArrowRows(2 rows, fields=[drink, cups], changelogMode=[I])
        """
        with names_located(stmt):
            return self._session.explain(
                plan_statement(self._session, parse_statement(stmt)), detail_names(extra_details)
            )

    def compile_plan_sql(self, stmt: str) -> CompiledPlan:
        """Return the optimised plan of an INSERT or a STATEMENT SET, which can be kept and run later. Nothing runs.

        Raises:
            ValidationError: if it is another statement, or cannot be planned.
            UnsupportedError: in batch mode, and if tables or functions exist in this program alone.
        """
        with names_located(stmt):
            writes = plan_writes(self._session, parse_statement(stmt))
        return CompiledPlan(self._session.compile(writes), self._session)

    def load_plan(self, plan_reference: PlanReference) -> CompiledPlan:
        """Return a compiled plan.

        Raises:
            ValidationError: if it does not exist, is of a later release, or does not fit the tables.
        """
        return CompiledPlan(plan_reference.read(), self._session)

    def create_statement_set(self) -> StatementSet:
        """Create an empty set of INSERTs that run as one job.

        Examples:
            >>> _ = t_env.execute_sql("CREATE TABLE shown (drink STRING) WITH ('connector' = 'print')")
            >>> statements = t_env.create_statement_set()
            >>> statements.add_insert_sql("INSERT INTO shown SELECT drink FROM orders").execute().wait()
            +I[tea]
            +I[rum]
        """
        return StatementSet(self._session)

    # --- tables ------------------------------------------------------------------------------------------------------

    def from_path(self, path: str) -> Table:
        """Return a table or view by its path, such as `orders` or `` catalog.database.`my table` ``.

        Raises:
            ValidationError: if it does not exist.

        Examples:
            >>> t_env.from_path("orders").print_schema()
            (
              `drink` STRING,
              `cups` BIGINT
            )
        """
        names = parse_path(path)
        resolved = self._session.manager.scan(names, ())
        if resolved is None:
            raise ValidationError(f"Table {format_path(names)} was not found.")
        return self._table(resolved[0], self._declared_schema(names))

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """Return an unnamed table of a connector."""
        path = anonymous_table(self._session, descriptor)
        resolved = self._session.manager.scan(path, ())
        assert resolved is not None
        return self._table(resolved[0], self._declared_schema(path))

    def from_elements(self, elements: Iterable[Any], schema: RowsSchema = None, verify_schema: bool = True) -> Table:
        """Create a table from rows of the program: tuples, lists, dicts or `Row`.

        Args:
            elements: the rows; single values if the schema is one type.
            schema: a ROW; or column names, with types derived from the values (int is BIGINT, float DOUBLE, str STRING,
                Decimal DECIMAL(38, 18), datetime TIMESTAMP_LTZ(6), …); or one type, for a single column `value`; None
                for columns `_1`, `_2` and so on.
            verify_schema: whether each value must have the class that its type requires, and be in its range. Text and
                bytes must have exactly the length of CHAR(n) and BINARY(n), and at most that of VARCHAR(n) and
                VARBINARY(n).

        Raises:
            TypeError: for a value that does not fit its type.
            ValueError: if types cannot be derived, or a value is out of range, too long or too short.

        Examples:
            >>> from penstock.table import DataTypes
            >>> fields = [DataTypes.FIELD("id", DataTypes.INT()), DataTypes.FIELD("name", DataTypes.STRING())]
            >>> t_env.from_elements([(1, "tea")], DataTypes.ROW(fields)).print_schema()
            (
              `id` INT,
              `name` STRING
            )
        """
        zone = parse_zone(self._config.get_local_timezone())
        return self._table(rows_of_elements(elements, schema, verify_schema, zone))

    def create_temporary_view(self, view_path: str, table_or_data_stream: Any, *fields_or_schema: Any) -> None:
        """Name a table for the lifetime of the program, hiding any permanent table or view at the same path.

        For a stream, see `StreamTableEnvironment`.

        Raises:
            ValidationError: if a temporary table or view exists at this path.
            TypeError: if it is not a table.

        Examples:
            >>> t_env.create_temporary_view("many", t_env.sql_query("SELECT * FROM orders WHERE cups > 1"))
            >>> t_env.list_views()
            ['many', 'orders']
        """
        if not isinstance(table_or_data_stream, Table):
            raise WrongTypeError(
                f"create_temporary_view takes a table, not {table_or_data_stream!r}: for a stream, make the "
                "environment with StreamTableEnvironment.create(env)"
            )
        if fields_or_schema:
            raise WrongTypeError("fields and schemas are for streams: a table has its columns")
        view = inline_view(table_or_data_stream._plan)
        self._session.manager.create(parse_path(view_path), view, True)

    def create_view(self, view_path: str, table: Table, ignore_if_exists: bool = False) -> bool:
        """Create a view of a table in a catalog. Returns whether it is new.

        Raises:
            ValidationError: if it exists already, unless `ignore_if_exists` is set.
        """
        manager = self._session.manager
        names = parse_path(view_path)
        was_there = manager.find(names) is not None
        manager.create(names, inline_view(table._plan), False, ignore_if_exists)
        return not was_there

    # --- for tables --------------------------------------------------------------------------------------------------

    def _table(self, plan: Node, declared: ResolvedSchema | None = None) -> Table:
        return Table(plan, self, declared)

    def _declared_schema(self, path: tuple[str, ...]) -> ResolvedSchema | None:
        entry = self._session.manager.find(path)
        return None if entry is None or entry[1].is_view else self._session.manager.resolved(entry[1])

    def _collect(self, plan: Node) -> TableResult:
        """See `TableEnvironmentLike`."""
        return self._session.collect(plan)

    def _held_rows(self, plan: Node) -> AbstractContextManager[tuple[Iterator[ChangelogRow], tzinfo]]:
        """See `TableEnvironmentLike`."""
        return self._session.held_rows(plan)

    def _frame(self, plan: Node) -> Any:
        """See `TableEnvironmentLike`."""
        return self._session.frame(plan)

    def _write(self, plan: Node, path: tuple[str, ...], overwrite: bool) -> TablePipeline:
        """See `TableEnvironmentLike`."""
        return TablePipeline(write_into(self._session, path, plan, overwrite), self._session)

    def _explain(self, plans: Sequence[Node], details: Sequence[ExplainDetail] = ()) -> str:
        """See `TableEnvironmentLike`."""
        return self._session.explain(plans, detail_names(details))

    def _drawn(self, plans: Sequence[Node]) -> Plan:
        """See `TableEnvironmentLike`."""
        return self._session.plan(plans)

    def _sink_path(self, descriptor: TableDescriptor) -> tuple[str, ...]:
        """See `TableEnvironmentLike`."""
        return anonymous_table(self._session, descriptor)

    def _inline_name(self, plan: Node) -> str:
        """See `TableEnvironmentLike`: a temporary view, as in Flink."""
        return format_path(self._session.unnamed_view(plan))

    # --- what functions need -----------------------------------------------------------------------------------------

    def add_python_file(self, file_path: str) -> None:
        """Make a .py file, a .zip or .egg, or a directory of packages importable wherever functions run.

        Raises:
            MissingPathError: if it does not exist.
        """
        self._append(PYTHON_FILES, _existing(file_path))

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive (.zip, .tar.gz, .tgz, .jar) that is unpacked wherever functions run.

        Args:
            archive_path: the archive.
            target_dir: the directory name that functions see; by default the file's own name.

        Raises:
            MissingPathError: if it does not exist.
        """
        path = _existing(archive_path)
        self._append(PYTHON_ARCHIVES, path if target_dir is None else f"{path}#{target_dir}")

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Install packages on the workers; not available: raises NotImplementedError."""
        raise UnsupportedError(
            "workers do not install packages: install the requirements where Spark's workers run, or pack an "
            "environment and ship it with add_python_archive"
        )

    def _append(self, option: ConfigOption[Any], value: str) -> None:
        before = self._config.read(option)
        self._config.get_configuration().write(option, ",".join([*([before] if before else []), value]))


class StreamTableEnvironment(TableEnvironment, StreamMethods):
    """A table environment that also converts between tables and streams. Created by `create`.

    Examples:
        >>> from penstock.common import Types
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.table import StreamTableEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> t_env = StreamTableEnvironment.create(env)
        >>> numbers = t_env.from_data_stream(env.from_collection([1, 2], Types.INT())).alias("n")
        >>> doubled = t_env.sql_query(f"SELECT n * 2 AS doubled FROM {numbers}")
        >>> t_env.to_data_stream(doubled).collect()
        [Row(doubled=2), Row(doubled=4)]
    """

    @staticmethod
    def create(  # type: ignore[override]
        stream_execution_environment: StreamExecutionEnvironment | EnvironmentSettings | None = None,
        environment_settings: EnvironmentSettings | None = None,
    ) -> StreamTableEnvironment:
        """Create an environment on top of a stream environment, whose options it inherits, by default a new one."""
        streams: Any = stream_execution_environment
        settings = environment_settings
        if isinstance(streams, EnvironmentSettings):
            streams, settings = None, streams
        settings = settings or EnvironmentSettings.new_instance().build()
        if streams is None:
            streams = StreamExecutionEnvironment.get_execution_environment(settings.get_configuration())
        environment = StreamTableEnvironment(settings, _runtime(), streams.get_configuration())
        environment._streams = streams
        return environment

    def create_temporary_view(self, view_path: str, table_or_data_stream: Any, *fields_or_schema: Any) -> None:
        """Name a table or a stream for the lifetime of the program, hiding any permanent table or view at the same
        path.

        Args:
            view_path: the name.
            table_or_data_stream: a table, or a stream as for `from_data_stream`.
            fields_or_schema: for a stream, as for `from_data_stream`.

        Raises:
            ValidationError: if a temporary table or view exists at this path, or the fields do not fit the stream.
        """
        if isinstance(table_or_data_stream, DataStream):
            super().create_temporary_view(view_path, self.from_data_stream(table_or_data_stream, *fields_or_schema))
        else:
            super().create_temporary_view(view_path, table_or_data_stream, *fields_or_schema)

    def create_statement_set(self) -> StatementSet:
        """Create an empty set of INSERTs that run as one job or are attached to the stream program."""
        return StatementSet(self._session, self._attach)


def _runtime() -> Executor:
    return ExecutorOfMode(built_in())


def _settings(settings: EnvironmentSettings | Configuration) -> EnvironmentSettings:
    if isinstance(settings, EnvironmentSettings):
        return settings
    if isinstance(settings, Configuration):
        return EnvironmentSettings.new_instance().with_configuration(settings).build()
    raise WrongTypeError(f"argument should be EnvironmentSettings or Configuration, not {settings!r}")


def _existing(path: str) -> str:
    plain = path.removeprefix("file://")
    if not os.path.exists(plain):
        raise MissingPathError(f"{path!r} does not exist, so it cannot be shipped with the job")
    return os.path.abspath(plain)
