"""`JdbcCatalog`: the tables of PostgreSQL, MySQL or MariaDB, which are found by name and not changed, as in Flink.

A database of the catalog is one of the server. A table of PostgreSQL is named `schema.table` in backticks, or `table`
if its schema is `public`; one of MySQL and MariaDB, `table`. The connector `jdbc` reads, looks up and writes it.
Statements that make, alter or drop something are refused: the server's own SQL does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import quote

from penstock.base.errors import MissingPathError, OperationError, UnsupportedError
from penstock.connectors.mysql import client as mysql_client
from penstock.connectors.mysql.values import to_arrow_type
from penstock.connectors.postgres import client
from penstock.connectors.postgres.text_columns import VECTORS
from penstock.sql.catalogs.catalog import Catalog, CatalogBaseTable, CatalogDatabase, CatalogFunction, ObjectPath
from penstock.sql.catalogs.columns import Schema, UnresolvedColumn
from penstock.sql.data import types
from penstock.sql.data.arrow import logical_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser.statements import AlterAction

#: the value of the option `type`
TYPE: Final = "jdbc"
_PUBLIC: Final = "public"
#: databases and schemas that belong to the server, as in Flink's catalog
_TEMPLATES: Final = ("template0", "template1", "rdsadmin")
_SCHEMAS: Final = ("pg_toast", "pg_temp_1", "pg_toast_temp_1", "pg_catalog", "information_schema")
_REQUIRED: Final = ("base-url", "default-database", "username", "password")

_TABLES_QUERY: Final = """
    SELECT table_schema || '.' || table_name FROM information_schema.tables
    WHERE table_type IN ('BASE TABLE', 'FOREIGN', 'VIEW') AND table_schema <> ALL(%s) ORDER BY 1
"""
#: the columns of a table: name, type, element's type, modifier, NOT NULL, place in the primary key, comment
_COLUMNS_QUERY: Final = """
    SELECT a.attname, t.typname, e.typname, a.atttypmod, a.attnotnull,
           array_position(k.conkey::int2[], a.attnum), k.conname, col_description(c.oid, a.attnum)
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type AS t ON t.oid = a.atttypid
    LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typlen = -1
    LEFT JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'p'
    WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY a.attnum
"""
_PLAIN: Final[dict[str, types.DataType]] = {
    "bool": types.BooleanType(),
    "bytea": types.VarBinaryType(types.LENGTH_MAX),
    "int2": types.SmallIntType(),
    "int4": types.IntType(),
    "int8": types.BigIntType(),
    "float4": types.FloatType(),
    "float8": types.DoubleType(),
    "text": types.VarCharType(types.LENGTH_MAX),
    "date": types.DateType(),
}
#: the digits of a plain `numeric`, as in Flink
_DIGITS: Final = (types.PRECISION_MAX, 18)


def from_server_type(name: str, modifier: int) -> types.DataType | None:
    """Return the type of a column of the server, as in Flink's catalog; None for a type without a counterpart.

    `modifier`: the server's encoding of lengths and digits; -1 without any.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    match name:
        case "numeric":
            if modifier < 0:
                return types.DecimalType(*_DIGITS)
            precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
            fits = precision <= types.PRECISION_MAX and scale <= precision
            return types.DecimalType(precision, scale) if fits else None
        case "bpchar":
            return types.CharType(max(1, modifier - 4)) if modifier > 0 else types.VarCharType(types.LENGTH_MAX)
        case "varchar":
            return types.VarCharType(modifier - 4 if modifier > 0 else types.LENGTH_MAX)
        case "timestamp" | "timestamptz" | "time":
            digits = modifier if modifier >= 0 else 6
            kinds = {"timestamp": types.TimestampType, "timestamptz": types.LocalZonedTimestampType}
            return kinds.get(name, types.TimeType)(digits)
    return None


