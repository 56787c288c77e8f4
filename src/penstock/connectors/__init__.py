"""Sources and sinks.

Files: `connectors.file.source`, `connectors.file.sink`. Generated records: `collection`, `number_sequence`,
`generator`, `nexmark`. Output to the client: `collect`. The interfaces that they implement are in
`penstock.runtime.connector`; `penstock.datastream.connectors` exports them under PyFlink's names.

A sink shows its output when the checkpoint that covers it is complete, and may be asked to commit again after
any failure, in another process. Each system needs its own answer to who owns prepared output, and who may
remove it. These modules give it, with the reasons:

- files (`file.part_files`): prepared output is a hidden file, and a commit renames it.
- files in S3 (`file.part_files`): a multipart upload to the final key, named by a hidden object; a commit
  completes it.
- Kafka (`kafka.transactions`): an open transaction of a producer of its own, which its id and epoch identify
  permanently. A commit is `EndTxn`, by any process that has the pair; the log decides where the broker has
  forgotten.
- Delta Lake (`delta.commits`): Parquet files that no version names; a commit is one version that adds them,
  with an application transaction for each writer.
- PostgreSQL (`postgres.ledger`): the rows, in the checkpoint; a commit is one transaction that writes them and
  the checkpoint's row in a ledger.
- Iceberg (`iceberg.ledger`): data files in no snapshot, or changes in the checkpoint; a commit is one snapshot,
  and a property of the table that names it.
"""
