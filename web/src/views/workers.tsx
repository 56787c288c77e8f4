/** The workers (Flink's task managers): all of them, and one. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { bytes, count, duration, figure, jobName, percent } from "../lib/format";
import { href } from "../lib/route";
import type { Metric, TaskManager } from "../lib/types";
import { Awaited, Bar, Figure, Figures, Note, Pairs, Panel, Tabs } from "../parts/basics";
import { Table, type Column } from "../parts/table";
import { Logs, Text, Threads } from "./process";

/** What a worker's process uses of its memory, where the server says so. */
function used(worker: TaskManager): [used: number, of: number] | undefined {
  const { physicalMemory, freeMemory } = worker.hardware;
  const limit = worker.memoryConfiguration["totalProcessMemory"] ?? 0;
  const heap = worker.metrics?.["heapUsed"];
  if (typeof heap === "number" && heap > 0) return [heap, limit > 0 ? limit : physicalMemory];
  return physicalMemory > 0 && freeMemory > 0 ? [physicalMemory - freeMemory, physicalMemory] : undefined;
}

function Memory({ of }: { of: TaskManager }): JSX.Element {
  const memory = used(of);
  if (!memory) return <>–</>;
  const share = memory[1] ? memory[0] / memory[1] : 0;
  return (
    <span class="tasks">
      <Bar label={`${percent(share)} of ${bytes(memory[1])}`} parts={[[share > 0.9 ? "bad" : "calm", share]]} />
      {bytes(memory[0])}
    </span>
  );
}

const COLUMNS: Column<TaskManager>[] = [
  { key: "id", title: "Worker", text: true, width: 14, by: (row) => row.id, show: (row) => <a href={href("workers", row.id)}>{row.id}</a> },
  {
    key: "job",
    title: "Job",
    text: true,
    width: 16,
    by: (row) => row["job-name"],
    hint: (row) => row["job-name"],
    show: (row) => <JobOf worker={row} />,
  },
  { key: "path", title: "Where", text: true, width: 14, by: (row) => row.path, hint: (row) => row.path, show: (row) => where(row.path) },
  { key: "slots", title: "Slots", width: 5, by: (row) => row.slotsNumber, show: (row) => row.slotsNumber },
  { key: "free", title: "Free", width: 5, by: (row) => row.freeSlots, show: (row) => row.freeSlots },
  { key: "heard", title: "Heard of", width: 7, by: (row) => -row.timeSinceLastHeartbeat, show: (row) => heardOf(row.timeSinceLastHeartbeat) },
  { key: "cores", title: "Cores", width: 5, by: (row) => row.hardware.cpuCores, show: (row) => count(row.hardware.cpuCores) },
  { key: "memory", title: "Memory", text: true, width: 11, by: (row) => used(row)?.[0], show: (row) => <Memory of={row} /> },
];

function JobOf({ worker }: { worker: TaskManager }): JSX.Element {
  const id = worker["job-id"];
  return id ? <a href={href("jobs", id)}>{jobName(worker["job-name"] ?? id)}</a> : <>–</>;
}

/** The host and port of a worker's addresses. */
function where(path: string): string {
  return /tcp:\/\/(\S+)/.exec(path)?.[1] ?? path;
}

/** In spite of its name, Flink's `timeSinceLastHeartbeat` says when that was, in ms since the epoch. */
function heardOf(heardMs: number): string {
  return heardMs > 0 ? `${duration(Math.max(0, Date.now() - heardMs))} ago` : "–";
}

export function Workers(): JSX.Element {
  const answer = useFeed<{ taskmanagers: TaskManager[] }>("/taskmanagers");
  useEffect(() => {
    document.title = "Workers · Penstock";
  }, []);
  return (
    <>
      <h1>Workers</h1>
      <Awaited answer={answer} what="workers" />
      {answer.data && (
        <Panel title="All workers">
          <Table label="Workers" rows={answer.data.taskmanagers} columns={COLUMNS} id={(row) => row.id} sortedBy="id" empty="There are no workers: no job asks for one." />
        </Panel>
      )}
    </>
  );
}

const TABS: [key: string, title: string][] = [
  ["figures", "Figures"],
  ["logs", "Logs"],
  ["stdout", "Prints"],
  ["threads", "Threads"],
];

