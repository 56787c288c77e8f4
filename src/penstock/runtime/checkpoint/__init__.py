"""Checkpoint coordination: the tasks to ask, acknowledgements, completed checkpoints, savepoints, restores.

**A checkpoint.** In one turn, `coordinator` captures the split enumerators and asks the source tasks for
barriers. Workers handle messages in order, so a split is either in its reader's snapshot or in the enumerator's
(`penstock.runtime.job.sources`). Tasks align (`penstock.runtime.task.barriers`), capture their state and go on;
they write and acknowledge it in the background. A capture takes the changes since the last completed
checkpoint, or everything if most has changed. Values that user code may change are pickled at once, in a single
call, so the pause depends on the size of the changes, not of the state (`penstock.state.snapshot`). Key groups,
Arrow bytes and IO belong to the background. A state is a history of files, merged when the changes outgrow the
first file. When all tasks have acknowledged, the store writes `_metadata`. The checkpoint exists once that is
visible, and only then are tasks notified. So everything that a sink commits is covered by a checkpoint that a
recovery will find. Sinks keep committables in state and commit them again after a recovery, so commits are
idempotent. Later checkpoints refer to files of earlier ones; `storage.metadata.garbage` compares a listing with the
retained checkpoints, which also finds what aborted checkpoints and failed attempts left.

**Savepoints.** A savepoint is a checkpoint that a user requests, in its own directory. It is always aligned,
holds each keyed state completely in a format that every backend reads, and shares no file with a checkpoint, so
the directory can be moved. No checkpoint is pending meanwhile.

- A savepoint that leaves the job running is not a recovery point and commits nothing: the next checkpoint
  commits what sinks prepared for it. Nothing builds on it.
- A savepoint that stops the job follows the end of the sources: EndOfData, then the barrier, so no record is in
  between. Its metadata is written into its own directory, then once more among the job's checkpoints, as the
  job's last recovery point; then sinks commit. After that no failure revives the job: another attempt, or
  another job master, only commits the savepoint's output, and ends. If the savepoint fails, its requester gets
  the error and the job continues; if sources had already ended for it, the job restarts from its last
  checkpoint.
- A job starts from a savepoint, or from any job's retained checkpoint, by operator id. The job graph is checked
  before deployment (`restore`), the types of states when operators open, and no task processes anything before
  all are open (`StartTask`). The job never builds on files of another job: its first checkpoint writes
  everything. Its checkpoint ids continue above the savepoint's.

**Jobs that have partly ended.** Barriers begin at the running subtasks whose producers have all finished. In
the metadata, each operator lists its subtasks that have finished for good: those whose producers have finished
as well. A checkpoint does not wait for the part of a task that finishes in the meantime. Such a task counts as
finished, with the state of its last checkpoint, and sends no barrier. A task below it may still wait for a
checkpoint of its own, if it took part in the previous one before the end of its data, as happens without
alignment. So once all producers of a task have finished without a part, the coordinator asks that task for the
barrier.

- A restart skips fully finished operators: their tasks commit their output in the checkpoint, send
  MAX_WATERMARK and EndOfData, and end.
- Partly finished operators run again in all subtasks. Subtasks that had finished start with the state of their
  end, which every later checkpoint carries along, without their committables, which were committed before they
  were FINISHED.
- Operator state survives the end of any subset of subtasks: split lists are distributed, union lists go to all.
  Each subtask takes its own copy of a broadcast state, even an empty one, because checkpoints of older versions
  may hold in flight the records that would fill it. Only a subtask that had finished with an empty copy takes
  another subtask's.
- Rescaling distributes the state of finished and running subtasks alike, and none of the new subtasks counts as
  finished. A chain with only some finished operators, or a fully finished operator that reads from a new one,
  cannot be restored; the error says what to do.

**Doubtful checkpoints.** A write of metadata may fail or hang and still succeed later. If the job restarted
from the previous checkpoint, sinks would remove output that only the doubtful one covers, and a later job
master would start from it without that output. So the coordinator revokes it, and no attempt begins before the
store has answered. A revocation replaces `_metadata`, and metadata never replaces a file: whichever comes last,
the checkpoint is invalid. The mark stays until the job ends.

**Takeover.** Another job master can take over a job (`savepoints.read_recovery`). It deposes the previous one
(`penstock.storage.leadership`) and reads the store. If the job has recorded its end, nothing is left to do.
Otherwise it continues from the newest complete checkpoint, with checkpoint ids above all that left a file, and
attempt numbers above all that a previous master may have used.
"""
