"""Micro-batch execution: the operators of a job run epoch by epoch, each between two checkpoints (I1, G8).

Theory. An epoch is the plain algorithm that barrier snapshots improve on: stop, drain, snapshot, continue. Every task
is restored from the last checkpoint, reads the available input, and stores its state as the next checkpoint. Vertices
run one after the other, so nothing is in flight when an epoch ends, and no barrier is needed. The checkpoint is
complete when every task's part is stored. Only then do sinks commit what they have prepared, before the next epoch
begins and before the previous checkpoint is deleted. `SinkOperator` commits again what a checkpoint of another run
holds, so a crash in between loses nothing. An epoch that fails runs again from the same checkpoint.

Checkpoints are the same as in streaming, by operator id and key group, so a job may continue in either execution mode.

Event time. Tasks report to downstream tasks and to the coordinator how far each operator's watermark has advanced, and
the next epoch begins there. So the same records are late as if the job had never stopped. Checkpoints hold event time
as well, so it also carries over from one run to the next (`event_time`). A watermark takes effect when the epoch's
records have been processed.

Idleness. Where the driver distributes a source's records batch by batch, a subtask that gets no records of a batch is
idle. Event time does not wait for it, and it takes over the watermark of the active subtasks of its vertex. An empty
batch leaves event time unchanged. A task is also idle if all its producers are.
"""
