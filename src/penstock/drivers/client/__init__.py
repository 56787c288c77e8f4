"""The client: submits programs to the drivers, and runs loops, which consist of many jobs.

**Loops.** An iteration is a bounded source (`iterations`) to the program after it. When a job begins, it
prepares its sources, and this one runs its supersteps: consecutive batch jobs, whatever the job's own execution
mode.

- While the program is built, a head (`penstock.plan.job_graph`) stands for the data of a superstep.
  `close_with` splits the loop: what lies between heads and results is the *step*; its other inputs do not
  change, and the *prologue* computes them once. Both become job graphs together with the program; the step's
  graph runs in every superstep, with other files as its sources.
- The sink of cached streams writes a superstep's output, below the id of the job. When a superstep has ended,
  its valid files are known, and its input is deleted.
- Aggregators (`penstock.runtime.supersteps`), and the record counts that end a loop, are accumulators of the
  superstep's job, so they are exact for the same reason as its output.
- A solution set is partitioned by key; a keyed operator of the superstep's job merges the delta into it.
"""
