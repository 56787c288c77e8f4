/** A job: what it is at the top, and one of its views below. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { count, duration, jobName, rate, time } from "../lib/format";
import { hasEnded, useJobWatch, type JobWatch } from "../lib/job_watch";
import { href } from "../lib/route";
import type { Job } from "../lib/types";
import { Awaited, Copy, Figure, Figures, Tabs } from "../parts/basics";
import { isTroubled, JobStatus, LastFailure, Restarts } from "../parts/failures";
import { HoldNote } from "../parts/holds";
import { Actions } from "./actions";
import { CheckpointsView } from "./checkpoints";
import { ConfigurationView } from "./configuration";
import { ExceptionsView } from "./exceptions";
import { GraphView } from "./graph";
import { MetricsView } from "./metrics";
import { StateView } from "./state";
import { TimelineView } from "./timeline";

const TABS: [key: string, title: string][] = [
  ["graph", "Graph"],
  ["checkpoints", "Checkpoints"],
  ["exceptions", "Exceptions"],
  ["state", "State"],
  ["metrics", "Metrics"],
  ["timeline", "Timeline"],
  ["configuration", "Configuration"],
];

export function JobView({ jobId, parts }: { jobId: string; parts: string[] }): JSX.Element {
  const answer = useFeed<Job>(`/jobs/${jobId}`);
  const watch = useJobWatch(jobId);
  const job = answer.data;
  const tab = parts[0] ?? "graph";
  useEffect(() => {
    if (job) document.title = `${jobName(job.name)} · ${TABS.find(([key]) => key === tab)?.[1] ?? ""} · Penstock`;
  }, [job?.name, tab]);
  if (!job) return <Awaited answer={answer} what="job" />;
  const batch = job["job-type"] === "BATCH";
  const tabs = TABS.filter(([key]) => !batch || (key !== "checkpoints" && key !== "state"));
  return (
    <>
      <nav class="crumbs" aria-label="Path">
        <a href={href("jobs")}>Jobs</a> / <span>{jobName(job.name)}</span>
      </nav>
      <div class="job-head">
        <h1 title={job.name}>{jobName(job.name)}</h1>
        <JobStatus job={job} now={job.now} />
        <Restarts job={job} now={job.now} />
        <span class="grow" />
        <Actions job={job} />
      </div>
      <JobFigures job={job} watch={watch} />
      {watch.failure && (
        <p class="note warn" role="alert">
          The server has no metrics of some vertices: {watch.failure} Their rates are made of the job's totals, and their
          watermarks are not known.
        </p>
      )}
      {isTroubled(job, job.now) && <LastFailure job={job} />}
      <HoldNote job={job} />
      <Tabs label="Views of the job" current={tab} tabs={tabs.map(([key, title]) => ({ key, title, href: href("jobs", jobId, key) }))} />
      <Shown tab={tab} job={job} watch={watch} parts={parts.slice(1)} />
    </>
  );
}

interface Shows {
  job: Job;
  watch: JobWatch;
  parts: string[];
}

function Shown({ tab, ...shows }: Shows & { tab: string }): JSX.Element {
  switch (tab) {
    case "graph":
      return <GraphView {...shows} />;
    case "checkpoints":
      return <CheckpointsView {...shows} />;
    case "exceptions":
      return <ExceptionsView {...shows} />;
    case "state":
      return <StateView {...shows} />;
    case "metrics":
      return <MetricsView {...shows} />;
    case "timeline":
      return <TimelineView {...shows} />;
    case "configuration":
      return <ConfigurationView {...shows} />;
    default:
      return <p class="note">There is no such view of a job.</p>;
  }
}

function JobFigures({ job, watch }: { job: Job; watch: JobWatch }): JSX.Element {
  const sources = new Set(job.plan.nodes.filter((node) => !node.inputs?.length).map((node) => node.id));
  let read: number | undefined;
  let lag: number | undefined;
  for (const [id, figures] of watch.figures) {
    if (sources.has(id) && figures.recordsOut !== undefined) read = (read ?? 0) + figures.recordsOut;
    if (figures.lag !== undefined) lag = Math.max(lag ?? 0, figures.lag);
  }
  const counts = job["status-counts"];
  const tasks = job.vertices.reduce((sum, vertex) => sum + vertex.parallelism, 0);
  const running = job.vertices.reduce((sum, vertex) => sum + (vertex.tasks["RUNNING"] ?? 0), 0);
  const widest = Math.max(0, ...job.vertices.map((vertex) => vertex.parallelism));
  return (
    <Figures>
      {!hasEnded(job.state) && <Figure label="Records read" value={rate(read)} hint="What all sources send on" />}
      {!hasEnded(job.state) && (
        <Figure label="Watermark lag" value={duration(lag)} hint="How far the lowest watermark is behind the clock" />
      )}
      <Figure label="Tasks" value={hasEnded(job.state) ? count(tasks) : `${count(running)} of ${count(tasks)} run`} />
      <Figure label="Vertices" value={count(Object.values(counts).reduce((sum, n) => sum + n, 0))} />
      <Figure label="Parallelism" value={count(widest)} />
      <Figure label="Started" value={time(job["start-time"])} />
      {job["end-time"] > 0 && <Figure label="Ended" value={time(job["end-time"])} />}
      <Figure label="Duration" value={duration(job.duration)} />
      {job["last-failure"] > 0 && !hasEnded(job.state) && (
        <Figure label="Last failure" value={`${duration(Math.max(0, job.now - job["last-failure"]))} ago`} hint={time(job["last-failure"])} />
      )}
      <Figure
        label="Job id"
        value={
          <span class="id">
            <code>{job.jid.slice(0, 8)}…</code> <Copy text={job.jid} what="the job id" />
          </span>
        }
      />
    </Figures>
  );
}
