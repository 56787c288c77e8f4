"""Changes of a table of PostgreSQL: its rows first, and then what the log says.

**What is guaranteed.** Each change of the table comes once, in the order of its key, through failures of any part at
any time (G8). The rows that the snapshot gives, with the changes that follow, are the table.

**The snapshot and the log fit together by transactions.** Flink's connector reads chunks between two positions of the
log, as DBLog does; another way is to hold the one snapshot that the server exports when it makes a slot. Both were
weighed. The exported snapshot is lost with its connection, so a snapshot that fails after five hours begins anew.
Positions in the log do not say exactly what a snapshot shows: a transaction is written there before it can be seen. So
neither is used.

- The slot is made first. From then on the server keeps the log.
- The table is read in chunks in the order of its primary key, each in a transaction of its own, which knows its
  snapshot: the transactions that it sees (`pg_current_snapshot()`).
- The log begins with what came after the slot was made. A change of a row counts only if its transaction was *not* seen
  by the snapshot of the chunk in which the row's key lies; otherwise the chunk has it. A row that moved to another key
  goes by the old key where it was, and by the new one where it is.
- No transaction that a snapshot has seen was committed after the position of the log at that moment. When the log is
  past the last of these positions, the chunks are forgotten, and nothing is asked any more.

**Restarts in the middle.** The state has the ranges of keys that were handed out, each with its snapshot, and the last
key. A reader goes on behind that key, with a new snapshot for what follows. Ranges of one snapshot are one, so a table
that nobody writes has one range. In the log a position is the end of the last whole transaction, and how many changes
of the next one were handed out: the server sends a transaction the same way each time.

**One reader.** The rows of a key must not overtake each other, and two readers would need a barrier between the
snapshot and the log. One reader gives hundreds of thousands of rows a second, more than a server writes.

**The slot.** The server may forget the log up to the position that a completed checkpoint has, less the last few
(`lsn_commit_delay`), so that a job can begin from one of these. Where a table is quiet, the reader asks the server how
far it has come, and its position goes on. When the job ends the slot stays, for the next one; a slot that nobody reads
keeps the log until the disk is full, or up to `max_slot_wal_keep_size`, after which it is lost.
"""
