"""Micro-batch execution: the operators of a job run epoch by epoch, each between two checkpoints (I1, G8).

Theory. An epoch is the plain algorithm that barrier snapshots improve on: stop, drain, snapshot, continue.
Every task is restored from the last checkpoint, reads the available input, and stores its state as the next
checkpoint. Vertices run one after the other, so nothing is in flight when an epoch ends, and no barrier is
needed. The checkpoint is complete when every task's part is stored. Only then do sinks commit their prepared
output, before the next epoch begins and before the previous checkpoint is deleted. `SinkOperator` commits again
the output in a checkpoint of another run, so a crash in between loses nothing. An epoch that fails runs again
from the same checkpoint.

Checkpoints are the same as in streaming, by operator id and key group, so a job may continue in either
execution mode, at any parallelism and on any backend.

Event time. Tasks report to downstream tasks and to the coordinator how far each operator's watermark has
advanced, and the next epoch begins there. So the same records are late as if the job had never stopped.
Checkpoints hold event time as well, so it also carries over from one run to the next. A watermark takes effect
when the epoch's records have been processed.

Idleness. Where the driver distributes a source's records batch by batch, a subtask that gets no records of a
batch is idle. Event time does not wait for it, and it takes over the watermark of the active subtasks of its
vertex. An empty batch leaves event time unchanged. A task is also idle if all its producers are.

Runs. If Spark runs a task twice in one epoch, the two runs may read different records. So rows carry the token
of their run, and an epoch that mixes runs is run again. A back-fill (`execution.batch.savepoint-path`) is one
epoch with the sorted rows of batch, whose checkpoint is a savepoint; operators are notified when keys have
reached the watermark of the sources (`advance_keys`). It may be long, so there a token is a digest of the
output: a task that runs again and sends the same output counts as the same run (`coordinator`).
"""