class JdbcCatalog(Catalog):
    """See the module docstring.

    Args:
        name: the name of the catalog.
        base_url: the URL of the server, to which the name of a database is added.
        default_database: must exist.
        username: the user who connects.
        password: the user's password.
    """

    def __init__(self, name: str, base_url: str, default_database: str, username: str, password: str) -> None:
        super().__init__(name, default_database)
        base, question, self._parameters = base_url.partition("?")
        self._base_url = base.removesuffix("/")
        self._parameters = question + self._parameters
        self._user, self._password = username, password
        self._rows(default_database, "SELECT 1")

    def _url(self, database: str) -> str:
        return f"{self._base_url}/{quote(database, safe='')}{self._parameters}"

    def _rows(self, database: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
        psycopg = client.driver()
        address = client.Address(self._url(database), self._user, self._password)
        try:
            with client.connect(address) as connection:
                rows: list[tuple[Any, ...]] = connection.execute(query, values or None).fetchall()
                return rows
        except psycopg.Error as error:
            text = " ".join(str(error).split())[:300]
            raise OperationError(f"catalog {self.name}: {address.shown} does not answer: {text}") from error

    # --- databases ---------------------------------------------------------------------------------------------------

    def list_databases(self) -> list[str]:
        """See `Catalog`."""
        rows = self._rows(self._default_database, "SELECT datname FROM pg_database WHERE datallowconn ORDER BY datname")
        return [name for (name,) in rows if name not in _TEMPLATES]

    def database_exists(self, database_name: str) -> bool:
        """See `Catalog`."""
        return database_name in self.list_databases()

    def get_database(self, database_name: str) -> CatalogDatabase:
        """See `Catalog`."""
        if not self.database_exists(database_name):
            raise ValidationError(f"Database {database_name} does not exist in Catalog {self.name}.")
        return CatalogDatabase()

    # --- tables ------------------------------------------------------------------------------------------------------

    def list_tables(self, database_name: str) -> list[str]:
        """See `Catalog`. Views of the server are tables here."""
        self.get_database(database_name)
        return [name for (name,) in self._rows(database_name, _TABLES_QUERY, list(_SCHEMAS))]

    def list_views(self, database_name: str) -> list[str]:
        """Return an empty list: the queries of the server's views are in its own SQL."""
        self.get_database(database_name)
        return []

    def _columns(self, path: ObjectPath) -> list[tuple[Any, ...]]:
        schema, dot, table = path.object_name.partition(".")
        place = (schema, table) if dot else (_PUBLIC, schema)
        return self._rows(path.database_name, _COLUMNS_QUERY, *place)

    def table_exists(self, table_path: ObjectPath) -> bool:
        """See `Catalog`."""
        return self.database_exists(table_path.database_name) and bool(self._columns(table_path))

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """See `Catalog`. Raises `UnsupportedError` for a column of a type that Flink's catalog does not have either."""
        rows = self._columns(table_path) if self.database_exists(table_path.database_name) else []
        if not rows:
            raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")
        columns, key_positions, constraint = [], {}, None
        searched: dict[str, str] = {}
        for name, kind, element, modifier, is_required, place, constraint_name, comment in rows:
            data_type = from_server_type(kind, modifier)
            if data_type is None and element is not None:
                inner = from_server_type(element, modifier)
                data_type = None if inner is None else types.ArrayType(inner)
            if kind in VECTORS:
                data_type, searched = types.ArrayType(types.FloatType()), {"vector.index": "pgvector"}
            if data_type is None:
                raise UnsupportedError(
                    f"column '{name}' of table {table_path} in catalog {self.name} is {kind}, which has no counterpart "
                    "in SQL here: declare a TEMPORARY TABLE with 'connector' = 'jdbc' and the column as STRING, or "
                    "without it"
                )
            columns.append(UnresolvedColumn(name, data_type.not_null() if is_required else data_type, comment=comment))
            if place is not None:
                key_positions[name], constraint = place, constraint_name
        key = tuple(sorted(key_positions, key=key_positions.__getitem__))
        schema, dot, table = table_path.object_name.partition(".")
        name = f"{schema}.{table}" if dot else f"{_PUBLIC}.{schema}"
        shown = {"connector": "jdbc", "table-name": name, "url": self._url(table_path.database_name)}
        shown |= searched
        secrets = {"username": self._user, "password": self._password}
        return CatalogBaseTable(
            Schema(tuple(columns), (), key, constraint), shown, connector_options={**shown, **secrets}
        )

    # --- requests to the server --------------------------------------------------------------------------------------

    def _refuse(self, what: object) -> NoReturn:
        raise UnsupportedError(
            f"{what}: catalog {self.name} of type '{TYPE}' is read-only, as in Flink: make, alter and drop tables and "
            "databases with the server's own SQL; views and functions may be TEMPORARY"
        )

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool = False) -> None:
        """Raise `UnsupportedError`."""
        self._refuse(name)

    def drop_database(self, name: str, ignore_if_exists: bool = False, cascade: bool = False) -> None:
        """Raise `UnsupportedError`."""
        self._refuse(name)

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool = False) -> None:
        """Raise `UnsupportedError`."""
        self._refuse(name)

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool = False) -> None:
        """Raise `UnsupportedError`, unless the table exists and `ignore_if_exists` is set."""
        if not (ignore_if_exists and self.table_exists(table_path)):
            self._refuse(table_path)

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool = False) -> None:
        """Raise `UnsupportedError`."""
        self._refuse(table_path)

    def alter_table(
        self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool = False
    ) -> None:
        """Raise `UnsupportedError`."""
        self._refuse(table_path)

    def change_table(self, table_path: ObjectPath, new_table: CatalogBaseTable, actions: Sequence[AlterAction]) -> None:
        """Raise `UnsupportedError`."""
        self._refuse(table_path)

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool = False) -> None:
        """Raise `UnsupportedError`."""
        self._refuse(table_path)

    def create_function(
        self, function_path: ObjectPath, function: CatalogFunction, ignore_if_exists: bool = False
    ) -> None:
        """Raise `UnsupportedError`."""
        self._refuse(function_path)

    def list_functions(self, database_name: str) -> list[str]:
        """Return an empty list."""
        self.get_database(database_name)
        return []


