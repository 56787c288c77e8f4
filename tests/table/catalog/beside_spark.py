"""A lake that this project, Spark and pyiceberg or delta-rs change in turn, and that all three must see alike.

`python -m tests.table.catalog.beside_spark --spark-python PYTHON --kind iceberg --operations 40` draws operations on
databases, tables, columns, rows, branches and tags, and for each who does it. A plain list of rows says what the table
has after it. PYTHON has pyspark 4.0, for which Iceberg and Delta Lake have releases; Spark fetches their packages. A
statement that is refused by name must leave the table as it is. The seed that is printed makes the same choices again.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from tests.servers.postgres import postgres_server
from tests.table.catalog.crosswise import column
from tests.table.catalog.spark_process import SparkError, SparkProcess
from tests.table.catalog.test_delta_catalog import sql_type
from tests.table.catalog.three_views import (
    TYPES,
    Column,
    DeltaLake,
    Here,
    IcebergLake,
    Row,
    State,
    Table,
    View,
    draw_condition,
    literal,
)

from penstock.base.errors import PenstockError

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1,io.delta:delta-spark_2.13:4.0.1,"
    "org.postgresql:postgresql:42.7.7"
)
#: the words of what is refused by name, and rightly so
REFUSALS = (
    "delta-rs removes none",
    "delta-rs changes no type",
    "needs mapped columns",
    "files of an earlier partitioning",
    "[DELTA_UNSUPPORTED_",  # by Spark: names of columns that are not mapped, and types
    "[DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED]",
    "deletion vector, and such files are not rewritten here",
    "of the format, which pyiceberg reads and does not write",
    "has 'sink.partitioning': leave out one of the two",
    "Cannot write manifest",  # of version 3, by pyiceberg, as the next
    "Writing V3 is not yet supported",
)
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
HERE, SPARK, LIBRARY = "here", "spark", "library"


class Judge:
    """Draws operations, has one of the three do each, and compares what all three see."""

    def __init__(
        self, lake: IcebergLake | DeltaLake, folder: Path, python: str, packages: str, choose: random.Random
    ) -> None:
        self.choose = choose
        self.lake = lake
        self.here = Here(self.lake.options, self.choose.choice(["UTC", "Asia/Kathmandu", "America/St_Johns"]))
        settings = {
            "spark.jars.packages": packages, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
            "spark.sql.session.timeZone": "UTC", "spark.sql.sources.partitionOverwriteMode": "dynamic",
            "spark.driver.memory": "1g", "spark.sql.adaptive.enabled": "false",
            "spark.sql.warehouse.dir": str(folder / "spark"),
        }  # fmt: skip
        self.spark = SparkProcess(python, settings | self.lake.spark_settings, folder)
        self.databases: dict[str, dict[str, str]] = {"main": {}}
        self.tables: dict[str, Table] = {}
        self.numbers = iter(range(1_000_000))
        self.refused: collections.Counter[str] = collections.Counter()
        self.done: collections.Counter[str] = collections.Counter()
        self.touched: str | None = None

    def close(self) -> None:
        self.spark.close()

    @property
    def is_iceberg(self) -> bool:
        return self.lake.kind == "iceberg"

    # --- who does it --------------------------------------------------------------------------------------------------

    def attempt(self, actor: str, statement: str | Callable[[], object]) -> bool:
        """Have it done; False if it is refused by name."""
        if isinstance(statement, str):
            self.told = f"{actor}: {statement}"
            act: Callable[[], object] = lambda: (self.here if actor == HERE else self.spark).run(statement)  # noqa: E731
        else:
            act = statement
        try:
            act()
        except (PenstockError, SparkError, Exception) as error:
            text = f"{type(error).__name__}: {error}"
            reason = next((words for words in REFUSALS if words in text), None)
            if reason is None:
                raise
            self.refused[f"{actor}: {reason}"] += 1
            self.told += f" — refused: {reason}"
            return False
        return True

    def named(self, table: str, actor: str) -> str:
        return self.lake.spark_name(table) if actor == SPARK else table

    # --- what all see -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare names everywhere, and the table that was touched."""
        if ":" not in self.told:
            return
        databases = self.lake.databases()
        assert column(self.here.streams, "SHOW DATABASES") == sorted(databases) == sorted(self.databases), "databases"
        if self.lake.is_catalog:
            assert sorted(row[0] for row in self.spark.run("SHOW NAMESPACES IN lake")) == sorted(databases), "Spark's"
        for name, wanted in self.databases.items():
            names = sorted(table.partition(".")[2] for table in self.tables if table.startswith(f"{name}."))
            assert column(self.here.streams, f"SHOW TABLES FROM `{name}`") == names, f"tables here in {name}"
            assert sorted(self.lake.tables(name)) == names, f"tables of the library in {name}"
            if self.lake.is_catalog:
                assert sorted(row[1] for row in self.spark.run(f"SHOW TABLES IN lake.{name}")) == names, "Spark's"
            shown = {key: value for key, value in databases[name].items() if key not in ("owner", "location")}
            assert shown == wanted, f"properties of database {name}: {shown}"
        if self.touched in self.tables:
            self.check_table(self.touched)

    def check_table(self, name: str) -> None:
        table = self.tables[name]
        kinds = [column.kind for column in table.now.columns]
        views = {
            HERE: self.here.view(name, self.choose.random() < 0.3),
            SPARK: self.view_of_spark(name),
            LIBRARY: self.lake.view(name, kinds),
        }
        columns = [(column.name, column.kind, column.may_be_null, column.comment) for column in table.now.columns]
        for who, view in views.items():
            assert view.columns == columns, f"{who}: columns {view.columns}, wanted {columns}"
            assert (view.comment or None) == table.comment, f"{who}: comment {view.comment}"
            kept = {key: view.properties.get(key) for key in table.properties}
            assert kept == table.properties, f"{who}: properties {kept}, wanted {table.properties}"
            assert not table.gone_properties & view.properties.keys(), f"{who}: {view.properties}"
            same_rows(who, view.rows, table.now.shown())
        self.check_versions(name, table)

    def view_of_spark(self, name: str) -> View:
        told = self.lake.spark_name(name)
        fields, found = self.spark.read(f"SELECT * FROM {told}")
        columns = [
            (each["name"], sql_type(each["type"]), each["nullable"], each["metadata"].get("comment")) for each in fields
        ]
        if self.is_iceberg:
            properties = dict(self.spark.run(f"SHOW TBLPROPERTIES {told}"))
            described = {row[0]: row[1] for row in self.spark.run(f"DESCRIBE EXTENDED {told}")}
            comment = described.get("Comment")
        else:
            names, (detail,) = self.spark.read(f"DESCRIBE DETAIL {told}")
            described = {name["name"]: value for name, value in zip(names, detail, strict=True)}
            comment, properties = described["description"], dict(described["properties"][1])
        return View(columns, comment, properties, sorted(map(json.dumps, found)))

    def read_everywhere(self, name: str, version: int | str, state: State) -> None:
        """Compare an earlier state, a tag or a branch."""
        told = version if isinstance(version, int) else f"'{version}'"
        kinds, wanted = [column.kind for column in state.columns], state.shown()
        what = f"VERSION AS OF {told}"
        same_rows(f"here, {what}", self.here.read(f"SELECT * FROM {name} {what}"), wanted)
        found = self.spark.run(f"SELECT * FROM {self.lake.spark_name(name)} {what}")
        same_rows(f"spark, {what}", sorted(map(json.dumps, found)), wanted)
        read = self.lake.read_version(name, version, kinds)
        if read is not None:
            same_rows(f"library, {what}", read, wanted)

    def check_versions(self, name: str, table: Table) -> None:
        """Remember the version, and read one of the earlier ones, a tag and a branch."""
        version = self.lake.version(name)
        if version is not None:
            table.versions.setdefault(version, copy.deepcopy(table.now))
        if table.versions and self.choose.random() < 0.4:
            older = self.choose.choice(list(table.versions))
            self.read_everywhere(name, older, table.versions[older])
        for tag, state in table.tags.items():
            self.read_everywhere(name, tag, state)
        for branch, kept in table.branches.items():
            self.read_everywhere(name, branch, State(table.now.columns, kept))

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def step(self) -> str:
        """Do one operation and compare."""
        self.touched, self.told = None, ""
        while ":" not in self.told:  # what is drawn may not fit the tables that there are
            operation = self.draw()
            self.told = operation.__name__
            try:
                operation()
                self.check()
            except Exception as error:
                raise AssertionError(f"{self.told}: {type(error).__name__}: {error}") from error
        self.done[f"{operation.__name__} {self.told.partition(':')[0]}"] += 1
        return self.told

    def draw(self) -> Callable[[], None]:
        """Return an operation."""
        of_tables = [
            (self.insert, 6), (self.delete, 5), (self.update, 4), (self.merge, 4), (self.overwrite, 3),
            (self.append, 3), (self.delete_there, 2), (self.truncate, 1), (self.add_column, 2), (self.drop_column, 1),
            (self.rename_column, 1), (self.modify_column, 1), (self.set_property, 1), (self.unset_property, 1),
            (self.comment_table, 1), (self.drop_table, 1), (self.rename_table, 1), (self.replace_table, 1),
            (self.create_as, 1), (self.create_like, 1),
        ]  # fmt: skip
        if self.is_iceberg:
            of_tables += [(self.create_tag, 1), (self.create_branch, 1), (self.write_branch, 2), (self.repartition, 1)]
        others = [(self.create_database, 1), (self.drop_database, 1), (self.create_table, 3)]
        drawn = others + of_tables if self.tables else others
        return self.choose.choices([act for act, _ in drawn], [weight for _, weight in drawn])[0]

    def actor(self, *actors: str) -> str:
        return self.choose.choice(actors or (HERE, SPARK))

    def table(self) -> tuple[str, Table]:
        self.touched = self.choose.choice(sorted(self.tables))
        return self.touched, self.tables[self.touched]

    def new_column(self, kind: str, may_be_null: bool = True) -> Column:
        number = next(self.numbers)
        comment = self.choose.choice([None, None, "it's new", "é"])
        return Column(number, f"c{number}", kind, may_be_null, comment)

    def base_value(self, name: str) -> Any:
        choose = self.choose
        if name == "id":
            return choose.choice([*range(8), None])
        return (
            choose.choice(["a", "b", "c d", "é", None]) if name == "name" else choose.choice([None, *range(0, 99, 9)])
        )

    def new_rows(self, table: Table, actor: str) -> list[Row]:
        return [
            {column.key: self.new_value(column, actor) for column in table.now.columns}
            for _ in range(self.choose.randint(1, 4))
        ]

    def new_value(self, column: Column, actor: str) -> Any:
        if column.name in ("id", "name", "n"):
            return self.base_value(column.name)
        values = TYPES[column.kind][1]
        if actor == HERE:  # which has no literal of an empty array or map
            values = [value for value in values if value not in ([], {})]
        return self.choose.choice([*values, None] if column.may_be_null else values)

    def values(self, columns: Sequence[Column], new: Sequence[Row], actor: str) -> str:
        texts = (", ".join(literal(row.get(c.key), c.kind, actor == SPARK) for c in columns) for row in new)
        return "VALUES " + ", ".join(f"({text})" for text in texts)

    def declared(self, columns: Sequence[Column], actor: str) -> str:
        return ", ".join(self.declaration(column, actor) for column in columns)

    def declaration(self, column: Column, actor: str) -> str:
        kind = TYPES[column.kind][0] if actor == SPARK else column.kind
        text = f"{column.name} {kind}{'' if column.may_be_null else ' NOT NULL'}"
        if column.comment is None:
            return text
        comment = column.comment.replace("'", "\\'" if actor == SPARK else "''")
        return f"{text} COMMENT '{comment}'"

    def free_name(self) -> str:
        return f"{self.choose.choice(sorted(self.databases))}.t{next(self.numbers)}"

    # --- databases ----------------------------------------------------------------------------------------------------

    def create_database(self) -> None:
        name, actor = f"d{next(self.numbers)}", self.actor(HERE, SPARK, LIBRARY)
        properties = {"comment": "it is new", "a": "b"} if self.lake.has_properties and actor != LIBRARY else {}
        if actor == LIBRARY:
            self.told = f"library: create_database {name}"
            self.attempt(actor, lambda: self.lake.create_database(name))
        elif actor == HERE:
            told = " COMMENT 'it is new' WITH ('a' = 'b')" if properties else ""
            self.attempt(actor, f"CREATE DATABASE {name}{told}")
        elif isinstance(self.lake, DeltaLake):
            self.attempt(actor, f"CREATE DATABASE {name} LOCATION '{self.lake.root / name}'")
        else:
            told = " COMMENT 'it is new' WITH DBPROPERTIES ('a' = 'b')" if properties else ""
            self.attempt(actor, f"CREATE DATABASE lake.{name}{told}")
        self.databases[name] = properties

    def drop_database(self) -> None:
        name, actor = self.choose.choice(sorted(self.databases)), self.actor()
        inside = [table for table in self.tables if table.startswith(f"{name}.")]
        if name == "main":
            return
        if inside and (actor == SPARK or len(inside) > 1):
            return
        if actor == SPARK and not self.lake.is_catalog:
            actor = HERE
        told = f"lake.{name}" if actor == SPARK else name
        if self.attempt(actor, f"DROP DATABASE {told}{' CASCADE' if inside else ''}"):
            del self.databases[name]
            for table in inside:
                del self.tables[table]

    # --- tables -------------------------------------------------------------------------------------------------------

    def draw_columns(self) -> list[Column]:
        columns = [Column(next(self.numbers), name, kind) for name, kind in
                   (("id", "BIGINT"), ("name", "STRING"), ("n", "INT"))]  # fmt: skip
        for _ in range(self.choose.randint(2, 5)):
            columns.append(self.new_column(self.choose.choice(list(TYPES)), self.choose.random() < 0.8))
        return columns

    def draw_partitions(self, columns: Sequence[Column]) -> list[str]:
        kinds = {column.kind: column.name for column in columns}
        drawn = [[], [], ["name"], ["n", "name"]]
        if self.is_iceberg:
            drawn += [["bucket[4](id)"], ["truncate[1](name)", "n"]]
            drawn += [[f"day({kinds['TIMESTAMP(6)']})"]] if "TIMESTAMP(6)" in kinds else []
            drawn += [[f"month({kinds['DATE']})"]] if "DATE" in kinds else []
        return self.choose.choice(drawn)

    def partitioning(self, partitions: Sequence[str], actor: str) -> tuple[str, dict[str, str]]:
        """The clause, and the option, that partition a table."""
        if not partitions:
            return "", {}
        if not any("(" in text for text in partitions):
            return f" PARTITIONED BY ({', '.join(partitions)})", {}
        told = [_transform(text, actor) for text in partitions]
        if actor == SPARK:
            return f" PARTITIONED BY ({', '.join(told)})", {}
        return "", {"sink.partitioning": ", ".join(told)}

    def draw_properties(self, actor: str) -> dict[str, str]:
        properties = {"k": "it is"} if self.choose.random() < 0.5 else {}
        if self.is_iceberg:
            if self.choose.random() < 0.6:
                properties |= MERGE_ON_READ
        else:
            if self.choose.random() < 0.7 and actor == SPARK:
                properties["delta.enableDeletionVectors"] = "true"
            if self.choose.random() < 0.3:
                properties["delta.enableChangeDataFeed"] = "true"
        return properties

    def clauses(self, table: Table, actor: str) -> str:
        """What follows the columns of CREATE TABLE."""
        by, more = self.partitioning(table.partitions, actor)
        told = {**table.properties, **more}
        if actor == SPARK and self.is_iceberg and self.choose.random() < 0.2:
            told["format-version"] = "3"
        comment = f" COMMENT '{table.comment}'" if table.comment else ""
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in told.items())
        if actor == SPARK:
            using = " USING iceberg" if self.is_iceberg else " USING delta"
            return f"{using}{by}{comment}{f' TBLPROPERTIES ({pairs})' if pairs else ''}"
        return f"{comment}{by}{f' WITH ({pairs})' if pairs else ''}"

    def create_table(self) -> None:
        actor, name = self.actor(), self.free_name()
        columns = self.draw_columns()
        comment = self.choose.choice([None, "a table"])
        table = Table(State(columns, []), self.draw_partitions(columns), self.draw_properties(actor), comment)
        told = f"CREATE TABLE {self.named(name, actor)} ({self.declared(columns, actor)}){self.clauses(table, actor)}"
        if self.attempt(actor, told):
            self.tables[name] = table
            self.touched = name

    def selected(self, table: Table) -> list[Column]:
        """Copies of some columns, the first three among them, for a table from a query."""
        kept = [
            column for column in table.now.columns if column.name in ("id", "name", "n") or self.choose.random() < 0.7
        ]
        return copy.deepcopy(kept)

    def create_as(self, replace: str = "") -> None:
        source_name, source = self.table()
        actor, name = self.actor(), replace or self.free_name()
        columns = self.selected(source)
        for column_ in columns:
            if actor == SPARK:
                column_.may_be_null = True
            if actor == HERE:
                column_.comment = None
        partitions = self.choose.choice([[], ["name"]])
        table = Table(State(columns, copy.deepcopy(source.now.rows)), partitions, self.draw_properties(actor))
        verb = "CREATE OR REPLACE TABLE" if replace else "CREATE TABLE"
        listed = ", ".join(column_.name for column_ in columns)
        told = (
            f"{verb} {self.named(name, actor)}{self.clauses(table, actor)} AS "
            f"SELECT {listed} FROM {self.named(source_name, actor)}"
        )
        if self.attempt(actor, told):
            if replace:
                before = self.tables[name]
                if actor == SPARK and self.is_iceberg:  # which keeps what it does not replace
                    table.properties = {**before.properties, **table.properties}
                    table.comment = table.comment or before.comment
                else:
                    table.gone_properties = before.properties.keys() - table.properties.keys()
                table.versions, table.tags, table.branches = before.versions, before.tags, {}
                table.repartitioned = True
            self.tables[name] = table
            self.touched = name

    def replace_table(self) -> None:
        self.create_as(self.choose.choice(sorted(self.tables)))

    def create_like(self) -> None:
        source_name, source = self.table()
        name = self.free_name()
        table = Table(State(copy.deepcopy(source.now.columns), []), source.partitions, dict(source.properties))
        table.comment = source.comment
        if self.attempt(HERE, f"CREATE TABLE {name} LIKE {source_name}"):
            self.tables[name] = table
            self.touched = name

    def drop_table(self) -> None:
        name, _ = self.table()
        actor = self.actor(HERE, SPARK, LIBRARY) if self.lake.is_catalog else self.actor(HERE, LIBRARY)
        if actor == LIBRARY:
            self.told = f"library: drop {name}"
            self.attempt(actor, lambda: self.lake.drop(name))
        else:
            self.attempt(actor, f"DROP TABLE {self.named(name, actor)}")
        del self.tables[name]

    def rename_table(self) -> None:
        name, _ = self.table()
        if not self.lake.renames:
            return
        actor = self.actor() if self.lake.is_catalog else HERE
        database = name.partition(".")[0]
        new = f"{database}.t{next(self.numbers)}"
        target = new if actor == SPARK else new.partition(".")[2]
        if self.attempt(actor, f"ALTER TABLE {self.named(name, actor)} RENAME TO {target}"):
            self.tables[new] = self.tables.pop(name)
            self.touched = new

    # --- columns and properties ---------------------------------------------------------------------------------------

    def add_column(self) -> None:
        name, table = self.table()
        actor = self.actor(HERE, SPARK, LIBRARY)
        kind = self.choose.choice(["BIGINT", "INT", "STRING"] if actor == LIBRARY else list(TYPES))
        added, told = self.new_column(kind), self.named(name, actor)
        if actor == LIBRARY:
            self.told = f"library: add {added} to {name}"
            done = self.attempt(actor, lambda: self.lake.add_column(name, added))
        elif actor == HERE:
            done = self.attempt(actor, f"ALTER TABLE {told} ADD ({self.declaration(added, actor)})")
        else:
            done = self.attempt(actor, f"ALTER TABLE {told} ADD COLUMNS ({self.declaration(added, actor)})")
        if done:
            table.now.columns.append(added)

    def other_column(self, table: Table) -> Column | None:
        used = " ".join(table.partitions)
        columns = [c for c in table.now.columns if c.name not in ("id", "name", "n") and c.name not in used]
        return self.choose.choice(columns) if columns else None

    def drop_column(self) -> None:
        name, table = self.table()
        dropped, actor = self.other_column(table), self.actor()
        if dropped is None or table.repartitioned:
            return
        word = "DROP COLUMN" if actor == SPARK else "DROP"
        if self.attempt(actor, f"ALTER TABLE {self.named(name, actor)} {word} {dropped.name}"):
            table.now.columns.remove(dropped)

    def rename_column(self) -> None:
        name, table = self.table()
        renamed, actor = self.other_column(table), self.actor()
        if renamed is None:
            return
        word, new = "RENAME COLUMN" if actor == SPARK else "RENAME", f"r{next(self.numbers)}"
        if self.attempt(actor, f"ALTER TABLE {self.named(name, actor)} {word} {renamed.name} TO {new}"):
            renamed.name = new

    def modify_column(self) -> None:
        """Give a column another comment, a wider type, or NULL."""
        name, table = self.table()
        actor = self.actor()
        told = self.named(name, actor)
        changed = self.other_column(table)
        if changed is None:
            return
        after = copy.copy(changed)
        what = self.choose.choice(["comment", "type", "null"])
        wider = {"INT": "BIGINT", "FLOAT": "DOUBLE", "DECIMAL(9, 2)": "DECIMAL(12, 2)"}
        if what == "type" and changed.kind in ("INT", "FLOAT"):
            after.kind = wider[changed.kind]
            spark = f"ALTER TABLE {told} ALTER COLUMN {after.name} TYPE {TYPES[after.kind][0]}"
        elif what == "null" and not changed.may_be_null:
            after.may_be_null = True
            spark = f"ALTER TABLE {told} ALTER COLUMN {after.name} DROP NOT NULL"
        else:
            after.comment = f"new {next(self.numbers)}"
            spark = f"ALTER TABLE {told} ALTER COLUMN {after.name} COMMENT '{after.comment}'"
        here = f"ALTER TABLE {told} MODIFY {self.declaration(after, HERE)}"
        if self.attempt(actor, spark if actor == SPARK else here):
            changed.kind, changed.may_be_null, changed.comment = after.kind, after.may_be_null, after.comment

    def set_property(self) -> None:
        name, table = self.table()
        actor = self.actor()
        key, value = self.choose.choice(["k", "l"]), f"v{next(self.numbers)}"
        word = "SET TBLPROPERTIES" if actor == SPARK else "SET"
        if self.attempt(actor, f"ALTER TABLE {self.named(name, actor)} {word} ('{key}' = '{value}')"):
            table.properties[key] = value
            table.gone_properties.discard(key)

    def unset_property(self) -> None:
        name, table = self.table()
        actor = self.actor()
        if "k" not in table.properties:
            return
        word = "UNSET TBLPROPERTIES" if actor == SPARK else "RESET"
        if self.attempt(actor, f"ALTER TABLE {self.named(name, actor)} {word} ('k')"):
            del table.properties["k"]
            table.gone_properties.add("k")

    def comment_table(self) -> None:
        """Spark alone: SQL here has no statement for it."""
        name, table = self.table()
        told = f"told {next(self.numbers)}"
        if self.is_iceberg:
            done = self.attempt(SPARK, f"COMMENT ON TABLE {self.named(name, SPARK)} IS '{told}'")
        else:
            done = self.attempt(SPARK, f"ALTER TABLE {self.named(name, SPARK)} SET TBLPROPERTIES ('l' = '{told}')")
            table.properties["l"] = told
            return
        if done:
            table.comment = told

    def repartition(self) -> None:
        name, table = self.table()
        actor = self.actor()
        new = self.choose.choice(["bucket[4](id)", "truncate[1](name)", "name"])
        if new in table.partitions or table.repartitioned:
            return
        if actor == SPARK:
            told = f"ALTER TABLE {self.named(name, actor)} ADD PARTITION FIELD {_transform(new, actor)}"
        else:
            all_ = ", ".join(_transform(text, actor) for text in [*table.partitions, new])
            told = f"ALTER TABLE {name} SET ('sink.partitioning' = '{all_}')"
        if self.attempt(actor, told):
            table.partitions = [*table.partitions, new]
            table.repartitioned = True

    # --- rows ---------------------------------------------------------------------------------------------------------

    def insert(self) -> None:
        name, table = self.table()
        actor = self.actor()
        new = self.new_rows(table, actor)
        if self.attempt(actor, f"INSERT INTO {self.named(name, actor)} {self.values(table.now.columns, new, actor)}"):
            table.now.rows += new

    def append(self) -> None:
        name, table = self.table()
        new = self.new_rows(table, LIBRARY)
        self.told = f"library: append {new} to {name}"
        if self.attempt(LIBRARY, lambda: self.lake.append(name, table.now.columns, new)):
            table.now.rows += new

    def base(self, table: Table, row: Row) -> tuple[Any, Any, Any]:
        id_, text, n = (row.get(table.column(name).key) for name in ("id", "name", "n"))
        return id_, text, n

    def delete(self) -> None:
        name, table = self.table()
        actor, (sql, test) = self.actor(), draw_condition(self.choose)
        if self.attempt(actor, f"DELETE FROM {self.named(name, actor)} WHERE {sql}"):
            table.now.rows = [row for row in table.now.rows if test(*self.base(table, row)) is not True]

    def delete_there(self) -> None:
        name, table = self.table()
        number = self.choose.randrange(8)
        self.told = f"library: delete id {number} of {name}"
        if self.attempt(LIBRARY, lambda: self.lake.delete_id(name, number)):
            table.now.rows = [row for row in table.now.rows if self.base(table, row)[0] != number]

    def update(self) -> None:
        name, table = self.table()
        actor, (sql, test) = self.actor(), draw_condition(self.choose)
        number, other = table.column("n").key, self.other_column(table)
        more, value = "", None
        if other is not None:
            value = self.new_value(other, actor)
            more = f", {other.name} = {literal(value, other.kind, actor == SPARK)}"
        if self.attempt(actor, f"UPDATE {self.named(name, actor)} SET n = n + 1{more} WHERE {sql}"):
            for row in table.now.rows:
                if test(*self.base(table, row)):
                    row[number] = None if row.get(number) is None else row[number] + 1
                    if other is not None:
                        row[other.key] = value

    def merge(self) -> None:
        name, table = self.table()
        actor = self.actor()
        first = [table.column(each) for each in ("id", "name", "n")]
        source: dict[int, Row] = {}
        for row in self.new_rows(table, actor):
            row[first[0].key] = self.choose.randrange(8)
            source[row[first[0].key]] = row
        others = [column for column in table.now.columns if column not in first]
        wanted = first if all(column.may_be_null for column in others) else table.now.columns
        listed = ", ".join(column.name for column in wanted)
        told = (
            f"MERGE INTO {self.named(name, actor)} AS t USING (SELECT * FROM "
            f"({self.values(wanted, list(source.values()), actor)}) AS v({listed})) AS s ON t.id = s.id "
            "WHEN MATCHED AND s.n IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name "
            f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({', '.join(f's.{c.name}' for c in wanted)})"
        )
        if not self.attempt(actor, told):
            return
        present, kept = {row.get(first[0].key) for row in table.now.rows}, []
        for row in table.now.rows:
            match = source.get(row.get(first[0].key))  # type: ignore[arg-type]
            if match is None or match[first[2].key] is not None:
                kept.append(row if match is None else {**row, first[1].key: match[first[1].key]})
        inserted = (row for number, row in source.items() if number not in present)
        kept += [{column.key: row[column.key] for column in wanted} for row in inserted]
        table.now.rows = kept

    def overwrite(self) -> None:
        name, table = self.table()
        if table.repartitioned:
            return
        actor = self.actor()
        new = self.new_rows(table, actor)
        told = f"INSERT OVERWRITE {self.named(name, actor)} {self.values(table.now.columns, new, actor)}"
        if self.attempt(actor, told):
            replaced = set(map(table.partition_of, new))
            kept = [row for row in table.now.rows if table.partition_of(row) not in replaced]
            table.now.rows = (kept if table.partitions else []) + new

    def truncate(self) -> None:
        name, table = self.table()
        actor = self.actor() if self.is_iceberg else HERE
        if self.attempt(actor, f"TRUNCATE TABLE {self.named(name, actor)}"):
            table.now.rows = []

    # --- branches and tags --------------------------------------------------------------------------------------------

    def create_tag(self) -> None:
        name, table = self.table()
        if self.lake.version(name) is None:
            return
        actor, tag = self.actor(), f"tag{next(self.numbers)}"
        if self.attempt(actor, f"ALTER TABLE {self.named(name, actor)} CREATE TAG {tag}"):
            version = self.lake.version(name)
            assert version is not None
            table.tags[tag] = copy.deepcopy(table.versions[version])

    def create_branch(self) -> None:
        name, table = self.table()
        if self.lake.version(name) is None or table.branches:
            return
        actor, branch = self.actor(), f"branch{next(self.numbers)}"
        if self.attempt(actor, f"ALTER TABLE {self.named(name, actor)} CREATE BRANCH {branch}"):
            table.branches[branch] = copy.deepcopy(table.now.rows)

    def write_branch(self) -> None:
        name, table = self.table()
        if not table.branches:
            return
        actor, branch = self.actor(), next(iter(table.branches))
        target = f"{self.named(name, SPARK)}.branch_{branch}"
        target = target if actor == SPARK else f"{name} /*+ OPTIONS('branch' = '{branch}') */"
        if self.choose.random() < 0.5:
            new = self.new_rows(table, actor)
            if self.attempt(actor, f"INSERT INTO {target} {self.values(table.now.columns, new, actor)}"):
                table.branches[branch] += new
            return
        sql, test = draw_condition(self.choose)
        if self.attempt(actor, f"DELETE FROM {target} WHERE {sql}"):
            kept = [row for row in table.branches[branch] if test(*self.base(table, row)) is not True]
            table.branches[branch] = kept


