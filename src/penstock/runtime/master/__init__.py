"""Masters of jobs that run step by step: batches, back-fills and epochs.

Streaming has a job master that runs tasks side by side and reacts to their messages. These jobs do one thing
after another, so their masters are generators. A master yields a step (`steps`), which is a value: run this
epoch, complete this checkpoint, deliver this output, delete these files, answer this request. The driver
(`penstock.drivers.stepwise`) carries it out and sends the result back, or throws the error. The master does no
IO and is never re-entered, and the simulator may end it between any two steps. Job states, restart strategies
and the rule for damaged checkpoints are as in streaming.

Three rules make an epoch exactly once:

- **An epoch exists once its checkpoint does.** After a failure before that, it runs again from the last
  checkpoint. After a failure later, its output is only delivered again, and a repeated commit changes nothing.
- **Nothing older is deleted before the output is delivered.** A driver that dies in between leaves a checkpoint
  that holds the undelivered output; the job that starts from it commits that first.
- **A savepoint that ends the job ends it.** Once it is complete, the job never reads on, even if its output
  cannot be committed at once. It also counts as the job's last checkpoint, as does the last epoch of a job that
  has reached its end. A job of the same name that finds a drained one delivers the remaining output, and is
  done.

A deletion that fails is only logged: the next one finds the same files.
"""
