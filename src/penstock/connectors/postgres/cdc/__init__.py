"""Change data capture of PostgreSQL tables: first their rows, then the changes in the log.

**Guarantees.** Each change of a table is emitted once, in the order of its key, through failures of any part at any
time (G8). The rows of the snapshot and the changes that follow add up to the table.

**Transactions align the snapshot with the log.** Flink's connector reads chunks between two positions of the log, as
DBLog does; an alternative is to hold the single snapshot that the server exports when it creates a slot. Both were
considered. The exported snapshot is lost with its connection, so a snapshot that fails after five hours starts over.
Log positions do not determine exactly which transactions a snapshot sees: a transaction is written to the log before it
becomes visible. So neither is used.

- The slot is created first. From then on the server keeps the log.
- Tables are read in chunks in the order of their primary keys, by all readers, each in its own transaction, which knows
  its snapshot: the transactions that it sees (`pg_current_snapshot()`). It locks the table (ACCESS SHARE) before it
  takes the snapshot, so that no ALTER TABLE and no TRUNCATE comes between.
- One reader then reads the log from the creation of the slot on. It knows the key ranges and snapshots of all chunks. A
  change of a row counts only if its transaction was *not* seen by the snapshot of the chunk that contains the row's
  key; otherwise the chunk already includes it. A row that moved to another key is judged by the old key at its old
  place, and by the new key at its new place.
- No transaction that a snapshot has seen was committed after the position of the log at that moment. When the log is
  past the last of these positions, the chunks of a table are forgotten, and the check ends.

**Rows that are read beside the log.** A table may appear later, a TRUNCATE may come between its chunks, its columns may
change. The reader of the log reads such rows, chunk by chunk. It skips changes of rows that are still to be read: their
snapshot must have seen the transactions that have passed by (`LogSplit.passed`), or it is taken again.

**Schemas** (`schemas.py`). A source of events has the schema of a table at the position of the log. A chunk whose table
has other columns is left to the reader of the log. It waits until the log is past the position where it saw these
columns; if the log has not sent them by then, no row has changed since, and the catalog's columns are adopted. A change
of a schema waits for the transactions that have changed rows, so rows of a chunk that were read after it contain all
changes with older columns.

**Restarts in the middle.** The state has the ranges of keys that were emitted, each with its snapshot, and the last
key. A reader continues after that key, with a new snapshot for the rest. Ranges with the same snapshot are merged, so a
table without concurrent writes has one range. A position in the log is the end of the last whole transaction, and the
number of changes of the next one that were emitted: the server sends a transaction the same way each time.

**One reader of the log.** The changes of a key must not overtake each other, and a slot has one reader.

**The slot.** The server may discard the log up to the position in a completed checkpoint, except for the last few
checkpoints (`lsn_commit_delay`), so that a job can start from one of these. If the tables are quiet, the reader asks
the server for its current position and advances to it. When the job ends the slot stays, for the next one; a slot
without a reader keeps the log until the disk is full, or up to `max_slot_wal_keep_size`, after which it is lost.
"""
