"""Drives jobs whose master works step by step: a thread of the client's process carries out the steps.

`StepwiseJob` (`job`) has a table of functions by class of step, which subclasses extend: `BatchJob`, and `EpochJob`
with the steps of checkpoints, savepoints and epochs. Drivers add how tasks run. `flow` is what a job takes in and gives
out: it assigns splits, and in this process it moves rows between tasks in lists.

The tasks' output for the client counts only when the job, or the epoch, has completed. Then `flow` delivers it, and
commits the prepared output of the run of each task that counts. Commits are retried a few times. After that an epoch
can be committed from its checkpoint. A batch has none, so it commits all or nothing, as far as its sinks can roll back.
"""
