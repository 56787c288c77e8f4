"""Syntax trees of statements other than queries. `kind` is Calcite's name for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.sql.data.types import DataType
from penstock.sql.parser.syntax import Expression, Hint, Query, Relation

Path = tuple[str, ...]
#: Options as written, in order.
Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The base class of statements."""

    kind: ClassVar[str] = "OTHER"
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class QueryStatement(Statement):
    """A query."""

    query: Query

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The kind of the query."""
        return self.query.kind


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    """INSERT INTO or INSERT OVERWRITE. `partition`: values of partition columns; `conflict`: ON CONFLICT."""

    kind: ClassVar = "INSERT"
    path: Path
    query: Query
    columns: tuple[Path, ...] = ()
    partition: tuple[tuple[str, Expression], ...] = ()
    hints: tuple[Hint, ...] = ()
    overwrites: bool = False
    upserts: bool = False
    conflict: str | None = None


@dataclass(frozen=True, slots=True)
class StatementSet(Statement):
    """Several INSERTs that run as one job."""

    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True)
class BeginStatementSet(Statement):
    """BEGIN STATEMENT SET: collects the INSERTs up to END."""


@dataclass(frozen=True, slots=True)
class EndStatementSet(Statement):
    """END: runs the collected INSERTs as one job."""


@dataclass(frozen=True, slots=True)
class Execute(Statement):
    """EXECUTE a statement."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class ExecutePlan(Statement):
    """EXECUTE PLAN or COMPILE (AND EXECUTE) PLAN: a plan in a file, optionally compiled from a statement."""

    file: str
    statement: Statement | None = None
    compiles: bool = False
    executes: bool = True
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN, with the requested details. `runs`: EXPLAIN ANALYZE, which runs the statement and shows its figures."""

    kind: ClassVar = "EXPLAIN"
    statement: Statement
    details: tuple[str, ...] = ()
    runs: bool = False


@dataclass(frozen=True, slots=True)
class Update(Statement):
    """UPDATE."""

    kind: ClassVar = "UPDATE"
    path: Path
    assignments: tuple[tuple[str, Expression], ...]
    where: Expression | None = None
    alias: str | None = None
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    """DELETE."""

    kind: ClassVar = "DELETE"
    path: Path
    where: Expression | None = None
    alias: str | None = None
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN … THEN … of MERGE.

    Attributes:
        matches: MATCHED, NOT MATCHED (rows of the source alone) or NOT MATCHED BY SOURCE (rows of the table alone).
        action: UPDATE, DELETE, INSERT or DO NOTHING.
        condition: the condition after AND.
        assignments: of UPDATE and INSERT; empty for `*`, which takes the columns of the source by name.
    """

    matches: str
    action: str
    condition: Expression | None = None
    assignments: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class Merge(Statement):
    """MERGE INTO a table USING a relation."""

    kind: ClassVar = "MERGE"
    path: Path
    source: Relation
    condition: Expression
    clauses: tuple[MergeClause, ...]
    alias: str | None = None
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    """TRUNCATE TABLE."""

    path: Path


@dataclass(frozen=True, slots=True)
class CallProcedure(Statement):
    """CALL."""

    kind: ClassVar = "PROCEDURE_CALL"
    call: Expression


@dataclass(frozen=True, slots=True)
class Analyze(Statement):
    """ANALYZE TABLE."""

    kind: ClassVar = "OTHER_DDL"
    path: Path
    partition: tuple[tuple[str, Expression | None], ...] = ()
    #: None for no columns, an empty tuple for all
    columns: tuple[str, ...] | None = None


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A column: one of `type`, one computed by `expression`, or one of the connector's `metadata` (its key)."""

    path: Path
    type: DataType | None = None
    expression: Expression | None = None
    metadata: str | None = None
    is_metadata: bool = False
    is_virtual: bool = False
    is_primary: bool = False
    is_enforced: bool | None = None
    constraint: str | None = None
    comment: str | None = None
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Watermark:
    """WATERMARK FOR column AS expression."""

    column: Path
    expression: Expression


@dataclass(frozen=True, slots=True)
class KeyConstraint:
    """PRIMARY KEY or UNIQUE. `is_enforced`: None if not specified."""

    columns: tuple[str, ...]
    name: str | None = None
    is_unique: bool = False
    is_enforced: bool | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """DISTRIBUTED BY. `kind`: HASH, RANGE or None."""

    kind: str | None = None
    columns: tuple[str, ...] = ()
    buckets: int | None = None


