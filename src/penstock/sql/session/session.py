"""`TableSession`, the state that the statements of a table environment share, its options, and its functions.

The state consists of catalogs, options (`TableConfig`), modules, functions and the executor. `parse_zone` parses the
session's time zone, the option `table.local-time-zone`. `UserFunctions` are temporary catalog functions, and system
functions, which all databases see.
"""

from __future__ import annotations

import datetime
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import tzinfo
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, TypeVar

from penstock.base.config_options import BOOLEAN, DURATION_MS, INTEGER, STRING, ConfigOption, choice
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError, WrongTypeError
from penstock.base.options import PYTHON_EXECUTABLE, RUNTIME_MODE
from penstock.base.time import Duration
from penstock.plan.stream_graph import Plan
from penstock.sql.catalogs.catalog import Catalog, CatalogDescriptor, CatalogFactory, CatalogFunction, ObjectPath
from penstock.sql.catalogs.columns import ResolvedSchema
from penstock.sql.catalogs.manager import CatalogManager, inline_view
from penstock.sql.data.datetimes import zone_by_id
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import LENGTH_MAX, BigIntType, DataType, VarCharType
from penstock.sql.executor import ChangelogRow, Executor, Job, PlanCompiler
from penstock.sql.functions.definition import Session
from penstock.sql.functions.registry import is_built_in
from penstock.sql.logical.explain import plan_text
from penstock.sql.logical.nodes import Model, Node, PlanColumn, RowSchema, Write
from penstock.sql.logical.properties import allow_plans
from penstock.sql.logical.stored_plans import CatalogObjects, CompiledQueries, StoredTable
from penstock.sql.session.result import RawContent, ResultKind, Tableau, TableResult
from penstock.sql.user_functions.declare import define, load
from penstock.sql.user_functions.definition import UserFunction


def parse_zone(name: str) -> tzinfo:
    """Return the zone named, for example, `America/New_York`, `UTC` or `GMT-03:00`. Raises `ConfigurationError`."""
    zone = zone_by_id(name)
    if zone is None:
        raise ConfigurationError(
            f"table.local-time-zone: there is no time zone {name!r}. The supported zones are either full names such as "
            "'America/Los_Angeles', or custom ones such as 'GMT-08:00'."
        )
    return zone


def system_zone() -> str:
    """Return the name of this machine's zone; `UTC` if it has none."""
    return os.environ.get("TZ", "").removeprefix(":") or _linked_zone()


@cache
def _linked_zone() -> str:
    """Return the zone configured on this machine.

    It is read once, as the C library does, because every query needs it.
    """
    linked = Path("/etc/localtime")
    _, mark, name = str(linked.resolve()).partition("zoneinfo/") if linked.is_symlink() else ("", "", "")
    return name if mark else "UTC"


T = TypeVar("T")

LOCAL_TIME_ZONE: Final = ConfigOption("table.local-time-zone", STRING, "default")
STATE_TTL_MS: Final = ConfigOption("table.exec.state.ttl", DURATION_MS, 0)
LEGACY_CAST: Final = ConfigOption("table.exec.legacy-cast-behaviour", choice("ENABLED", "DISABLED"), "DISABLED")
DML_SYNC: Final = ConfigOption("table.dml-sync", BOOLEAN, False)
COMPILED_OBJECTS: Final = ConfigOption(
    "table.plan.compile.catalog-objects", choice("ALL", "SCHEMA", "IDENTIFIER"), "ALL"
)
RESTORED_OBJECTS: Final = ConfigOption(
    "table.plan.restore.catalog-objects", choice("ALL", "ALL_ENFORCED", "IDENTIFIER"), "ALL"
)
RECOMPILES: Final = ConfigOption("table.plan.force-recompile", BOOLEAN, False)
MAX_COLUMN_WIDTH: Final = ConfigOption("table.display.max-column-width", INTEGER, 30)
BUILT_IN_CATALOG: Final = ConfigOption("table.builtin-catalog-name", STRING, "default_catalog")
BUILT_IN_DATABASE: Final = ConfigOption("table.builtin-database-name", STRING, "default_database")