#: databases that belong to the server, and its types without a counterpart in SQL
_DATABASES_OF_MYSQL: Final = ("information_schema", "mysql", "performance_schema", "sys")
_REFUSED_OF_MYSQL: Final = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "vector",
    "geometrycollection",
    "geomcollection",
)
_MOMENTS_OF_MYSQL: Final[dict[str, Callable[[int], types.DataType]]] = {
    "time": types.TimeType,
    "datetime": types.TimestampType,
    "timestamp": types.LocalZonedTimestampType,
}


def from_mysql_type(column: mysql_client.ServerColumn) -> types.DataType | None:
    """Return the type of a column of MySQL or MariaDB; None for a type without a counterpart.

    It is that of Flink's table of types. Moments (TIMESTAMP) are TIMESTAMP_LTZ, YEAR is INT, ENUM, SET and JSON are
    STRING, and BIT of several bits is BYTES.
    """
    kind = column.kind
    if kind in _REFUSED_OF_MYSQL or kind.startswith("multi"):
        return None
    if kind in _MOMENTS_OF_MYSQL:
        return _MOMENTS_OF_MYSQL[kind](column.precision or 0)
    if kind in ("char", "varchar") and column.length:
        return types.VarCharType(column.length)
    if kind == "decimal" and (column.precision or 0) > types.PRECISION_MAX:
        return None
    return logical_type(to_arrow_type(column))


