"""Jobs on Spark: workers are long-running Spark tasks; batches and epochs are Spark queries.

**Spark is the cluster.** Each worker is a Spark job of one task (`cluster`, `entry`) that runs a task executor
until it is released. The job master has a thread of the driver program (`job_master`). Records go from worker
to worker directly, over ZeroMQ (`worker_endpoint`, `data_links`).

**A worker's loop** (`worker`) alternates on one thread: it handles the input from sockets and background
threads, then steps each task. With nothing to do it waits in one poll for sockets, a wake-up by a thread, or
the next deadline of its tasks. A source reader without records is polled again after 10 ms, and after 50 ms
once it has been silent for 10 polls, unless it knows a better time. Connections are checked every 20 ms at
most, because a broken one delivers nothing anyway. Garbage collections skip the modules of a fresh worker.

**The death of a worker** is noticed when its Spark job ends, when its connection ends, or by missing
heartbeats. In one JVM Spark reports it at once. On a cluster Spark first retries the task, so the end of the
connection is known earlier (`master_endpoint`); the driver gives Spark half a second to say why, then counts
the worker as lost. That is safe even if the worker lives: it ends itself when it has lost its connection, Spark
is asked to kill it, and its messages are ignored. Spark does not notify Python programs of decommissioning, so
a thread asks the JVM once a second about the executors of the job's workers.

**Batches and epochs.** A vertex is one `mapInArrow`, and a slot sends a row to exactly the partition that is
its subtask (`batch_job`). Records of a data frame that a keyed operator reads next keep their columns through
the shuffle; Python only decides where each goes (`route_stage`), and not even that if Spark's own hash will do.
All other records travel as pickles. An epoch is a short query of few rows, because a row is a batch of records,
so Spark plans it once and generates no code for it (`handle`). Its tasks pass on the upstream tasks' output for
the client, so it ends only in its last vertices (`epoch_job`). With streaming data frames, Structured Streaming
decides when an epoch begins, and only the job's checkpoint says whether a batch is done
(`structured_streaming`).

**Lockstep.** Subtasks that exchange messages round after round (`lockstep`), such as supersteps of graphs, are
a barrier stage. They stay warm for the whole loop, and connect over sockets that only tasks of the job can
open. If Spark loses one, the job begins again, since no output is committed before its end.

**Security.** Workers and the job master authenticate each other with CURVE keys made for the job (`sockets`),
which reach the workers inside the Spark closure. Ports bind to loopback if the master is local. Workers on one
host communicate over Unix sockets with the same keys, in directories that only their user may enter. A receiver
unpickles nothing before it knows the sender, and refuses frames over the limit while it reads them.
`tests/security` attacks all of these while a pair of processes is at work.
"""
