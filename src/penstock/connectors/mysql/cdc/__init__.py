"""Change data capture of MySQL and MariaDB: tables, and then their log, exactly once.

**The snapshot** needs no locks. The enumerator splits each table into chunks by the first column of its primary key.
Integers that are dense are split evenly between the least and the greatest; otherwise queries in key order find the
limits. Readers of any number read chunks: a position of the log (low), the rows, the position again (high). The changes
between the two are applied to the rows, which are then as of the high position (`connectors.cdc.incremental`). MariaDB
reports the position of a snapshot, so there the two are equal. Text is compared by the server's collation weights, so
that a key belongs to the chunk whose query would return it.

**After the snapshot** the current end of the log is after all chunks. Each reader reads the log up to there, and emits
the changes of the keys of its chunks that are after their high positions. From there on one reader emits everything.
So no reader needs the chunk positions of other readers, and the state stays small however large the tables are. With
several readers, a checkpoint lies between the two, because records of different readers have no order otherwise.

**Positions** are the end of a transaction in a file of the log, the number of events and rows of the next transaction
that were emitted, and the GTIDs up to there. A restart reads that transaction again and skips them. It is exact in the
middle of a chunk too: rows of a chunk that were read and not emitted are part of the state. GTIDs serve on another
server, after a failover.

**Schemas.** The log has rows without names and types, and information_schema knows only the present. So the state has
the definitions of the tables at its position, and the statements of the log change them (`ddl`). A table that is
altered while its chunks are read is caught up with before the next chunk is emitted, see `reader`. A new table that
matches is captured from its CREATE TABLE on.

**Weaker promises.** A table without a primary key is one chunk. On MySQL, changes that are made while it is read may
come twice: in the rows, and again. The snapshot alone (`scan.startup.mode` = `snapshot`) has each chunk as of its own
position. A rescale while a table is altered in the snapshot may emit its old schema once more.

The parts: `binlog` receives and parses the log, `tables`, `values` and `packed_values` know definitions and types,
`ddl` the statements, `database` talks to the server, `source` has the enumerator and the splits, and `reader` the
reader.
"""