class MySqlCatalog(JdbcCatalog):
    """The catalog of a server of MySQL or MariaDB."""

    def _rows(self, database: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._ask(
            database, lambda connection: mysql_client.query(connection, query, values or None)
        )
        return rows

    def _ask(self, database: str, work: Callable[[Any], Any]) -> Any:
        address = mysql_client.MySqlAddress.of_url(self._url(database), self._user, self._password)
        link = mysql_client.MySqlLink(address)
        try:
            return link.retrying(0, work)
        except OperationError as error:
            raise OperationError(f"catalog {self.name}: {error}") from error
        finally:
            link.close()

    def list_databases(self) -> list[str]:
        """See `Catalog`."""
        query = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA ORDER BY 1"
        return [name for (name,) in self._rows(self._default_database, query) if name not in _DATABASES_OF_MYSQL]

    def list_tables(self, database_name: str) -> list[str]:
        """See `Catalog`. Views of the server are tables here."""
        self.get_database(database_name)
        query = (
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
            "AND TABLE_TYPE IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED') ORDER BY 1"
        )
        return [name for (name,) in self._rows(self._default_database, query, database_name)]

    def table_exists(self, table_path: ObjectPath) -> bool:
        """See `Catalog`."""
        return self._relation(table_path) is not None

    def _relation(self, path: ObjectPath) -> mysql_client.Relation | None:
        name = f"{mysql_client.quoted(path.database_name)}.{mysql_client.quoted(path.object_name)}"
        try:
            relation: mysql_client.Relation = self._ask(
                self._default_database, lambda connection: mysql_client.read_relation(connection, name)
            )
        except MissingPathError:
            return None
        return relation

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """See `Catalog`. Raises `UnsupportedError` for a column of a type without a counterpart."""
        relation = self._relation(table_path)
        if relation is None:
            raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")
        columns = []
        for column in relation.columns:
            data_type = from_mysql_type(column)
            if data_type is None:
                raise UnsupportedError(
                    f"column '{column.name}' of table {table_path} in catalog {self.name} is {column.sql_type}, which "
                    "has no counterpart in SQL here: declare a TEMPORARY TABLE with 'connector' = 'jdbc' and the "
                    "column as STRING or BYTES, or without it"
                )
            data_type = data_type if column.is_nullable else data_type.not_null()
            columns.append(UnresolvedColumn(column.name, data_type, comment=column.comment or None))
        shown = {
            "connector": "jdbc",
            "table-name": mysql_client.quoted(table_path.object_name),
            "url": self._url(table_path.database_name),
        }
        secrets = {"username": self._user, "password": self._password}
        constraint = "PRIMARY" if relation.key else None
        return CatalogBaseTable(
            Schema(tuple(columns), (), relation.key, constraint), shown, connector_options={**shown, **secrets}
        )


def jdbc_catalog(name: str, options: Mapping[str, str]) -> JdbcCatalog:
    """Return a catalog from the options of CREATE CATALOG, which are Flink's.

    Raises:
        ValidationError: for missing or unknown options.
        OperationError: if the default database cannot be reached.
    """
    missing = [key for key in _REQUIRED if not options.get(key)]
    if missing:
        raise ValidationError(f"catalog '{name}' of type '{TYPE}' needs the options {', '.join(missing)}")
    unknown = sorted(options.keys() - {"type", *_REQUIRED})
    if unknown:
        raise ValidationError(
            f"Unsupported options found for catalog '{name}': {', '.join(unknown)}. A catalog of type '{TYPE}' takes "
            f"{', '.join(_REQUIRED)}"
        )
    base_url = options["base-url"]
    dialect = client.find_dialect(base_url)
    if not dialect:
        raise UnsupportedError(
            f"catalog '{name}': {client.describe_dialects(base_url)}; declare tables of other databases one by one"
        )
    client.driver() if dialect == "postgresql" else mysql_client.load_library()
    base, _, last = base_url.partition("?")[0].partition("://")[2].partition("/")
    if not base or last:
        raise ValidationError(
            f"catalog '{name}': 'base-url' ends before the name of a database, such as jdbc:postgresql://db:5432/"
        )
    kind = JdbcCatalog if dialect == "postgresql" else MySqlCatalog
    return kind(name, base_url, *(options[key] for key in _REQUIRED[1:]))


__all__ = ["JdbcCatalog", "jdbc_catalog"]
