/** All jobs, running and ended. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { count, duration, jobName, time } from "../lib/format";
import { hasEnded } from "../lib/job_watch";
import { href } from "../lib/route";
import type { JobSummary, Overview, PageConfig } from "../lib/types";
import { Awaited, Bar, Figure, Figures, Panel } from "../parts/basics";
import { JobStatus, Restarts } from "../parts/failures";
import { Table, type Column } from "../parts/table";

const COLUMNS: Column<JobSummary>[] = [
  {
    key: "name",
    title: "Name",
    text: true,
    width: 18,
    grows: true,
    by: (job) => job.name,
    hint: (job) => job.name,
    show: (job) => <a href={href("jobs", job.jid)}>{jobName(job.name)}</a>,
  },
  { key: "state", title: "Status", text: true, width: 9, by: (job) => job.state, show: (job) => <JobStatus job={job} now={Date.now()} /> },
  { key: "restarts", title: "Restarts", text: true, width: 8, by: (job) => job.restarts, show: (job) => (job.restarts ? <Restarts job={job} now={Date.now()} /> : "0") },
  { key: "tasks", title: "Tasks", text: true, width: 10, by: (job) => job.tasks["total"] ?? 0, show: (job) => <Tasks job={job} /> },
  { key: "type", title: "Type", text: true, width: 8, by: (job) => job.jobType ?? "", show: (job) => (job.jobType ?? "–").toLowerCase() },
  { key: "start", title: "Started", width: 10, by: (job) => job["start-time"], show: (job) => time(job["start-time"]) },
  { key: "duration", title: "Duration", width: 9, by: (job) => job.duration, show: (job) => duration(job.duration) },
  { key: "end", title: "Ended", width: 10, by: (job) => job["end-time"], show: (job) => time(job["end-time"]) },
];

function Tasks({ job }: { job: JobSummary }): JSX.Element {
  const total = job.tasks["total"] ?? 0;
  const share = (name: string): number => (total ? (job.tasks[name] ?? 0) / total : 0);
  const label = `${count(job.tasks["running"])} of ${count(total)} tasks run, ${count(job.tasks["finished"])} have finished`;
  return (
    <span class="tasks">
      <Bar
        label={label}
        parts={[
          ["good", share("running")],
          ["calm", share("finished")],
          ["bad", share("failed")],
          ["warn", share("canceled") + share("canceling")],
        ]}
      />
      {count(total)}
    </span>
  );
}

export function JobList(): JSX.Element {
  const answer = useFeed<{ jobs: JobSummary[] }>("/jobs/overview");
  const overview = useFeed<Overview>("/overview").data;
  const isHistory = useFeed<PageConfig>("/config", 0).data?.features["web-history"] === true;
  useEffect(() => {
    document.title = "Jobs · Penstock";
  }, []);
  const jobs = answer.data?.jobs ?? [];
  const running = jobs.filter((job) => !hasEnded(job.state));
  const ended = jobs.filter((job) => hasEnded(job.state));
  return (
    <>
      <h1>Jobs</h1>
      {overview && (
        <Figures>
          {!isHistory && <Figure label="Running" value={count(overview["jobs-running"])} />}
          <Figure label="Finished" value={count(overview["jobs-finished"])} />
          <Figure label="Canceled" value={count(overview["jobs-cancelled"])} />
          <Figure label="Failed" value={count(overview["jobs-failed"])} />
          {!isHistory && <Figure label="Workers" value={count(overview.taskmanagers)} />}
          {!isHistory && (
            <Figure label="Free slots" value={`${count(overview["slots-available"])} of ${count(overview["slots-total"])}`} />
          )}
        </Figures>
      )}
      <Awaited answer={answer} what="jobs" />
      {answer.data && (
        <>
          {!isHistory && (
            <Panel title="Running jobs">
              <Table
                label="Running jobs"
                rows={running}
                columns={COLUMNS.slice(0, -1)}
                id={(job) => job.jid}
                sortedBy="start"
                descending
                empty="No job runs. One that you start on this server shows up here."
              />
            </Panel>
          )}
          <Panel title="Ended jobs">
            <Table
              label="Ended jobs"
              rows={ended}
              columns={COLUMNS}
              id={(job) => job.jid}
              sortedBy="end"
              descending
              empty="No job has ended yet."
            />
          </Panel>
        </>
      )}
    </>
  );
}
