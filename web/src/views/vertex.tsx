/** What is known of a vertex: its subtasks, and what they measure. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { bytes, count, duration, figure, isTime, number, percent, plain, rate, steps, time, watermark } from "../lib/format";
import { hasEnded, type JobWatch } from "../lib/job_watch";
import { go, href } from "../lib/route";
import type { Accumulator, AggregatedMetric, BackPressure, Job, Metric, Subtask, Vertex, VertexDetail } from "../lib/types";
import { Awaited, Figure, Figures, Note, Status, Tabs } from "../parts/basics";
import { HoldInputs } from "../parts/holds";
import { Table, type Column } from "../parts/table";
import { FlameView } from "./flame";

const TABS: [key: string, title: string][] = [
  ["subtasks", "Subtasks"],
  ["watermarks", "Watermarks"],
  ["back-pressure", "Back pressure"],
  ["metrics", "Metrics"],
  ["accumulators", "Accumulators"],
  ["flame-graph", "Flame graph"],
];

export function VertexDrawer(props: { job: Job; vertex: Vertex; watch: JobWatch; tab: string }): JSX.Element {
  const { job, vertex, tab } = props;
  const close = useRef<HTMLButtonElement>(null);
  const figures = props.watch.figures.get(vertex.id) ?? {};
  // Who comes by the keyboard goes on here.
  useEffect(() => close.current?.focus({ preventScroll: true }), [vertex.id]);
  const path = `/jobs/${job.jid}/vertices/${vertex.id}`;
  return (
    <section class="panel drawer" aria-label={`Vertex ${plain(vertex.name)}`}>
      <header>
        <h2>{plain(vertex.name)}</h2>
        <Status value={vertex.status} />
        <button ref={close} type="button" class="quiet" aria-label="Close the vertex" onClick={() => go("jobs", job.jid, "graph")}>
          ×
        </button>
      </header>
      <Steps job={job} vertex={vertex} />
      <Figures>
        <Figure label="In" value={rate(figures.recordsIn)} />
        <Figure label="Out" value={rate(figures.recordsOut)} />
        <Figure label="Busy" value={percent(figures.busy)} hint="The average of the subtasks" />
        <Figure label="Busiest" value={percent(figures.busyMax)} hint="The busiest subtask" />
        <Figure label="Back-pressured" value={percent(figures.backPressured)} />
        <Figure label="Watermark lag" value={duration(figures.lag)} hint={`Watermark: ${watermark(figures.watermark)}`} />
      </Figures>
      <Tabs
        label="Views of the vertex"
        current={tab}
        tabs={TABS.map(([key, title]) => ({ key, title, href: href("jobs", job.jid, "graph", vertex.id, key) }))}
      />
      <Shown tab={tab} path={path} job={job} vertex={vertex} ended={hasEnded(job.state)} />
    </section>
  );
}

/** What the operators do, where that says more than their names. */
function Steps({ job, vertex }: { job: Job; vertex: Vertex }): JSX.Element | null {
  const does = steps(job.plan.nodes.find((node) => node.id === vertex.id)?.description, vertex.name);
  if (!does.length) return null;
  return (
    <ol class="steps" aria-label="What its operators do">
      {does.map((step, n) => (
        <li key={n}>
          <code>{step}</code>
        </li>
      ))}
    </ol>
  );
}

function Shown(props: { tab: string; path: string; job: Job; vertex: Vertex; ended: boolean }): JSX.Element {
  const { tab, path, job, vertex, ended } = props;
  switch (tab) {
    case "subtasks":
      return <Subtasks path={path} />;
    case "watermarks":
      return (
        <>
          <HoldInputs job={job} vertex={vertex.id} />
          <Watermarks path={path} />
        </>
      );
    case "back-pressure":
      return <BackPressures path={path} />;
    case "metrics":
      return <Metrics path={path} />;
    case "accumulators":
      return <Accumulators path={path} />;
    case "flame-graph":
      return <FlameView path={path} parallelism={vertex.parallelism} ended={ended} />;
    default:
      return <Note>There is no such view of a vertex.</Note>;
  }
}

interface SubtaskRow extends Subtask {
  recordsIn?: number | undefined;
  recordsOut?: number | undefined;
  busy?: number | undefined;
  held?: number | undefined;
}