def _transform(text: str, actor: str) -> str:
    """`bucket[4](id)` in the words of SQL."""
    kind, _, name = text.removesuffix(")").rpartition("(")
    if not kind:
        return name
    word, _, number = kind.removesuffix("]").partition("[")
    if number:
        return f"{word}({number}, {name})"
    return f"{word}{'s' if actor == SPARK else ''}({name})"


def same_rows(who: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise for other rows, and tell those that differ."""
    more = list((collections.Counter(found) - collections.Counter(wanted)).elements())
    fewer = list((collections.Counter(wanted) - collections.Counter(found)).elements())
    assert (more, fewer) == ([], []), f"{who}: has {more} and lacks {fewer}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spark-python", required=True, help="a Python that has pyspark 4.0")
    parser.add_argument("--packages", default=PACKAGES, help="what Spark fetches, as spark.jars.packages names it")
    parser.add_argument("--kind", choices=["iceberg", "delta"], default="iceberg")
    parser.add_argument("--operations", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    told = parser.parse_args(arguments)
    print(f"seed {told.seed}", flush=True)
    choose = random.Random(told.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lake: IcebergLake | DeltaLake
        if told.kind == "delta":
            lake = DeltaLake(folder)
        elif choose.random() < 0.3:
            lake = IcebergLake(folder, None)
        else:
            lake = IcebergLake(folder, stack.enter_context(postgres_server()).jdbc_url().removeprefix("jdbc:"))
        judge = stack.enter_context(closing(Judge(lake, folder, told.spark_python, told.packages, choose)))
        for number in range(told.operations):
            print(number, judge.step(), flush=True)
        print(f"{sum(judge.done.values())} operations on {told.kind}: all three agree; refused: {dict(judge.refused)}")


if __name__ == "__main__":
    main(sys.argv[1:])
