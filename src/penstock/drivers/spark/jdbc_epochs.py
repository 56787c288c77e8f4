"""Each epoch of a stream once into a table of a database, by Spark's `jdbc` format: `JdbcEpochWriter`.

Spark's writer commits each partition on its own, and knows no epochs: a program that dies while it writes leaves a part
of the rows, and writes all of them again. So Spark writes the rows of an epoch into a table of their own, the *staging
table*. One transaction then moves them into the target and records the epoch in the *ledger*, a table of the same
database. An epoch that the ledger has is not written again.

**What an epoch is.** The ledger knows an epoch by the names of the files that have its rows, not by its number. A job
that starts from nothing counts from 1 again, and a job that starts from an older savepoint repeats numbers with other
rows; both write, as with any other sink. The same files come again only if a commit is repeated after a failure.

**Rows that Spark writes twice.** Spark may run a task again whose rows are already committed, and executors of a driver
that was killed may go on for a while. So the transaction counts the rows that it moves, and is rolled back if they are
not as many as those of the epoch. The staging table is made anew whenever an epoch is tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.drivers.spark.foreach_batch import EpochId, current_epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEDGER: Final = "penstock_epochs"
_STAGING: Final = "penstock_rows_"
_MARIADB: Final = "jdbc:mariadb:"
#: the class of the driver by the beginning of a URL: Java does not find a driver in the jars of a session by itself
_DRIVERS: Final = {
    "jdbc:postgresql:": "org.postgresql.Driver",
    _MARIADB: "org.mariadb.jdbc.Driver",
    "jdbc:mysql:": "com.mysql.cj.jdbc.Driver",
}
#: A name of a table whose last part is quoted or plain; the first group is everything before it.
_LAST_PART: Final = re.compile(r'(?s)((?:.*\.)?)(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|[^."`]+)')
_NAME_CHARACTERS: Final = 200
#: how many epochs of a name the ledger keeps
_KEPT: Final = 1_000


def with_driver(options: Mapping[str, str]) -> dict[str, str]:
    """Return options of Spark's `jdbc` format, in lower case, with what a well-known URL needs: the driver's class.

    Spark takes `jdbc:mariadb:` for an unknown database and quotes columns as `"n"`, which are texts to MariaDB: a query
    then returns the names of its columns in each row. So it gets MySQL's URL, with MariaDB's driver.
    """
    lowered = {key.lower(): str(value) for key, value in options.items()}
    url = lowered.get("url", "")
    driver = next((name for prefix, name in _DRIVERS.items() if url.startswith(prefix)), None)
    if url.startswith(_MARIADB):
        lowered["url"] = f"jdbc:mysql:{url.removeprefix(_MARIADB)}{'&' if '?' in url else '?'}permitMysqlScheme"
    return lowered if driver is None else {"driver": driver, **lowered}


class JdbcEpochWriter:
    """Writes each epoch once into a table, by Spark's `jdbc` format; pass it to `for_each_batch`.

    It makes the ledger, `penstock_epochs`, and the target where they do not exist, and for each epoch a staging table
    `penstock_rows_…` beside the target, which it drops afterwards. The user of the database needs the rights for that.
    A ledger keeps the last 1,000 epochs of each name. Tried with PostgreSQL and MariaDB.

    Args:
        name: the name of the output, up to 200 characters: the ledger keeps the epochs of each name apart, so two
            outputs have different ones.
        options: options of Spark's `jdbc` format. `url` and `dbtable` are needed. Spark needs the driver's jar, and
            `driver`, its class; for PostgreSQL, MariaDB and MySQL that is known.
        mode: `append`, or `overwrite` to replace the rows of the table with those of each epoch.

    Raises:
        ConfigurationError: for wrong arguments. When it writes: if no epoch is being written, or there is no driver.
        OperationError: when it writes: if Spark has not written the rows of the epoch once; the transaction is rolled
            back.
        UnsupportedError: when it writes: in a session of Spark Connect, which cannot reach the database.

    Examples:
        >>> from penstock.datastream.connectors.spark import JdbcEpochWriter
        >>> JdbcEpochWriter("totals", {"url": "jdbc:postgresql://db/shop", "dbtable": "totals", "password": "secret"})
        JdbcEpochWriter('totals', 'totals')
    """

    def __init__(self, name: str, options: Mapping[str, str], mode: str = "append") -> None:
        if not name or len(name) > _NAME_CHARACTERS:
            raise ConfigurationError(
                f"the name of a JDBC output has 1 to {_NAME_CHARACTERS} characters, not {len(name)}"
            )
        if mode not in ("append", "overwrite"):
            raise ConfigurationError(f"the JDBC output {name!r} has the mode append or overwrite, not {mode!r}")
        lowered = with_driver(options)
        missing = [key for key in ("url", "dbtable") if not lowered.get(key)]
        if missing:
            raise ConfigurationError(f"the JDBC output {name!r} needs the option {missing[0]!r} of Spark's jdbc format")
        match = _LAST_PART.fullmatch(lowered["dbtable"].strip())
        if match is None:
            raise ConfigurationError(f"{lowered['dbtable']!r}, the dbtable of the JDBC output {name!r}, names no table")
        self._name, self._options, self._mode = name, lowered, mode
        self._schema_prefix, self._table = match[1], lowered["dbtable"].strip()

    def __repr__(self) -> str:
        return f"JdbcEpochWriter({self._name!r}, {self._table!r})"

    __name__ = "JdbcEpochWriter"

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Write an epoch, unless the table has it."""
        identity = current_epoch()
        if identity is None:
            raise ConfigurationError(f"{self!r} writes epochs: pass it to for_each_batch(), or call it in its function")
        ledger, staging = self._schema_prefix + LEDGER, f"{self._schema_prefix}{_STAGING}{identity.id[:24]}"
        with self._connection(frame.sparkSession) as database:
            database.make_ledger(ledger)
            if not database.has(ledger, identity):
                if not database.is_table(self._table):
                    self._write(frame.limit(0), self._table)  # Spark makes it
                columns = database.column_names(self._table, frame.columns)
                database.run(f"DROP TABLE IF EXISTS {staging}")
                database.run(f"CREATE TABLE {staging} AS SELECT {columns} FROM {self._table} WHERE 1 = 0")
                self._write(frame, staging)
                self._move(database, frame.count(), ledger, staging, columns, identity)
            database.run(f"DROP TABLE IF EXISTS {staging}")

    def _move(
        self, database: _Database, count: int, ledger: str, staging: str, columns: str, identity: EpochId
    ) -> None:
        with database.transaction():
            database.record(ledger, self._name, identity)
            if self._mode == "overwrite":
                database.run(f"DELETE FROM {self._table}")
            moved = database.run(f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {staging}")
            if moved != count:
                raise OperationError(
                    f"Spark wrote {moved} rows of epoch {identity.number} into {staging}, and the epoch has {count}: "
                    f"{self._table} is as before"
                )

    def _write(self, frame: DataFrame, table: str) -> None:
        options = self._options | {"dbtable": table, "truncate": "false"}
        frame.write.format("jdbc").mode("append").options(**options).save()

    @contextmanager
    def _connection(self, session: SparkSession) -> Iterator[_Database]:
        """Open a connection by the driver that Spark uses, with the same options."""
        if not hasattr(session, "_jvm"):
            raise UnsupportedError(f"{self!r} needs Spark in this program: Spark Connect has no way to the database")
        jvm: Any = session._jvm
        parameters = jvm.java.util.HashMap()
        for key, value in self._options.items():
            parameters.put(key, value)
        options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
            jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(parameters)
        )
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._options["url"])
        connection = dialect.createConnectionFactory(options).apply(-1)
        try:
            yield _Database(connection, dialect)
        finally:
            with suppress(Exception):  # the connection may be broken, which is the error to tell
                connection.close()


