"""Materialized tables: a table, the query that fills it, and its freshness, the maximum staleness of its rows.

**Freshness chooses the execution mode.** Below `penstock.materialized-table.micro-batch-threshold` a stream keeps the
table up to date, with a checkpoint per freshness; from there on a job in MICRO_BATCH, with an epoch per freshness; from
`materialized-table.refresh-mode.freshness-threshold` on, or with REFRESH_MODE = FULL, the embedded scheduler runs a
batch per freshness that replaces all rows (INSERT OVERWRITE), visible when its only commit has succeeded. It reads
unbounded tables up to their present end. The first two are what Flink calls CONTINUOUS: the job is `INSERT INTO table
query`, and its sink has to take the changes of the query.

**Storage.** The definition (`definition.Definition`) is a few options of the table, in its catalog: for the session
in a catalog in memory, permanently in one of files or of a lake. It also holds the refresh handler: the id of the last
job, and the savepoint from which the next one begins. Jobs and the schedule belong to the process that runs the
statements. When it has ended, RESUME takes the table over: a continuous job goes on with the newest checkpoint that it
left (`penstock.recovery.from-latest`), or else with its savepoint, and a schedule starts over.

**State is kept** (Flink starts over) when freshness or mode changes, and when the query changes but the ids of its
states do not: the job is stopped with a savepoint, and the next one begins from it, in either execution mode. A full
refresh has no state; the savepoint waits for the table to become continuous again. A job that starts there writes
changes that may be older than the rows, so this needs a primary key: by key, changes that are written again
lead to the same rows. Without one the table is emptied, and the job begins with its sources.

**Rows after a change of the query** come from the new query: where the connector can replace rows and there is a
primary key, a full refresh runs before the job (`Definition.first`). If state is kept elsewhere, the rows that are
there stay as in Flink. If state is lost and rows cannot be replaced, the statement is refused, because rows of both
queries would stand side by side.

The statements are in `penstock.sql.statements.materialized_tables`. A change that fails is taken back: columns,
definition and job are restored, and the job continues from its savepoint.
"""
