/** The last hour of a job in lines: what the page has seen since it first showed the job. */

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { brief, duration, figure, number, percent, plain, rate, time } from "../lib/format";
import { hasEnded, Series, type Figures, type JobWatch } from "../lib/job_watch";
import type { AggregatedMetric, Job, Metric } from "../lib/types";
import { Note, Panel } from "../parts/basics";
import { Chart, DURATION_STEPS, type Line } from "../parts/chart";

/** A chart with more lines is not read any more. */
const LINES_MAX = 6;

interface FigureChart {
  figure: keyof Figures;
  title: string;
  show: (value: number | null | undefined) => string;
  max?: number;
  steps?: number[];
}

const CHARTS: FigureChart[] = [
  { figure: "recordsOut", title: "Records out", show: rate },
  { figure: "recordsIn", title: "Records in", show: rate },
  { figure: "busy", title: "Busy", show: percent, max: 1 },
  { figure: "backPressured", title: "Back-pressured", show: percent, max: 1 },
  { figure: "lag", title: "Watermark lag", show: duration, steps: DURATION_STEPS },
];

export function MetricsView({ job, watch }: { job: Job; watch: JobWatch }): JSX.Element {
  const [shownIds, setShownIds] = useState<string[]>(() => job.vertices.slice(0, LINES_MAX).map((vertex) => vertex.id));
  const shown = job.vertices.filter((vertex) => shownIds.includes(vertex.id));
  const since = Math.min(...job.vertices.map((vertex) => watch.seriesOf(vertex.id, "recordsOut").at[0] ?? Infinity));
  return (
    <>
      <p class="note">
        {Number.isFinite(since) ? `What this page has seen since ${time(since * 1000)}, of the last hour at most.` : "The first figures are on their way."}
        {hasEnded(job.state) ? " The job has ended, so there is nothing new." : ""}
      </p>
      {job.vertices.length > 1 && (
        <fieldset class="chips">
          <legend>Vertices</legend>
          {job.vertices.map((vertex) => {
            const on = shownIds.includes(vertex.id);
            return (
              <label key={vertex.id} class="check">
                <input
                  type="checkbox"
                  checked={on}
                  disabled={!on && shown.length >= LINES_MAX}
                  onChange={() => setShownIds(on ? shownIds.filter((id) => id !== vertex.id) : [...shownIds, vertex.id])}
                />
                <span title={plain(vertex.name)}>{brief(plain(vertex.name), 60)}</span>
              </label>
            );
          })}
        </fieldset>
      )}
      <div class="charts">
        {CHARTS.map(({ figure, title, show, max, steps }) => {
          const known = shown.filter((vertex) => watch.seriesOf(vertex.id, figure).at.length);
          const first = known[0];
          if (!first) return null;
          // All vertices are looked at together, so they share their moments, except for one that came later.
          const { at } = watch.seriesOf(first.id, figure);
          const lines: Line[] = known.map((vertex) => ({
            name: brief(plain(vertex.name), 40),
            tone: job.vertices.indexOf(vertex),
            values: aligned(at, watch.seriesOf(vertex.id, figure)),
          }));
          return <Chart key={figure} title={title} at={at} lines={lines} show={show} steps={steps} {...(max ? { max } : {})} />;
        })}
      </div>
      {!hasEnded(job.state) && <AnyMetric job={job} />}
    </>
  );
}

function aligned(at: number[], series: Series): (number | null)[] {
  if (series.at === at || (series.at.length === at.length && series.at[0] === at[0])) return series.values;
  const known = new Map(series.at.map((then, n) => [then, series.values[n] ?? null]));
  return at.map((then) => known.get(then) ?? null);
}

/** Any metric of any vertex, from now on. */
function AnyMetric({ job }: { job: Job }): JSX.Element {
  const [vertex, setVertex] = useState(job.vertices[0]?.id ?? "");
  const [metric, setMetric] = useState("");
  const [shown, setShown] = useState<[vertex: string, metric: string][]>([]);
  const ids = useFeed<Metric[]>(vertex ? `/jobs/${job.jid}/vertices/${vertex}/subtasks/metrics` : null, 30_000);
  return (
    <Panel title="More metrics">
      <form
        class="choices"
        onSubmit={(event) => {
          event.preventDefault();
          if (metric && !shown.some(([v, m]) => v === vertex && m === metric)) setShown([...shown, [vertex, metric]]);
        }}
      >
        <label>
          Vertex
          <select value={vertex} onChange={(event) => setVertex(event.currentTarget.value)}>
            {job.vertices.map((one) => (
              <option key={one.id} value={one.id}>
                {plain(one.name)}
              </option>
            ))}
          </select>
        </label>
        <label>
          Metric
          <select value={metric} onChange={(event) => setMetric(event.currentTarget.value)}>
            <option value="">choose one</option>
            {(ids.data ?? []).map((one) => (
              <option key={one.id} value={one.id}>
                {one.id}
              </option>
            ))}
          </select>
        </label>
        <button type="submit" disabled={!metric}>
          Show
        </button>
      </form>
      {!shown.length && <Note>A metric that you choose is drawn from then on.</Note>}
      <div class="charts">
        {shown.map(([v, m]) => (
          <MetricChart key={`${v} ${m}`} job={job} vertex={v} metric={m} />
        ))}
      </div>
    </Panel>
  );
}

function MetricChart({ job, vertex, metric }: { job: Job; vertex: string; metric: string }): JSX.Element {
  const path = `/jobs/${job.jid}/vertices/${vertex}/subtasks/metrics?agg=min,max,avg&get=${encodeURIComponent(metric)}`;
  const answer = useFeed<AggregatedMetric[]>(path);
  const lines = useMemo(() => ({ min: new Series(), avg: new Series(), max: new Series() }), []);
  const [, turn] = useState(0);
  useEffect(() => {
    const found = answer.data?.[0];
    if (!found) return;
    const now = Date.now();
    for (const key of ["min", "avg", "max"] as const) lines[key].add(now, number(found[key]));
    turn((n) => n + 1);
  }, [answer.at]);
  const name = plain(job.vertices.find((one) => one.id === vertex)?.name ?? "");
  return (
    <Chart
      title={`${metric} · ${name}`}
      at={lines.avg.at}
      show={figure}
      lines={[
        { name: "highest", values: lines.max.values },
        { name: "average", values: lines.avg.values },
        { name: "lowest", values: lines.min.values },
      ]}
    />
  );
}