export function WorkerView({ id, parts }: { id: string; parts: string[] }): JSX.Element {
  const path = `/taskmanagers/${encodeURIComponent(id)}`;
  const answer = useFeed<TaskManager & { "spark-ui"?: string }>(path);
  const [tab = "figures", file] = parts;
  useEffect(() => {
    document.title = `${id} · Workers · Penstock`;
  }, [id]);
  const worker = answer.data;
  if (!worker) return <Awaited answer={answer} what="worker" />;
  const memory = used(worker);
  const spark = worker["spark-ui"];
  return (
    <>
      <nav class="crumbs" aria-label="Path">
        <a href={href("workers")}>Workers</a> / <span>{id}</span>
      </nav>
      <h1>{id}</h1>
      <Figures>
        {worker["job-id"] && <Figure label="Job" value={<JobOf worker={worker} />} hint={worker["job-name"] ?? ""} />}
        <Figure label="Where" value={where(worker.path)} hint={worker.path} />
        <Figure label="Heard of" value={heardOf(worker.timeSinceLastHeartbeat)} />
        <Figure label="Slots" value={`${worker.slotsNumber - worker.freeSlots} of ${worker.slotsNumber} used`} />
        <Figure label="Memory" value={memory ? `${bytes(memory[0])} of ${bytes(memory[1])}` : "–"} />
        <Figure label="Cores" value={count(worker.hardware.cpuCores)} />
        {spark && /^https?:\/\//.test(spark) && (
          <Figure
            label="Spark"
            value={
              <a href={spark} rel="noreferrer noopener" target="_blank">
                Spark's own page
              </a>
            }
          />
        )}
      </Figures>
      <Tabs label="Views of the worker" current={tab} tabs={TABS.map(([key, title]) => ({ key, title, href: href("workers", id, key) }))} />
      {tab === "figures" && <WorkerFigures worker={worker} path={path} />}
      {tab === "logs" && <Logs path={path} place={["workers", id]} chosen={file} />}
      {tab === "stdout" && <Text path={`${path}/stdout`} title="What user code has printed" />}
      {tab === "threads" && <Threads path={path} />}
    </>
  );
}

function WorkerFigures({ worker, path }: { worker: TaskManager; path: string }): JSX.Element {
  const slots = worker.allocatedSlots ?? [];
  const memory = Object.entries(worker.memoryConfiguration).filter(([, value]) => value !== null && value > 0);
  return (
    <>
      <Panel title="Slots in use">
        <Table
          label="Slots in use"
          rows={slots.map((slot, n) => ({ ...slot, n }))}
          id={(row) => row.n}
          empty="No slot is in use."
          columns={[
            { key: "job", title: "Job", text: true, width: 22, show: (row) => <a href={href("jobs", row.jobId)}>{row.jobId === worker["job-id"] ? jobName(worker["job-name"] ?? row.jobId) : row.jobId}</a> },
            { key: "tasks", title: "Tasks", width: 5, show: (row) => count(row.assignedTasks) },
          ]}
        />
      </Panel>
      {memory.length > 0 && (
        <Panel title="Memory as configured">
          <Pairs label="Memory as configured" pairs={memory.map(([key, value]) => [key, bytes(value)])} />
        </Panel>
      )}
      <ProcessMetrics path={path} />
    </>
  );
}

/** All metrics of a process. */
export function ProcessMetrics({ path }: { path: string }): JSX.Element {
  const ids = useFeed<Metric[]>(`${path}/metrics`, 30_000);
  const names = (ids.data ?? []).map((metric) => metric.id).slice(0, 80);
  const values = useFeed<Metric[]>(names.length ? `${path}/metrics?get=${names.map(encodeURIComponent).join(",")}` : null);
  return (
    <Panel title="Metrics">
      <Awaited answer={ids} what="metrics" />
      {ids.data && !names.length && <Note>The process reports no metrics.</Note>}
      {values.data && (
        <Pairs
          label="Metrics"
          pairs={values.data
            .map(({ id, value }): [string, string] => [id, shown(id, value)])
            .sort((a, b) => (a[0] < b[0] ? -1 : 1))}
        />
      )}
    </Panel>
  );
}

function shown(id: string, value: string | undefined): string {
  const number = Number(value);
  if (value === undefined || value === "" || Number.isNaN(number)) return value ?? "–";
  if (/Memory|Bytes|\.(Used|Max|Committed)$/.test(id)) return bytes(number);
  return figure(number);
}
