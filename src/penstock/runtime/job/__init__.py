"""The job master of streaming: slots, scheduling, failover, rescaling.

**Turns.** The master handles one event at a time, in a turn (`penstock.runtime.effects`). A handler decides,
and its decisions leave as values. *Effects* are for the outside world: send a message to a worker, release one,
run work in the background, notify the client. The driver carries them out after the turn; the result of
background work comes back in a turn of its own. *News* is for the master itself: a part of it, such as the
checkpoint coordinator, has found something that concerns the whole job. The master handles news after the
handler has returned, before the turn is over. So no handler runs within another one, and no outsider sees a
turn half done. A driver that dies has carried out the first effects of a turn and not the others; the simulator
kills it between any two.

**Failures.** The master cancels the tasks of the region that failed, and waits until each has ended, or its
worker has. So two attempts of a task never run at once. A region is all subtasks that channels connect
(`penstock.runtime.graph`): a job with a keyed stream is mostly one, pipelines that exchange
nothing are several, and so are the slots of a pipeline whose edges stay within a slot. No record passes between
regions, so the others continue while one restarts. They share three things:

- *Checkpoints* span all regions. A pending one is aborted when a region fails, and the next one waits until all
  tasks run.
- *The split enumerator* of a source does not restart. It gets back the splits that the restarting readers were
  assigned since the checkpoint. A source that cannot take splits back (`restarts_by_reader`) holds its readers
  in one region.
- *Connections between workers* belong to an attempt. After a connection has broken, nothing that another region
  sends follows the data that one region lost.

A region that fails in the meantime joins. The whole job restarts if it is one region, if
`jobmanager.execution.failover-strategy` is `full`, if it was being stopped with a savepoint (sources have ended
everywhere), or if the checkpoint is damaged (a region cannot go back further than the others). The adaptive
scheduler restarts no regions: one that lacks a slot would wait forever, while all together can make room.

An error that no attempt can fix, or one that repeats while no checkpoint completes, ends the job (`failover`).
Otherwise the restart strategy gives the delay. The master requests lost workers again and reads the latest
checkpoint through once. It falls back from a damaged one to the one before, unless a sink would then commit the
same output again: then the job fails. Each slot returns to the worker that it had, if that is alive, because it
may have copies of the state.

**Rescaling** is a restart without a failure (`rescaling`). The resource requirements give each vertex a lowest
and a highest parallelism (`slots`). When the slots allow another parallelism, the master takes a checkpoint,
cancels all tasks, and the next attempt begins from it. Whenever all tasks restart, even after a failure, they
take the parallelism that is possible then. So there is one way to another parallelism, the way of a savepoint:
key groups are ranges, lists are distributed, and records in flight are partitioned again, ahead of all others,
so changes of a key keep their order (`penstock.runtime.checkpoint.restore`).

**Leaving workers.** When Spark decommissions an executor, the job master is notified that a worker is leaving.
Its slot no longer counts and gets no new tasks, and another worker is requested. When the slots suffice without
it, the job does what rescaling does, at the same parallelism; then the worker is released. No restart strategy
is asked, and nothing is counted. If no slot comes in time, the adaptive scheduler continues with fewer;
otherwise tasks stay until the worker dies, which is a failure like any other. Nothing waits for a leaving
worker: if it dies during the checkpoint, the new one is there already.
"""
