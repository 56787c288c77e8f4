"""Batch execution: the operators of a bounded job, each vertex run from its first record to its last (I1, I2).

Theory. In streaming all vertices run at once, and what a keyed operator holds is indexed by key. In batch a vertex
begins when those above it have ended, so its input can be sorted. Records of a keyed operator come key by key, in order
of time. When a key's last record has come, all that the operator holds for it is fired (`end_keys`) and forgotten.
Keys with few records end several at a time: those that came in the same rows.
Event time stands still until then, as in Flink: no watermark passes before the end, and no record is late. There are no
checkpoints: a task that failed runs again from its input. Nothing is committed before all tasks of the job have ended.

The carrier of the rows between tasks (Spark, or a list) needs to know three columns only: where a row goes, and the two
by which a task's rows are sorted (`rows`).
"""
