"""The drivers, which run the runtime: the only layer with threads, sockets, processes and a wall clock.

A driver implements the ports (`penstock.runtime.ports`), feeds the job master and the task executors, and
carries out the effects of the master. `local` is the smallest. `spark` runs workers as Spark tasks,
`simulation` a whole cluster from a seed, and `stepwise` jobs whose master yields steps. `client` submits jobs.

**Two clocks.** The port `Clock` has two times. Processing time is for users: timers, windows, expiry, dates of
checkpoints. It follows the host's clock, because a program that was suspended for an hour has to catch up with
its timers. It never runs backwards: when the host's clock is set back, it continues at half speed until the two
agree. All waiting and timeouts of a job master (heartbeats, checkpoints, restarts, requests) use a steady time,
which cannot be set and stands still while the host is suspended.

**Election.** Who begins to lead a job is decided here; the fence in `penstock.storage` keeps a former leader
from harm. Standby drivers wait for a lock on a file (`leader_election`), on one host, or for their turn in
ZooKeeper (`zookeeper_election`). A file lock is never lost before its process ends. A ZooKeeper session may be;
then the driver suspends its job, and the fence holds until it does. The outcome of a job is written in a
transaction that requires the driver's own place in the queue, so only a leader speaks for the job.
"""
