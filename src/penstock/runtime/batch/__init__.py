"""Batch execution: the operators of a bounded job, each vertex run from its first record to its last (I1, I2).

Theory. In streaming, all vertices run at once, and a keyed operator's state is indexed by key. In batch, a
vertex begins when its upstream vertices have ended, so its input can be sorted. A keyed operator receives its
records key by key, in time order. After a key's last record, the operator fires everything that it holds for
the key (`end_keys`) and forgets it. Keys with few records end several at a time, if they arrived in the same
rows. A running reduce emits only the last value of a key. Event time stands still until then, as in Flink: no
watermark passes before the end, and no record is late. Batch jobs do not take checkpoints: a failed task runs
again from its input. Nothing is committed before all tasks of the job have ended.

The transport between tasks (Spark, or a list) needs to know only three columns: a row's destination, and the
two that sort a task's rows (`exchange`). All output for the client (committables, collected records, figures)
is rows as well, and counts only when the job has completed. So a task that Spark runs twice leaves no trace.
Each run of a task has names of its own for everything that it writes, files and state (`run` of its context).
If a task's rows do not reach the client, its accumulators travel with the records to one consumer, which passes
them on, so they count where the records do.
"""
