"""Checkpoints and savepoints in a file system: layout, metadata, checksums; and who leads a job.

**Layout.** `<dir>/<job id>/chk-<n>/` holds the files of each operator, subtask and state (Arrow IPC: key group,
operation, key, namespace, value) and `_metadata`. That names every file with length and checksum, is written
last, appears atomically, and is never overwritten. Small state is inline in the metadata. Without
`execution.checkpointing.dir` the job master keeps state, up to a limit. RocksDB stores its own files in
checkpoints, and the Arrow format in savepoints.

**Object stores** get as few requests as possible. Nothing is renamed, no directory is created or removed, and
no size is queried: metadata has the length of each file, which takes one request to read. Small states are in
the metadata, so a checkpoint of many is one object. Larger ones are an object each and not packed: a packed
object would live as long as any state in it is referenced, and the histories of states end at different
checkpoints. Deletion removes metadata first, by a request of its own whose failure is seen, then everything
else together. A client repeats a request that was not answered, so a conditional write that finds exactly its
own bytes has succeeded (`files`). Listings may be late, so correctness never depends on one
(`keyed_leadership`).

**Who leads.** A driver that was stopped or cut off does not know that another one has taken over its job. A
fence in the store keeps the two apart, without a clock and without a connection between them (`leadership`):

- A master that continues a job first takes a number above all others, by creating a file that must not exist,
  and then looks at the store.
- A master first makes an act visible (metadata, the mark of an end), then checks for a higher number, and only
  then lets sinks commit, or deletes. It also checks before it begins an attempt, ends its sinks or revokes a
  checkpoint.
- So one of two masters sees the other. Either the earlier one sees the number, and its job is SUSPENDED; or the
  number was taken later, and its owner finds the checkpoint and starts from it. Then it does not matter who
  commits.
- A master that takes over records its findings. Only these count from then on, and what masters from its number
  on write.

The leading master owns the files of its predecessors, and deletes them once it has a checkpoint of its own, and
again at its end. One step is not atomic: a master that is stopped exactly between its check and the revocation
of a doubtful checkpoint may revoke one from which its successor has started. The successor then reports a
damaged checkpoint, and nothing is committed twice. A fence elects no leader; elections are in
`penstock.drivers`.

**Local copies.** With `execution.state-recovery.from-local` a worker keeps a copy of what its tasks stored, and
a restarted task reads it if its checksum is that of the metadata (`local_recovery`).
"""
