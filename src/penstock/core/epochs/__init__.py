"""Micro-batch execution: the operators of a job run epoch by epoch, each between two checkpoints (I1, G8).

Theory. An epoch is the plain algorithm that barrier snapshots improve on: stop, drain, snapshot, go on. Every task is
restored from the last checkpoint, reads what is there, and stores its state as the next checkpoint; vertices run one
behind the other, so nothing is in flight when an epoch ends, and no barrier is needed. The checkpoint is complete when
every task's part is stored; only then is committed what sinks have prepared, ahead of the next epoch and of letting go
of the checkpoint before (`SinkOperator` commits again what a checkpoint of another run holds, so a crash in between
loses nothing). An epoch that fails is run again from the same checkpoint.

Checkpoints are those of streaming, by operator id and key group: a job may go on in either tempo.

Event time. Tasks tell those behind them, and the coordinator, how far each operator's watermark has come, and the next
epoch begins there; so what is late is the same as if the job had never stopped. Checkpoints hold it, too: so it is from
one run to the next (`event_time`). A watermark takes effect when the epoch's records have been processed.

Idleness. Where somebody else deals a source's records out, batch by batch, a subtask that gets none of a batch is idle:
event time does not wait for it, and it takes over where the active ones of its vertex are. A batch of which no subtask
gets anything leaves event time where it is. Tasks all of whose producers are idle are so, too.
"""