@dataclass(frozen=True, slots=True)
class Like:
    """LIKE table, and pairs that select the parts to copy, such as (`INCLUDING`, `ALL`)."""

    path: Path
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements in the parentheses of CREATE TABLE."""

    columns: tuple[Column, ...] = ()
    constraints: tuple[KeyConstraint, ...] = ()
    watermarks: tuple[Watermark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Statement):
    """CREATE TABLE, or REPLACE TABLE (`is_replace`). `query`: fills the table."""

    path: Path
    elements: Elements = Elements()
    #: column names without types, before a query
    names: tuple[str, ...] = ()
    comment: str | None = None
    distribution: Distribution | None = None
    partition_keys: tuple[str, ...] = ()
    options: Options = ()
    like: Like | None = None
    query: Query | None = None
    is_temporary: bool = False
    if_not_exists: bool = False
    replaces: bool = False
    is_replace: bool = False

    @property
    def kind(self) -> str:  # type: ignore[override]
        """CREATE_TABLE; OTHER_DDL for REPLACE TABLE, and for CREATE OR REPLACE TABLE of a query."""
        return "OTHER_DDL" if self.replaces and self.query is not None else "CREATE_TABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMaterializedTable(CreateTable):
    """CREATE MATERIALIZED TABLE, or CREATE OR ALTER (`alters`): a table that its query keeps up to date."""

    freshness: Expression | None = None
    refresh_mode: str | None = None
    #: FROM_NOW, RESUME_OR_FROM_TIMESTAMP … and the operand of those modes that take one
    start_mode: tuple[str, Expression | None] | None = None
    alters: bool = False

    @property
    def kind(self) -> str:  # type: ignore[override]
        """CREATE_TABLE; OTHER_DDL for CREATE OR ALTER."""
        return "OTHER_DDL" if self.alters else "CREATE_TABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(Statement):
    """CREATE VIEW. `text`: the original text of the query."""

    kind: ClassVar = "CREATE_VIEW"
    path: Path
    query: Query
    text: str
    columns: tuple[str, ...] = ()
    comment: str | None = None
    is_temporary: bool = False
    if_not_exists: bool = False
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable(Statement):
    """ALTER TABLE, with a list of actions."""

    kind: ClassVar = "ALTER_TABLE"
    path: Path
    actions: tuple[AlterAction, ...]
    if_exists: bool = False
    is_materialized: bool = False
    partition: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class AlterAction:
    """One change: `ADD COLUMN`, `MODIFY WATERMARK`, `RENAME TO` …. The verb determines the fields that are set."""

    verb: str
    names: tuple[Path, ...] = ()
    column: Column | None = None
    #: FIRST, or AFTER a column
    position: str | None = None
    constraint: KeyConstraint | None = None
    watermark: Watermark | None = None
    distribution: Distribution | None = None
    options: Options = ()
    partition: tuple[tuple[str, Expression], ...] = ()
    if_exists: bool = False
    query: Query | None = None
    freshness: Expression | None = None
    refresh_mode: str | None = None
    reference: VersionReference | None = None


@dataclass(frozen=True, slots=True)
class VersionReference:
    """A branch or a tag of a table, for CREATE, REPLACE and DROP.

    Attributes:
        name: its name.
        version: the snapshot that it names; None for the newest one.
        age_ms: how long the branch or tag is kept.
        snapshots: how many snapshots a branch keeps at least.
        snapshot_age_ms: how long a branch keeps snapshots.
        replaces: whether OR REPLACE was written.
        if_not_exists: whether an existing one is left as it is.
    """

    name: str
    version: int | None = None
    age_ms: int | None = None
    snapshots: int | None = None
    snapshot_age_ms: int | None = None
    replaces: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterView(Statement):
    """ALTER VIEW: RENAME TO another, or AS another query."""

    kind: ClassVar = "ALTER_VIEW"
    path: Path
    renamed: Path = ()
    query: Query | None = None


# --- everything else -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(Statement):
    """CREATE FUNCTION. `language`: PYTHON, JAVA or SCALA."""

    kind: ClassVar = "CREATE_FUNCTION"
    path: Path
    target: str
    language: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    options: Options = ()
    is_temporary: bool = False
    is_system: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterFunction(CreateFunction):
    """ALTER FUNCTION."""

    kind: ClassVar = "OTHER_DDL"
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(Statement):
    """CREATE CATALOG, DATABASE, MODEL or CONNECTION (`what`)."""

    kind: ClassVar = "OTHER_DDL"
    what: str
    path: Path
    options: Options = ()
    comment: str | None = None
    if_not_exists: bool = False
    is_temporary: bool = False
    replaces: bool = False
    inputs: tuple[Column, ...] = ()
    outputs: tuple[Column, ...] = ()
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class Alter(Statement):
    """ALTER CATALOG, DATABASE, MODEL or CONNECTION (`what`): SET or RESET options, a COMMENT, or RENAME TO (`verb`)."""

    kind: ClassVar = "OTHER_DDL"
    what: str
    path: Path
    verb: str
    options: Options = ()
    keys: tuple[str, ...] = ()
    text: str | None = None
    renamed: Path = ()
    if_exists: bool = False


_DROPS = {"TABLE": "DROP_TABLE", "MATERIALIZED TABLE": "DROP_TABLE", "VIEW": "DROP_VIEW", "FUNCTION": "DROP_FUNCTION"}


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """DROP TABLE, VIEW, FUNCTION, CATALOG, … (`what`). `behaviour`: RESTRICT or CASCADE."""

    what: str
    path: Path
    if_exists: bool = False
    is_temporary: bool = False
    is_system: bool = False
    behaviour: str | None = None

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The kind for the dropped object."""
        return _DROPS.get(self.what, "OTHER_DDL")


