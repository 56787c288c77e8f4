"""Micro-batch execution: the operators of a job run epoch by epoch, each between two checkpoints (I1, G8).

Theory. An epoch is the plain algorithm that barrier snapshots improve on: stop, drain, snapshot, go on. Every task is
restored from the last checkpoint, reads what is there, and stores its state as the next checkpoint. Vertices run one
after the other, so nothing is in flight when an epoch ends, and no barrier is needed. The checkpoint is complete when
every task's part is stored. Only then do sinks commit what they have prepared, before the next epoch begins and before
the previous checkpoint is deleted. `SinkOperator` commits again what a checkpoint of another run holds, so a crash in
between loses nothing. An epoch that fails runs again from the same checkpoint.

Checkpoints are those of streaming, by operator id and key group: a job may go on in either tempo.

Event time. Tasks tell the tasks after them, and the coordinator, how far each operator's watermark has come, and the
next epoch begins there. So the same records are late as if the job had never stopped. Checkpoints hold event time too,
so it also carries over from one run to the next (`event_time`). A watermark takes effect when the epoch's records have
been processed.

Idleness. Where the driver deals a source's records out, batch by batch, a subtask that gets none of a batch is idle.
Event time does not wait for it, and it takes over the watermark of the active subtasks of its vertex. A batch of which
no subtask gets anything leaves event time where it is. A task is idle too when all its producers are.
"""
