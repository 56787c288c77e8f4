/** What the reader has asked the server to do, and what became of it. */

import { ApiError, getJson, send } from "./api";
import { Store } from "./store";
import type { Job, Requirements, Rescale, Trigger, TriggerStatus } from "./types";

export interface Operation {
  id: number;
  jobId: string;
  title: string;
  state: "running" | "done" | "failed";
  detail: string;
  startedAt: number;
}

/** Newest first. */
export const operations = new Store<Operation[]>([]);

const POLL_MS = 1000;
const KEPT_MAX = 8;
let last = 0;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function run(job: Job, title: string, work: (tell: (detail: string) => void) => Promise<string>): Promise<void> {
  const id = ++last;
  const change = (now: Partial<Operation>): void =>
    operations.update((all) => all.map((one) => (one.id === id ? { ...one, ...now } : one)));
  const begun: Operation = { id, jobId: job.jid, title, state: "running", detail: "asked", startedAt: Date.now() };
  operations.update((all) => [begun, ...all].slice(0, KEPT_MAX));
  try {
    change({ state: "done", detail: await work((detail) => change({ detail })) });
  } catch (error) {
    change({ state: "failed", detail: error instanceof ApiError ? error.sentences.join(" ") : String(error) });
  }
}

export function dismiss(id: number): void {
  operations.update((all) => all.filter((one) => one.id !== id));
}

/** Wait for an asynchronous operation of the server. An answer that fails to come is asked for again. */
async function settled(path: string, tell: (detail: string) => void): Promise<NonNullable<TriggerStatus["operation"]>> {
  const began = Date.now();
  for (;;) {
    await pause(POLL_MS);
    try {
      const answer = await getJson<TriggerStatus>(path);
      if (answer.status.id === "COMPLETED") {
        const failure = answer.operation?.["failure-cause"] ?? answer.operation?.failureCause;
        if (failure) throw new ApiError(200, [firstLine(failure["stack-trace"]) || failure.class]);
        return answer.operation ?? {};
      }
      tell(`in progress for ${Math.round((Date.now() - began) / 1000)} s`);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 0) throw error;
      tell("the server does not answer; asking again");
    }
  }
}

function firstLine(text: string): string {
  const lines = text.trim().split("\n");
  // Python names the exception last, Java first.
  return (lines[0]?.startsWith("Traceback") ? lines.at(-1) : lines[0]) ?? "";
}

export function takeSavepoint(job: Job, directory: string): void {
  void run(job, "Savepoint", async (tell) => {
    const body = { "target-directory": directory || null, "cancel-job": false, formatType: "CANONICAL" };
    const asked = await send<Trigger>("POST", `/jobs/${job.jid}/savepoints`, body);
    const done = await settled(`/jobs/${job.jid}/savepoints/${asked["request-id"]}`, tell);
    return `complete: ${done.location ?? ""}`;
  });
}

export function takeCheckpoint(job: Job): void {
  void run(job, "Checkpoint", async (tell) => {
    const asked = await send<Trigger>("POST", `/jobs/${job.jid}/checkpoints`, { checkpointType: "CONFIGURED" });
    const done = await settled(`/jobs/${job.jid}/checkpoints/${asked["request-id"]}`, tell);
    return `complete: checkpoint ${done.checkpointId ?? ""}`;
  });
}

export function stopJob(job: Job, directory: string, drain: boolean): void {
  void run(job, drain ? "Stop and drain" : "Stop with savepoint", async (tell) => {
    const asked = await send<Trigger>("POST", `/jobs/${job.jid}/stop`, { targetDirectory: directory || null, drain });
    const done = await settled(`/jobs/${job.jid}/savepoints/${asked["request-id"]}`, tell);
    return `stopped; savepoint: ${done.location ?? ""}`;
  });
}

export function cancelJob(job: Job): void {
  void run(job, "Cancel", async (tell) => {
    await send("PATCH", `/jobs/${job.jid}?mode=cancel`);
    return until(job, tell, (state) => ["CANCELED", "FINISHED", "FAILED"].includes(state));
  });
}

/** What has become of requests for another parallelism, newest first. A server without a history of them says nothing. */
async function endedRescales(job: Job): Promise<Rescale[]> {
  try {
    const history = await getJson<Rescale[]>(`/jobs/${job.jid}/rescales/history`);
    return history.filter((one) => one.terminalState !== null && one.triggerCause === "UPDATE_REQUIREMENT");
  } catch (error) {
    if (error instanceof ApiError) return [];
    throw error;
  }
}

export function rescaleJob(job: Job, requirements: Requirements): void {
  void run(job, "Rescale", async (tell) => {
    const before = new Set((await endedRescales(job)).map((one) => one.rescaleUuid));
    await send("PUT", `/jobs/${job.jid}/resource-requirements`, requirements);
    tell("accepted; the job takes a checkpoint, ends its tasks and begins again from it");
    const wanted = (now: Job): boolean =>
      now.vertices.every((vertex) => vertex.parallelism === (requirements[vertex.id]?.parallelism.upperBound ?? vertex.parallelism));
    for (;;) {
      await pause(POLL_MS);
      const ended = (await endedRescales(job)).find((one) => !before.has(one.rescaleUuid));
      const now = await getJson<Job>(`/jobs/${job.jid}`);
      if (now.state === "RUNNING" && (wanted(now) || ended?.terminalState === "COMPLETED")) {
        return "the job runs at its new parallelism";
      }
      if (["FAILED", "CANCELED", "FINISHED"].includes(now.state)) throw new Error(`the job is ${now.state}`);
      if (ended && ended.terminalState !== "COMPLETED") {
        const why = ended.schedulerStates.at(-1)?.stringifiedException ?? ended.terminatedReason ?? "";
        throw new ApiError(200, [`the job was not rescaled: ${firstLine(why)}`]);
      }
      tell(`the job is ${now.state.toLowerCase()}`);
    }
  });
}

async function until(job: Job, tell: (detail: string) => void, holds: (state: string) => boolean): Promise<string> {
  for (;;) {
    const { status } = await getJson<{ status: string }>(`/jobs/${job.jid}/status`);
    if (holds(status)) return `the job is ${status}`;
    tell(`the job is ${status}`);
    await pause(POLL_MS);
  }
}