class _Database:
    """A connection of Java's, and the statements of a ledger. Each statement commits, except in a transaction."""

    def __init__(self, connection: Any, dialect: Any) -> None:
        self._connection, self._dialect = connection, dialect
        connection.setAutoCommit(True)

    def run(self, statement: str, *values: Any) -> int:
        """Run a statement, and return the number of rows that it changed."""
        prepared = self._connection.prepareStatement(statement)
        try:
            for position, value in enumerate(values, 1):
                prepared.setObject(position, value)
            return int(prepared.executeUpdate())
        finally:
            prepared.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements together, or none if one fails."""
        self._connection.setAutoCommit(False)
        try:
            yield
            self._connection.commit()
        except BaseException:
            with suppress(Exception):  # a broken connection rolls back by itself
                self._connection.rollback()
            raise
        self._connection.setAutoCommit(True)

    def is_table(self, table: str) -> bool:
        """Return whether a table exists: the query of Spark's dialect fails if it does not."""
        try:
            prepared = self._connection.prepareStatement(self._dialect.getTableExistsQuery(table))
            prepared.executeQuery()
            prepared.close()
        except Exception:  # noqa: BLE001 - whatever else is wrong fails again when Spark makes the table
            return False
        return True

    def make_ledger(self, ledger: str) -> None:
        self.run(
            f"CREATE TABLE IF NOT EXISTS {ledger} "
            f"(id VARCHAR(64) PRIMARY KEY, name VARCHAR({_NAME_CHARACTERS}) NOT NULL, epoch BIGINT NOT NULL)"
        )

    def has(self, ledger: str, identity: EpochId) -> bool:
        """Return whether an epoch is in the ledger."""
        prepared = self._connection.prepareStatement(f"SELECT 1 FROM {ledger} WHERE id = ?")
        try:
            prepared.setString(1, identity.id)
            return bool(prepared.executeQuery().next())
        finally:
            prepared.close()

    def record(self, ledger: str, name: str, identity: EpochId) -> None:
        """Note an epoch, and forget old ones."""
        self.run(f"INSERT INTO {ledger} (id, name, epoch) VALUES (?, ?, ?)", identity.id, name, identity.number)
        self.run(f"DELETE FROM {ledger} WHERE name = ? AND epoch < ?", name, identity.number - _KEPT)

    def column_names(self, table: str, wanted: list[str]) -> str:
        """Return the columns of a frame as the table writes them, quoted, for statements.

        Names need not have the same case, as for Spark's writer.

        Raises:
            OperationError: for a column that the table lacks.
        """
        prepared = self._connection.prepareStatement(f"SELECT * FROM {table} WHERE 1 = 0")
        try:
            metadata = prepared.executeQuery().getMetaData()
            names = [str(metadata.getColumnName(index + 1)) for index in range(metadata.getColumnCount())]
        finally:
            prepared.close()
        by_case = {name.lower(): name for name in names} | {name: name for name in names}
        missing = [name for name in wanted if name not in by_case and name.lower() not in by_case]
        if missing:
            raise OperationError(f"table {table} has no column {missing[0]!r}; it has {', '.join(names)}")
        columns = [by_case.get(name) or by_case[name.lower()] for name in wanted]
        return ", ".join(str(self._dialect.quoteIdentifier(name)) for name in columns)