class TableConfig:
    """Options by Flink's keys. Unknown options are kept.

    Args:
        configuration: stores the options; None for a new one.
        root: the fallback for unset options, such as the configuration of a `StreamExecutionEnvironment`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> config = TableEnvironment.create(EnvironmentSettings.in_streaming_mode()).get_config()
        >>> config.set_local_timezone("America/New_York")
        >>> config.set("parallelism.default", 2).get("parallelism.default"), config.get_local_timezone()
        ('2', 'America/New_York')
    """

    def __init__(self, configuration: Configuration | None = None, root: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration
        self._root = Configuration() if root is None else root

    @staticmethod
    def get_default() -> TableConfig:
        """Return empty options."""
        return TableConfig()

    def get(self, key: str, default_value: str | None = None) -> str | None:
        """Return an option as a string, or `default_value` if it is not set."""
        return self.to_map().get(key, default_value)

    def set(self, key: str, value: Any) -> TableConfig:
        """Set an option. Returns `self`.

        Raises:
            TypeError: if the key is not a string or the value is None.
        """
        if not isinstance(key, str):
            raise WrongTypeError(f"the key of an option must be text, not {key!r}")
        if value is None:
            raise WrongTypeError(f"the value of option {key} cannot be None")
        self._configuration.add_all(Configuration.from_dict({key: value}))
        return self

    def reset(self, key: str) -> None:
        """Reset an option to its default."""
        self._configuration.remove_config(key)

    def read(self, option: ConfigOption[T]) -> T:
        """Return the value of an option. Raises `ConfigurationError` if it cannot be parsed."""
        known = self._configuration.contains_key(option.key())
        return (self._configuration if known else self._root).read(option)

    def copy(self) -> TableConfig:
        """Return a copy, which changes on its own."""
        return TableConfig(Configuration.from_dict(self._configuration.to_dict()), self._root)

    def get_configuration(self) -> Configuration:
        """Return the options set here. The result is not a copy: changes to it change these options."""
        return self._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        """Set all options of a configuration."""
        self._configuration.add_all(configuration)

    def to_map(self) -> dict[str, str]:
        """Return all options as strings."""
        return {**self._root.to_dict(), **self._configuration.to_dict()}

    # --- options with methods ----------------------------------------------------------------------------------------

    def is_streaming(self) -> bool:
        """Return whether queries run in streaming mode, so that their results are changelogs."""
        return self.read(RUNTIME_MODE) != "BATCH"

    def get_local_timezone(self) -> str:
        """Return the time zone for TIMESTAMP_LTZ, by default this machine's."""
        name = self.read(LOCAL_TIME_ZONE)
        return system_zone() if name == "default" else name

    def set_local_timezone(self, timezone_id: str) -> None:
        """Set the time zone: a name such as `America/New_York`, or `GMT-03:00`.

        Raises:
            ConfigurationError: if the zone does not exist.
        """
        parse_zone(timezone_id)
        self.set(LOCAL_TIME_ZONE.key(), timezone_id)

    def get_idle_state_retention(self) -> datetime.timedelta:
        """Return how long idle state is kept; zero, the default, means forever."""
        return datetime.timedelta(milliseconds=self.read(STATE_TTL_MS))

    def set_idle_state_retention(self, duration: datetime.timedelta | Duration) -> None:
        """Set the minimum time that idle state is kept; zero means forever.

        Raises:
            TypeError: if it is not a duration.
        """
        if not isinstance(duration, datetime.timedelta | Duration):
            raise WrongTypeError(f"the idle state retention must be a datetime.timedelta, not {duration!r}")
        self._configuration.write(STATE_TTL_MS, duration)

    def get_python_executable(self) -> str:
        """Return the Python interpreter that runs functions."""
        return self.read(PYTHON_EXECUTABLE) or "python"

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python interpreter that runs functions, by path or name."""
        self._configuration.write(PYTHON_EXECUTABLE, python_exec)


#: the module with Flink's functions, and other ones that LOAD MODULE knows: the import paths of their functions
CORE: Final = "core"
MODULES: Final[dict[str, dict[str, str]]] = {
    "state": {"savepoint_metadata": "penstock.sql.connectors.savepoint.SAVEPOINT_METADATA"}
}


class Modules:
    """The modules of a session: `loaded`, and of these `used`, in the order of resolution."""

    def __init__(self) -> None:
        self.loaded = [CORE]
        self.used = [CORE]

    def load(self, name: str) -> None:
        """Load a module, and use it after the others.

        Raises:
            ValidationError: if it is loaded.
            UnsupportedError: if it is unknown.
        """
        if name in self.loaded:
            raise ValidationError(f"A module with name '{name}' already exists")
        if name not in MODULES:
            known = ", ".join(sorted(MODULES))
            raise UnsupportedError(f"there is no module '{name}': Penstock has the functions of '{CORE}', and {known}")
        self.loaded.append(name)
        self.used.append(name)

    def unload(self, name: str) -> None:
        """Remove a module. Raises `ValidationError` if it is not loaded."""
        if name not in self.loaded:
            raise ValidationError(f"No module with name '{name}' exists")
        if name == CORE:
            raise UnsupportedError(f"the module '{CORE}' has all functions and cannot be unloaded")
        self.loaded.remove(name)
        self.used = [used for used in self.used if used != name]

    def use(self, names: Sequence[str]) -> None:
        """Use these modules alone. Raises `ValidationError` for one that is not loaded, or is named twice."""
        for name in names:
            if name not in self.loaded:
                raise ValidationError(f"No module with name '{name}' exists")
            if names.count(name) > 1:
                raise ValidationError(f"Module '{name}' appears more than once")
        if CORE not in names:
            raise UnsupportedError(f"the module '{CORE}' has the functions that queries consist of: name it, too")
        self.used = list(names)

    def function_names(self) -> list[str]:
        """Return the names of the functions of used modules besides `core`."""
        return [function for name in self.used for function in MODULES.get(name, ())]

    def find(self, function: str) -> CatalogFunction | None:
        """Return a function of a used module."""
        targets = [MODULES[name][function] for name in self.used if function in MODULES.get(name, ())]
        return CatalogFunction(targets[0], "PYTHON") if targets else None


FunctionPath = tuple[str, str, str]


class UserFunctions:
    """The functions registered in a session. Names are case-insensitive."""

    def __init__(self) -> None:
        self._system: dict[str, Any] = {}
        self._temporary: dict[FunctionPath, Any] = {}
        #: by name and id of the registered object, which is kept alive because Python reuses ids
        self._defined: dict[tuple[str, int], tuple[Any, UserFunction]] = {}
        self._loaded: dict[tuple[str, str], UserFunction] = {}

    def system_names(self) -> list[str]:
        """Return the names of temporary system functions."""
        return sorted(self._system)

    def temporary_names(self, catalog: str, database: str) -> list[str]:
        """Return the names of a database's temporary functions."""
        return sorted(path[2] for path in self._temporary if path[:2] == (catalog, database))

    def find(self, path: FunctionPath) -> Any | None:
        """Return the function with this name, or None. A system function hides a database's function."""
        return self._system.get(path[2].lower(), self._temporary.get(_key(path)))

    def find_system(self, name: str) -> Any | None:
        """Return the temporary system function with this name, or None."""
        return self._system.get(name.lower())

    def find_temporary(self, path: FunctionPath) -> Any | None:
        """Return the temporary function at this path, or None."""
        return self._temporary.get(_key(path))

    def defined(self, registered: Any, name: str) -> UserFunction:
        """Return a registered object as the function that queries call. The same object always gives the same function.

        Raises:
            UnsupportedError: if the function is not written in Python.
            ValidationError: if its module does not exist or does not define it.
            TypeError: if the object is not a function.
        """
        if isinstance(registered, CatalogFunction):
            if registered.language.upper() != "PYTHON":
                raise UnsupportedError(
                    f"function {name} is written in {registered.language.upper()}, which Penstock does not run: write "
                    f"it in Python, and create it AS 'module.name' LANGUAGE PYTHON"
                )
            key = (registered.target, name)
            if key not in self._loaded:
                self._loaded[key] = load(registered.target, name)
            return self._loaded[key]
        known = self._defined.get((name, id(registered)))
        if known is None:
            known = self._defined[name, id(registered)] = registered, define(registered, name)
        return known[1]

    def add_system(self, name: str, function: Any, if_not_exists: bool = False) -> None:
        """Register a function that hides all others of its name."""
        if name.lower() not in self._system:
            self._system[name.lower()] = function
        elif not if_not_exists:
            raise ValidationError(f"Could not register temporary system function. A function named '{name}' exists.")

    def drop_system(self, name: str, if_exists: bool = False) -> bool:
        """Remove a system function. Returns whether it existed."""
        if self._system.pop(name.lower(), None) is not None:
            return True
        if not if_exists:
            raise ValidationError(f"Could not drop temporary system function. A function named '{name}' doesn't exist.")
        return False

    def add(self, path: FunctionPath, function: Any, if_not_exists: bool = False) -> None:
        """Register a temporary function of a database."""
        if _key(path) not in self._temporary:
            self._temporary[_key(path)] = function
        elif not if_not_exists:
            raise ValidationError(
                f"Could not register temporary catalog function. A function '{'.'.join(path)}' does already exist."
            )

    def has_temporary(self, path: FunctionPath) -> bool:
        """Return whether there is a temporary function at this path."""
        return _key(path) in self._temporary

    def drop(self, path: FunctionPath, if_exists: bool = False) -> bool:
        """Remove a temporary function. Returns whether it existed."""
        if self._temporary.pop(_key(path), None) is not None:
            return True
        if not if_exists:
            raise ValidationError(f"Temporary catalog function {'.'.join(path)} doesn't exist")
        return False


def _key(path: FunctionPath) -> FunctionPath:
    return (path[0], path[1], path[2].lower())


IN_MEMORY: Final = "generic_in_memory"


def _create_spark_catalog(settings: Callable[[], Mapping[str, str]], name: str, options: dict[str, str]) -> Catalog:
    from penstock.sql.spark.relations import spark_catalog  # imports PySpark

    return spark_catalog(settings, name, options)


#: the functions that create catalogs of files and of other systems, below `penstock.sql`; imported when they are used
LAZY_CATALOGS: Final = {
    "delta": "connectors.delta_catalog:delta_catalog",
    "file": "catalogs.file_catalog:file_catalog",
    "iceberg": "connectors.iceberg_catalog:iceberg_catalog",
    "jdbc": "connectors.jdbc_catalog:jdbc_catalog",
}


def _create_lazy_catalog(path: str, name: str, options: dict[str, str]) -> Catalog:
    create: CatalogFactory = resolve_name(f"penstock.sql.{path}")
    return create(name, options)


def _in_memory(name: str, options: dict[str, str]) -> Catalog:
    unknown = sorted(options.keys() - {"type", "default-database"})
    if unknown:
        raise ValidationError(
            f"Unsupported options found for catalog '{name}': {', '.join(unknown)}. A catalog of type "
            f"'{IN_MEMORY}' takes default-database."
        )
    return Catalog(name, options.get("default-database", "default"))


class TableSession:
    """The shared state of a table environment.

    Args:
        config: the options.
        catalog: the initial catalog.
        executor: runs plans; None for an environment that only plans.
    """

    def __init__(self, config: TableConfig, catalog: Catalog, executor: Executor | None = None) -> None:
        self.config = config
        self.first_options = config.get_configuration().to_dict()
        self.functions = UserFunctions()
        self.manager = CatalogManager(catalog, self._session, self._function)
        self.catalog_factories: dict[str, CatalogFactory] = {
            IN_MEMORY: _in_memory,
            "spark": partial(_create_spark_catalog, config.to_map),
            **{kind: partial(_create_lazy_catalog, path) for kind, path in LAZY_CATALOGS.items()},
        }
        self.catalog_descriptors = {catalog.name: CatalogDescriptor(catalog.name, {"type": IN_MEMORY})}
        #: the inserts since BEGIN STATEMENT SET, until END
        self.open_set: list[Write] | None = None
        self.modules = Modules()
        self._executor = executor
        self._anonymous = self._unnamed = 0

    def fork(self) -> TableSession:
        """Return a session with the same catalogs and functions and a copy of the options, for a job of its own.

        Its current database changes on its own. Another thread may use it.
        """
        forked = TableSession(self.config.copy(), self.manager.catalog(self.manager.current_catalog), self._executor)
        forked.functions = self.functions
        forked.manager.share(self.manager)
        return forked

    def _session(self, configuration: Mapping[str, str] | None = None) -> Session:
        """Return the session that functions see; `configuration`: the options of a compiled plan, which win."""
        options = configuration or {}
        legacy_cast = options.get(LEGACY_CAST.key(), self.config.read(LEGACY_CAST)).upper()
        return Session(
            zone=parse_zone(options.get(LOCAL_TIME_ZONE.key()) or self.config.get_local_timezone()),
            now=time.time_ns,
            legacy_cast=legacy_cast == "ENABLED",
            current_catalog=self.manager.current_catalog,
            current_database=self.manager.current_database,
        )

    def _function(self, path: tuple[str, ...], hidden: bool) -> UserFunction | None:
        """Return the user-defined function of a path, unless one of Flink's hides it.

        As in Flink, a simple name is resolved to a temporary system function, then to Flink's own, then to a temporary
        function of the current database, then to one of its catalog. `hidden`: skips Flink's own functions.
        """
        name = path[-1].lower()
        function = self.functions.find_system(name) if len(path) == 1 else None
        if function is None and (hidden or len(path) > 1 or not is_built_in(name)):
            full_path = self.manager.qualified(path)
            function = self.modules.find(name) if len(path) == 1 else None
            if function is None:
                function = self.functions.find_temporary(full_path)
            catalog, at = self.manager.catalog(full_path[0]), ObjectPath(full_path[1], name)
            if function is None and catalog.function_exists(at):
                function = catalog.get_function(at)
        return None if function is None else self.functions.defined(function, name)

    def anonymous_path(self, connector: str) -> tuple[str, str, str]:
        """Return a generated path for an anonymous table."""
        self._anonymous += 1
        return self.manager.qualified((f"*anonymous_{connector}${self._anonymous}*",))

    def unnamed_view(self, plan: Node) -> tuple[str, str, str]:
        """Register a plan under a generated name for SQL, and return its path."""
        self._unnamed += 1
        path = self.manager.qualified((f"UnnamedTable${self._unnamed - 1}",))
        self.manager.create(path, inline_view(plan), True)
        return path

    # --- running plans -----------------------------------------------------------------------------------------------

    @property
    def executor(self) -> Executor:
        """The executor. Raises `UnsupportedError` if there is none."""
        if self._executor is None:
            raise UnsupportedError(
                "Penstock does not run tables yet: queries and INSERT are only checked and planned, and EXPLAIN shows "
                "their plans"
            )
        return self._executor

    def collect(self, plan: Node) -> TableResult:
        """Start a query whose rows go to the program."""
        allow_plans([plan])
        job = self.executor.collect(plan, self.config.to_map(), self._session())
        style = Tableau(
            plan.schema, shows_kinds=self.config.is_streaming(), width_max=self.config.read(MAX_COLUMN_WIDTH)
        )
        schema = ResolvedSchema.physical(plan.schema.names, plan.schema.types)
        return TableResult(
            ResultKind.SUCCESS_WITH_CONTENT, schema, job.rows, style, job, job.cancel, lambda: job.held_rows()
        )

    @contextmanager
    def held_rows(self, plan: Node) -> Iterator[tuple[Iterator[ChangelogRow], tzinfo]]:
        """Yield a query's rows as internal values, and the session's time zone. Leaving the block cancels the query."""
        session = self._session()
        job = self.executor.collect(plan, self.config.to_map(), session)
        try:
            yield job.held_rows(), session.zone
        finally:
            job.cancel()

    def frame(self, plan: Node) -> Any:
        """Return the Spark data frame of a query."""
        allow_plans([plan])
        return self.executor.frame(plan, self.config.to_map(), self._session())

    def write(self, plans: Sequence[Write]) -> TableResult:
        """Start one job that writes to tables. Its result is the row count of each table, which is unknown: -1."""
        allow_plans(plans)
        return self._written([".".join(plan.path) for plan in plans], partial(self.executor.write, plans), {})

    def _written(
        self,
        sinks: list[str],
        start: Callable[[Mapping[str, str], Session, str], Job],
        configuration: Mapping[str, str],
    ) -> TableResult:
        options = self.config.to_map()
        job = start(options, self._session(configuration), _name_of_job(options, sinks))
        if self.config.read(DML_SYNC):
            job.wait()
        kinds: list[DataType] = [BigIntType()] * len(sinks)
        style = RawContent(RowSchema(tuple(map(PlanColumn, sinks, kinds))))
        schema = ResolvedSchema.physical(sinks, kinds)
        return TableResult(ResultKind.SUCCESS_WITH_CONTENT, schema, lambda: _counts(job, len(sinks)), style, job)

    def compile(self, plans: Sequence[Write]) -> str:
        """Return the plan of one job that writes to tables, as JSON. Raises `UnsupportedError` in batch mode."""
        allow_plans(plans)
        zone = {LOCAL_TIME_ZONE.key(): self.config.get_local_timezone()}
        stores = CatalogObjects[self.config.read(COMPILED_OBJECTS)]
        return self._compiler().compile(
            plans, {**self.config.to_map(), **zone}, self._session(), _Objects(self), stores
        )

    def load_compiled(self, text: str) -> CompiledQueries:
        """Return the queries of a compiled plan. Raises `ValidationError` if it does not fit the tables."""
        restores = CatalogObjects[self.config.read(RESTORED_OBJECTS)]
        return self._compiler().load(text, self._session(), _Objects(self), restores)

    def write_compiled(self, queries: CompiledQueries) -> TableResult:
        """Start the job of a compiled plan, with the result of `write`."""
        allow_plans(queries.writes)
        start = partial(self._compiler().write_compiled, queries)
        return self._written([".".join(plan.path) for plan in queries.writes], start, queries.configuration)

    def explain_compiled(self, queries: CompiledQueries, details: Sequence[str] = ()) -> str:
        """Return a compiled plan as text, and how it would run."""
        session = self._session(queries.configuration)
        return self._compiler().explain_compiled(queries, self.config.to_map(), session, details)

    def _compiler(self) -> PlanCompiler:
        if not self.config.is_streaming():
            raise UnsupportedError("The compiled plan feature is not supported in batch mode.")
        return self.executor.compiler()

    def explain(self, plans: Sequence[Node], details: Sequence[str] = ()) -> str:
        """Return the logical plans as text, followed by the executor's explanation."""
        allow_plans(plans)
        syntax_tree = "\n".join(plan_text(plan) for plan in plans)
        text = f"== Abstract Syntax Tree ==\n{syntax_tree}\n"
        if self._executor is None:
            return text
        return f"{text}\n{self._executor.explain(plans, self.config.to_map(), self._session(), details)}"

    def analyze(self, plans: Sequence[Node]) -> TableResult:
        """Start one job of a query or of several INSERTs; the result is its plan with what it has done, at its end.

        An interrupt ends the job; the result has what it has done by then.
        """
        text, options, session = self.explain(plans), self.config.to_map(), self._session()
        writes = [plan for plan in plans if isinstance(plan, Write)]
        reading = None if writes else self.executor.collect(plans[0], options, session)
        name = _name_of_job(options, [".".join(write.path) for write in writes])
        job: Job = reading or self.executor.write(writes, options, session, name)

        def rows() -> Iterator[ChangelogRow]:
            try:
                if reading is not None:
                    deque(reading.held_rows(), maxlen=0)
                else:
                    job.wait()
            except KeyboardInterrupt:
                job.client().cancel()
            job.client().get_job_execution_result().exception()
            yield "+I", (f"{text.rstrip()}\n\n{job.analyzed()}",)

        kind = VarCharType(LENGTH_MAX)
        style = RawContent(RowSchema((PlanColumn("result", kind),)))
        schema = ResolvedSchema.physical(["result"], [kind])
        cancel = lambda: job.client().cancel().result()  # noqa: E731
        return TableResult(ResultKind.SUCCESS_WITH_CONTENT, schema, rows, style, job, cancel, rows)

    def plan(self, plans: Sequence[Node]) -> Plan:
        """Return the job plan of these plans without running it."""
        allow_plans(plans)
        return self.executor.plan(plans, self.config.to_map(), self._session())


def _name_of_job(options: Mapping[str, str], sinks: Sequence[str]) -> str:
    return options.get("pipeline.name") or f"insert-into_{','.join(sinks)}"


class _Objects:
    """The named objects of a session; see `penstock.sql.logical.stored_plans.Objects`."""

    def __init__(self, session: TableSession) -> None:
        self._manager = session.manager

    def table(self, path: tuple[str, str, str]) -> StoredTable | None:
        """Return a table; None for one without a name."""
        entry = self._manager.find(path)
        if entry is None or entry[1].is_view:
            return None
        columns = [column for column in self._manager.resolved(entry[1]).columns if column.is_persisted()]
        shown = tuple((column.name, str(column.data_type)) for column in columns)
        return StoredTable(shown, entry[1].options_for_connector())

    def function(self, name: str, gives_rows: bool) -> UserFunction | None:
        """Return a function of the user's."""
        return self._manager.function(name, gives_rows)

    def model(self, path: tuple[str, str, str]) -> Model | None:
        """Return a model."""
        return self._manager.model(path)

    def zone(self, name: str) -> tzinfo:
        """Return a time zone."""
        return parse_zone(name)


def _counts(job: Job, sinks: int) -> Iterator[ChangelogRow]:
    job.wait()
    yield "+I", (-1,) * sinks
