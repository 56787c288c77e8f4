"""Observes and controls running jobs: the layer above the drivers and below the API.

Everything that people and programs see of a job derives from one value, the `JobView`
(`penstock.runtime.job.view`), which is the same in every execution mode. Everything that they request goes
through the job's handle (`penstock.drivers.running_job`). So nothing that observes a job runs in the job's
thread, except the making of the view, and a job is asked for a view at most twice a second, however many
observers there are. REST and reporters have threads of their own: a server that hangs, a failing scrape or a
greedy page costs the job nothing more.

- `dispatcher`: the jobs of this process, running and ended, with the last view of each. `attachment` starts a
  server and reporters when a job's configuration requests them.
- `metrics`: the figures of views, under Flink's names and scopes; `reporters` send it out. Tasks count batches,
  not records, and report totals twice a second, and heartbeats carry the figures of the process; rates and
  histories are computed from these totals in the driver.
- `rest`: Flink's REST API over all of it; `page`: the web page.
- `events`: derived from differences between views, and from status transitions, by a thread for each job with
  listeners.
- `inspection`: questions to workers (stacks, samples, logs, output). They use the connection of heartbeats and
  are answered beside the worker's loop, so there is an answer while a function does not return. The job master
  decides nothing by them.
- `session`: jobs that run in the processes of a session's programs.
"""