@dataclass(frozen=True, slots=True)
class Use(Statement):
    """USE a database, CATALOG or MODULES."""

    what: str
    paths: tuple[Path, ...]

    @property
    def kind(self) -> str:  # type: ignore[override]
        """OTHER_DDL; OTHER for modules."""
        return "OTHER" if self.what == "MODULES" else "OTHER_DDL"


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """SHOW `what`: TABLES, CREATE TABLE, CURRENT CATALOG, … of a path, filtered by a pattern."""

    what: str
    path: Path = ()
    pattern: str | None = None
    pattern_kind: str = "LIKE"
    is_negated: bool = False
    partition: tuple[tuple[str, Expression], ...] = ()

    @property
    def kind(self) -> str:  # type: ignore[override]
        """OTHER_DDL for SHOW CREATE; otherwise OTHER."""
        return "OTHER_DDL" if self.what.startswith("CREATE ") else "OTHER"


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """DESCRIBE a table, CATALOG, FUNCTION, … (`what`)."""

    what: str
    path: Path
    is_extended: bool = False

    @property
    def kind(self) -> str:  # type: ignore[override]
        """DESCRIBE_TABLE for a table, OTHER_DDL for a catalog; otherwise OTHER."""
        return "DESCRIBE_TABLE" if self.what == "TABLE" else "OTHER_DDL" if self.what == "CATALOG" else "OTHER"


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """SET an option, or show all; RESET an option, or all."""

    key: str | None = None
    value: str | None = None
    resets: bool = False


@dataclass(frozen=True, slots=True)
class LoadModule(Statement):
    """LOAD MODULE, or UNLOAD MODULE."""

    kind: ClassVar = "OTHER"
    name: str
    options: Options = ()
    unloads: bool = False


@dataclass(frozen=True, slots=True)
class JarStatement(Statement):
    """ADD JAR or REMOVE JAR, which Python jobs do not need."""

    kind: ClassVar = "OTHER_DDL"
    file: str
    removes: bool = False


@dataclass(frozen=True, slots=True)
class JobStatement(Statement):
    """STOP JOB, DESCRIBE JOB, or EXPLAIN ANALYZE JOB (`verb`: ANALYZE). `options`: how to stop it."""

    verb: str
    job_id: str
    options: tuple[str, ...] = ()

    @property
    def kind(self) -> str:  # type: ignore[override]
        """OTHER_DDL for STOP JOB; otherwise OTHER."""
        return "OTHER_DDL" if self.verb == "STOP" else "OTHER"


@dataclass(frozen=True, slots=True)
class ShellCommand(Statement):
    """QUIT, CLEAR or HELP, which the shell runs."""

    command: str
