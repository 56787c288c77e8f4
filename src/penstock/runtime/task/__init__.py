"""Tasks: the loop, the operator chain, snapshots; `channels` to other tasks, and `barriers` that cross them.

`StreamTask.step` does one bounded piece of work (a message, due timers, a batch), then reports whether there is
more. Everything that touches an operator happens there, on one thread. Tables in `processing` define the phases
of a task, their transitions, and what each phase permits. The phases are implemented in `opening`,
`processing`, `checkpoints` and `stream_task`.

**The end.** A source with nothing left sends MAX_WATERMARK, ends and finishes its chain from head to tail, and
sends EndOfData. A task then waits for a checkpoint that it took after `finish`, which commits its last output.
When all tasks have reached that point, the coordinator does not wait for its interval. Then operators close,
and EndOfPartition follows. Without checkpointing a sink commits in `finish`.

| | MAX_WATERMARK, `end_input`, `finish` | EndOfData | waits for | then |
| --- | --- | --- | --- | --- |
| input exhausted | yes | drain | the next checkpoint | `close`, EndOfPartition, FINISHED |
| stop with savepoint, drain | yes | drain | the savepoint | `close`, EndOfPartition, FINISHED |
| stop with savepoint | no | no drain | the savepoint | `close`, EndOfPartition, FINISHED |
| cancelled, failed | no | none | nothing | `close` |

Before `finish` an operator's timers are quiesced (F5): MAX_WATERMARK has fired all event-time timers, pending
processing-time timers are dropped (unless the function asks for all to fire), and no new ones are accepted. An
operator with two inputs is notified of the end of each, and finishes when both have ended. An operator with
pending asynchronous calls is drained before its `end_input`; barriers that arrive after the end of the input
wait with it. A stop without drain waits for no call: the records are in the savepoint.
"""