/** Subtasks with the rates between this answer and the one before. */
function useRows(detail: VertexDetail | undefined): SubtaskRow[] {
  const kept = useRef<{ detail?: VertexDetail | undefined; rows: SubtaskRow[] }>({ rows: [] });
  if (detail !== kept.current.detail) {
    const before = kept.current.detail;
    const ms = before?.id === detail?.id ? (detail?.now ?? 0) - (before?.now ?? 0) : 0;
    const rows = (detail?.subtasks ?? []).map((subtask, n) => {
      const then = before?.subtasks[n];
      if (!then || ms <= 0 || then.attempt !== subtask.attempt) return subtask;
      const grown = (name: keyof Subtask["metrics"]): number =>
        Math.max(0, (number(subtask.metrics[name]) ?? 0) - (number(then.metrics[name]) ?? 0)) / ms;
      return {
        ...subtask,
        recordsIn: grown("read-records") * 1000,
        recordsOut: grown("write-records") * 1000,
        busy: Math.min(1, grown("accumulated-busy-time")),
        held: Math.min(1, grown("accumulated-backpressured-time")),
      };
    });
    kept.current = { detail, rows };
  }
  return kept.current.rows;
}

const SUBTASKS: Column<SubtaskRow>[] = [
  { key: "subtask", title: "Subtask", width: 5, by: (row) => row.subtask, show: (row) => row.subtask },
  { key: "status", title: "Status", text: true, width: 7.5, by: (row) => row.status, show: (row) => <Status value={row.status} /> },
  { key: "in", title: "In", width: 6, by: (row) => row.recordsIn, show: (row) => rate(row.recordsIn) },
  { key: "out", title: "Out", width: 6, by: (row) => row.recordsOut, show: (row) => rate(row.recordsOut) },
  { key: "busy", title: "Busy", width: 5, by: (row) => row.busy, show: (row) => percent(row.busy) },
  { key: "held", title: "Held back", width: 6, by: (row) => row.held, show: (row) => percent(row.held) },
  { key: "read", title: "Records in", width: 7.5, by: (row) => row.metrics["read-records"], show: (row) => count(row.metrics["read-records"]) },
  { key: "write", title: "Records out", width: 7.5, by: (row) => row.metrics["write-records"], show: (row) => count(row.metrics["write-records"]) },
  { key: "bytes-in", title: "Bytes in", width: 6, by: (row) => row.metrics["read-bytes"], show: (row) => bytes(row.metrics["read-bytes"]) },
  { key: "bytes-out", title: "Bytes out", width: 6, by: (row) => row.metrics["write-bytes"], show: (row) => bytes(row.metrics["write-bytes"]) },
  { key: "attempt", title: "Attempt", width: 5, by: (row) => row.attempt, show: (row) => row.attempt + 1 },
  { key: "duration", title: "Duration", width: 7, by: (row) => row.duration, show: (row) => duration(row.duration) },
  {
    key: "worker",
    title: "Worker",
    text: true,
    width: 11,
    by: (row) => row.endpoint,
    show: (row) =>
      row["taskmanager-id"] ? <a href={href("workers", row["taskmanager-id"])}>{row.endpoint || row["taskmanager-id"]}</a> : "–",
  },
];

function Subtasks({ path }: { path: string }): JSX.Element {
  const answer = useFeed<VertexDetail>(path);
  const rows = useRows(answer.data);
  const isFirst = rows.every((row) => row.attempt === 0);
  const columns = SUBTASKS.filter((column) => column.key !== "attempt" || !isFirst);
  return (
    <>
      <Awaited answer={answer} what="subtasks" />
      {answer.data && (
        <Table label="Subtasks" rows={rows} columns={columns} id={(row) => row.subtask} sortedBy="subtask" empty="No subtasks." />
      )}
    </>
  );
}

function Watermarks({ path }: { path: string }): JSX.Element {
  const answer = useFeed<Metric[]>(`${path}/watermarks`);
  const rows = (answer.data ?? []).map(({ id, value }) => ({
    subtask: Number.parseInt(id, 10),
    at: number(value),
  }));
  const times = rows.map((row) => row.at).filter(isTime);
  const [low, high] = [Math.min(...times), Math.max(...times)];
  return (
    <>
      <Awaited answer={answer} what="watermarks" />
      {times.length > 0 && (
        <Figures>
          <Figure label="Lowest" value={watermark(low)} />
          <Figure label="Highest" value={watermark(high)} />
          <Figure label="Between them" value={duration(high - low)} />
        </Figures>
      )}
      {answer.data && (
        <Table
          label="Watermarks by subtask"
          rows={rows}
          id={(row) => row.subtask}
          sortedBy="subtask"
          empty="No watermarks: sources have none of their own, and tasks without event time neither."
          columns={[
            { key: "subtask", title: "Subtask", width: 5, by: (row) => row.subtask, show: (row) => row.subtask },
            { key: "at", title: "Watermark (UTC)", text: true, width: 14, by: (row) => row.at, show: (row) => watermark(row.at) },
            {
              key: "behind",
              title: "Behind the first",
              width: 9,
              by: (row) => (isTime(row.at) ? high - row.at : undefined),
              show: (row) => (isTime(row.at) ? duration(high - row.at) : "–"),
            },
          ]}
        />
      )}
    </>
  );
}

