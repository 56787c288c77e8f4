/** What a job has failed for, in short: how often it began again, and why it did so last. */

import type { JSX } from "preact";
import { useQuietFeed } from "../lib/feed";
import { duration, plain, plural, time } from "../lib/format";
import { hasEnded } from "../lib/job_watch";
import { href } from "../lib/route";
import type { Checkpoints, Exceptions, Job, JobSummary } from "../lib/types";
import { Status } from "./basics";

/** For how long (ms) after a failure a job that runs is not shown as well. */
const ALARM_MS = 600_000;

type Failing = Pick<JobSummary, "jid" | "state" | "restarts" | "last-failure">;

/** Whether the job has failed, or did so a short while ago. */
export function isTroubled(job: Failing, now: number): boolean {
  if (hasEnded(job.state)) return job.state === "FAILED";
  return job.state === "RESTARTING" || job.state === "FAILING" || (job["last-failure"] > 0 && now - job["last-failure"] < ALARM_MS);
}

/** The status of a job. One that runs is not green while it has failed a short while ago. */
export function JobStatus({ job, now }: { job: Failing; now: number }): JSX.Element {
  const tone = job.state === "RUNNING" && isTroubled(job, now) ? "warn" : undefined;
  return <Status value={job.state} tone={tone} />;
}

/** How often the job began again, with the way to the reasons. */
export function Restarts({ job, now }: { job: Failing; now: number }): JSX.Element | null {
  if (!job.restarts) return null;
  return (
    <a
      class={`restarts ${isTroubled(job, now) ? "bad" : ""}`}
      href={href("jobs", job.jid, "exceptions")}
      title={`Last failure: ${time(job["last-failure"])}`}
    >
      {plural(job.restarts, "restart")}
    </a>
  );
}

/** The last failure, and the checkpoint that the job began from after it. */
export function LastFailure({ job }: { job: Job }): JSX.Element | null {
  const exceptions = useQuietFeed<Exceptions>(`/jobs/${job.jid}/exceptions?maxExceptions=1`);
  const last = exceptions.data?.exceptionHistory.entries[0];
  const checkpoints = useQuietFeed<Checkpoints>(job["job-type"] === "BATCH" ? null : `/jobs/${job.jid}/checkpoints`).data;
  if (exceptions.error?.status === 401 && job["last-failure"] > 0) {
    return (
      <p class="note bad">
        The job failed at {time(job["last-failure"])}. <a href={href("jobs", job.jid, "exceptions")}>Why</a>
      </p>
    );
  }
  if (!last) return null;
  const lines = last.stacktrace.trim().split("\n");
  const sentence = (last.stacktrace.includes("Traceback (most recent call last)") ? lines.at(-1) : lines[0]) ?? "";
  const restored = checkpoints?.latest.restored;
  const runs = job.state === "RUNNING";
  return (
    <p class="note bad">
      <strong>{last.taskName ? plain(last.taskName) : "The job"}</strong> failed at {time(last.timestamp)}
      {hasEnded(job.state) ? "" : `, ${duration(Math.max(0, job.now - last.timestamp))} ago`}: {sentence}
      <br />
      {runs && restored && restored.restore_timestamp >= last.timestamp && (
        <>
          The job began again from {restored.is_savepoint ? "savepoint" : "checkpoint"} {restored.id}.{" "}
        </>
      )}
      {runs && checkpoints && !restored && "The job began anew: it had no checkpoint to begin from. "}
      <a href={href("jobs", job.jid, "exceptions")}>Traceback</a>
    </p>
  );
}
