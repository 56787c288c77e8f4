"""The runtime without IO: events in, commands out, deterministic.

Nothing in this package uses a clock, a socket, a thread, a file or a random number. The runtime reaches the
outside world through the protocols of `penstock.runtime.ports`, which the drivers implement. So the same
classes run in one process, as Spark tasks, and in a simulated cluster with virtual time and injected faults.

**Batches.** A batch is a list of values with a parallel list of timestamps, or Arrow columns (`columns`). Loops
inside an operator keep state, timers and order record by record; between operators nothing happens per record.
So a job runs at nearly the speed of a plain Python loop.

**Row kinds.** A batch may carry a kind for each record, one byte each in `Batch.kinds`: an insert (+I), the
previous row of an update (-U), its new row (+U), or a delete (-D). So a stream can be the changelog of a table.
Kinds travel with their records: through partitioners and channels, over the wire, in the exchanges of batches
and epochs, and with records in flight. A `Row` knows its own kind, so a batch of rows needs no separate bytes.
Columns and plain tuples do not, so their batches carry the bytes, and rows made from such columns return their
kind from `get_row_kind()`. A batch without kinds holds only inserts; nothing is stored, sent or checked for it.

**Sizes.**

| size | value | reason |
| --- | --- | --- |
| records that a source emits at a time | 4,096 | the cost of a batch is negligible, and a step takes about 1 ms |
| records in a network buffer, at most | 4,096 | the same; a buffer leaves sooner if its task is idle |
| buffers in flight on a channel | 2 | enough to keep both ends busy; limits what alignment can hold back |
| full buffers of a channel that wait for credit | 2 | then the task takes no more input |
| key groups | 128 | Flink's default; the upper limit of parallelism |
"""