function BackPressures({ path }: { path: string }): JSX.Element {
  const answer = useFeed<BackPressure>(`${path}/backpressure`);
  const data = answer.data;
  return (
    <>
      <Awaited answer={answer} what="back pressure" />
      {data?.subtasks ? (
        <>
          <Figures>
            <Figure label="Level" value={<Status value={data.backpressureLevel} />} />
            <Figure label="Measured" value={time(data["end-timestamp"])} />
          </Figures>
          <Table
            label="Back pressure by subtask"
            rows={data.subtasks}
            id={(row) => row.subtask}
            sortedBy="ratio"
            descending
            columns={[
              { key: "subtask", title: "Subtask", width: 5, by: (row) => row.subtask, show: (row) => row.subtask },
              { key: "level", title: "Level", text: true, width: 6, by: (row) => row.ratio, show: (row) => <Status value={row.backpressureLevel} /> },
              { key: "ratio", title: "Back-pressured", width: 8, by: (row) => row.ratio, show: (row) => percent(row.ratio) },
              { key: "busy", title: "Busy", width: 6, by: (row) => row.busyRatio, show: (row) => percent(row.busyRatio) },
              { key: "idle", title: "Idle", width: 6, by: (row) => row.idleRatio, show: (row) => percent(row.idleRatio) },
            ]}
          />
        </>
      ) : (
        data && <Note>The server measures; the figures come with the next answer.</Note>
      )}
    </>
  );
}

function Metrics({ path }: { path: string }): JSX.Element {
  const [wanted, setWanted] = useState("");
  const ids = useFeed<Metric[]>(`${path}/subtasks/metrics`, 30_000);
  const matching = (ids.data ?? [])
    .map((metric) => metric.id)
    .filter((id) => id.toLowerCase().includes(wanted.toLowerCase()))
    .sort();
  // An address has room for so many names only.
  const asked = matching.slice(0, 60);
  const values = useFeed<AggregatedMetric[]>(
    asked.length ? `${path}/subtasks/metrics?agg=min,avg,max,sum&get=${asked.map(encodeURIComponent).join(",")}` : null,
  );
  const shown = (value: number | "NaN" | undefined): string => figure(number(value));
  return (
    <>
      <Awaited answer={ids} what="metrics" />
      <input
        type="search"
        placeholder="Filter by name"
        aria-label="Filter metrics"
        value={wanted}
        onInput={(event) => setWanted(event.currentTarget.value)}
      />
      {matching.length > asked.length && (
        <Note>
          The first {asked.length} of {matching.length}; type a part of a name to see others.
        </Note>
      )}
      {values.data && (
        <Table
          label="Metrics, over all subtasks"
          rows={values.data}
          id={(row) => row.id}
          sortedBy="id"
          columns={[
            { key: "id", title: "Metric", text: true, width: 20, by: (row) => row.id, show: (row) => <span title={row.id}>{row.id}</span> },
            { key: "min", title: "Lowest", width: 8, by: (row) => number(row.min), show: (row) => shown(row.min) },
            { key: "avg", title: "Average", width: 8, by: (row) => number(row.avg), show: (row) => shown(row.avg) },
            { key: "max", title: "Highest", width: 8, by: (row) => number(row.max), show: (row) => shown(row.max) },
            { key: "sum", title: "Sum", width: 8, by: (row) => number(row.sum), show: (row) => shown(row.sum) },
          ]}
        />
      )}
      {ids.data && !matching.length && <Note>No metric{wanted ? ` with “${wanted}”` : ""}.</Note>}
    </>
  );
}

function Accumulators({ path }: { path: string }): JSX.Element {
  const answer = useFeed<{ "user-accumulators": Accumulator[] }>(`${path}/accumulators`);
  return (
    <>
      <Awaited answer={answer} what="accumulators" />
      {answer.data && (
        <Table
          label="Accumulators"
          rows={answer.data["user-accumulators"]}
          id={(row) => row.name}
          sortedBy="name"
          empty="The functions of this vertex have no accumulators."
          columns={[
            { key: "name", title: "Name", text: true, width: 14, by: (row) => row.name, show: (row) => row.name },
            { key: "type", title: "Type", text: true, width: 10, by: (row) => row.type, show: (row) => row.type },
            { key: "value", title: "Value", width: 14, by: (row) => row.value, show: (row) => row.value },
          ]}
        />
      )}
    </>
  );
}
