"""Whole-database pipelines: the tables of a database, with their changes and the changes of their schemas, to a target.

`penstock cdc pipeline.yaml` runs a pipeline in the form of Flink CDC 3.x: source, transform, route, sink.

**One job for all tables.**

    source ──by source table──▶ transform, route ──by sink table──▶ evolution ──▶ sink writer ══▶ one committer

The source emits the events of all tables (`penstock.connectors.cdc.events`). The transform (`transform`, `operators`)
is keyed by source table and the evolution (`schemas`, `operators`) by sink table. The sink is chained to the evolution,
so that one subtask has all events of a sink table, in the order of the log: FIFO channels keep the order of each source
table, and rows of two source tables that are routed into one sink table have no order to keep. Hundreds of tables are
keys of these operators, no operators of their own.

**Schema changes keep their place among the rows.** A change of a source table is one more event of its key. The
transform compiles the rules again and translates the change. The evolution derives the changes of the
sink table by `schema.change.behavior`, and from then on converts rows to the new schema. The writer (`sinks`) collects
for each sink table a list of *steps* in order: rows under a schema, a change of the schema, rows under the next one.

**Exactly once.** Neither rows nor schema changes touch the target before their checkpoint is complete. The steps are
the committables of the checkpoint: they are stored with it, and then one committer applies the steps of each table one
after another. Each step has a name (the run of the writer and a number) that its commit leaves in the target, in the
same transaction: in the ledger of an Iceberg table, as an application transaction of Delta Lake, in a table of
PostgreSQL or MySQL. A commit that is repeated after a failure finds the names and continues after them. So a job that
is killed between two steps, or before it hears of a commit, applies each of them once. A change that cannot leave its
name (MySQL commits before each DDL statement) looks at the target first. Kafka has no schemas to change: its sink
writes the rows in transactions.

The alternative, flushing all sinks and altering the target while the stream waits, as Flink CDC does, makes changes
visible before their checkpoint: after a failure the rows before them come again, to a table that has another schema.

| file | contents |
| --- | --- |
| `definition` | YAML → `PipelineDefinition`, errors by file, line and key |
| `tables` | table patterns, routes |
| `expressions`, `transform` | SQL and Python functions on the rows of a table |
| `schemas` | schema evolution of a sink table |
| `operators` | the two keyed functions |
| `sources`, `sinks`, `lake_targets`, `sql_targets`, `kafka_messages` | the connectors by their `type` |
| `pipeline` | the job; what `--dry-run` shows |
"""
