/**
 * The figures of a job's vertices, and what they have been over the last hour.
 *
 * Rates and shading come from Flink's metrics of each vertex, aggregated over its subtasks by the server. Where the
 * server has none for a vertex (a batch's tasks are the engine's), or does not answer, rates are made of the totals in the
 * job's details; in the latter case the page says so.
 */

import { useEffect, useState } from "preact/hooks";
import { ApiError, getJson } from "./api";
import { EVERY_MS, feedOf } from "./feed";
import { isTime, number } from "./format";
import type { AggregatedMetric, Job, Vertex } from "./types";

/** How long (ms) figures are remembered. */
export const HOUR_MS = 3_600_000;
/** How many vertices are asked for in one turn; where there are more, they take turns. */
const VERTICES_A_TURN = 24;

const METRICS = [
  "numRecordsInPerSecond",
  "numRecordsOutPerSecond",
  "busyTimeMsPerSecond",
  "backPressuredTimeMsPerSecond",
  "idleTimeMsPerSecond",
  "currentInputWatermark",
].join(",");

export interface Figures {
  recordsIn?: number | undefined;
  recordsOut?: number | undefined;
  /** Of all time, from 0 to 1, averages over the subtasks; `busyMax` is the busiest one's. */
  busy?: number | undefined;
  busyMax?: number | undefined;
  backPressured?: number | undefined;
  backPressuredMax?: number | undefined;
  idle?: number | undefined;
  /** The lowest of the subtasks. */
  watermark?: number | undefined;
  /** How far (ms) the watermark is behind the clock of the server. */
  lag?: number | undefined;
}

/** Values over time: `at` in seconds since the epoch, oldest first. */
export class Series {
  readonly at: number[] = [];
  readonly values: (number | null)[] = [];

  add(atMs: number, value: number | undefined): void {
    const at = atMs / 1000;
    if (this.at.length && at <= (this.at.at(-1) ?? 0)) return;
    this.at.push(at);
    this.values.push(value ?? null);
    // Thrown out in larger pieces, for each costs a move of all that stay.
    const old = this.at.findIndex((then) => then >= at - HOUR_MS / 1000);
    if (old > 60) {
      this.at.splice(0, old);
      this.values.splice(0, old);
    }
  }
}

const ENDED = new Set(["FAILED", "CANCELED", "FINISHED", "SUSPENDED"]);

export function hasEnded(state: string): boolean {
  return ENDED.has(state);
}

export class JobWatch {
  figures = new Map<string, Figures>();
  /** Why the metrics of a vertex were not to be had in the last turn. */
  failure: string | undefined;
  /** By vertex and name of the figure. */
  readonly series = new Map<string, Series>();
  private readonly listeners = new Set<() => void>();
  private previous: Job | undefined;
  private next = 0;
  private stop: (() => void) | undefined;

  constructor(readonly jobId: string) {}

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    if (this.listeners.size === 1) {
      const feed = feedOf<Job>(`/jobs/${this.jobId}`, EVERY_MS);
      this.stop = feed.listen(() => feed.answer.data && void this.take(feed.answer.data));
    }
    return () => {
      this.listeners.delete(listener);
      if (!this.listeners.size) this.stop?.();
    };
  }

  seriesOf(vertex: string, name: string): Series {
    const key = `${vertex} ${name}`;
    let series = this.series.get(key);
    if (!series) this.series.set(key, (series = new Series()));
    return series;
  }

  private async take(job: Job): Promise<void> {
    if (job === this.previous) return;
    const before = this.previous;
    this.previous = job;
    const figures = new Map<string, Figures>();
    for (const vertex of job.vertices) {
      const then = before?.vertices.find((other) => other.id === vertex.id);
      figures.set(vertex.id, then ? ratesOf(vertex, then, job.now - (before?.now ?? job.now)) : {});
    }
    this.failure = hasEnded(job.state) ? undefined : await this.ask(job, figures);
    this.figures = figures;
    for (const [vertex, now] of figures) {
      for (const [name, value] of Object.entries(now) as [string, number | undefined][]) {
        this.seriesOf(vertex, name).add(job.now, name === "watermark" ? undefined : value);
      }
    }
    for (const listener of [...this.listeners]) listener();
  }

  private async ask(job: Job, figures: Map<string, Figures>): Promise<string | undefined> {
    let failure: string | undefined;
    const many = job.vertices.length;
    const turn = Array.from({ length: Math.min(many, VERTICES_A_TURN) }, (_, n) => job.vertices[(this.next + n) % many]);
    this.next = many > VERTICES_A_TURN ? (this.next + VERTICES_A_TURN) % many : 0;
    for (const vertex of job.vertices) {
      // Those whose turn it is not keep what was known of them.
      const known = this.figures.get(vertex.id);
      if (known && !turn.includes(vertex)) figures.set(vertex.id, known);
    }
    await Promise.all(
      turn.map(async (vertex) => {
        if (!vertex) return;
        try {
          const path = `/jobs/${job.jid}/vertices/${vertex.id}/subtasks/metrics?get=${METRICS}&agg=min,max,avg,sum`;
          const found = figuresOf(await getJson<AggregatedMetric[]>(path), job.now);
          figures.set(vertex.id, { ...figures.get(vertex.id), ...found });
        } catch (error) {
          // For want of a token the page asks by itself.
          if (!(error instanceof ApiError)) failure = String(error);
          else if (error.status !== 401) failure = error.sentences.join(" ");
        }
      }),
    );
    return failure;
  }
}

function ratesOf(vertex: Vertex, then: Vertex, ms: number): Figures {
  if (ms <= 0) return {};
  const per = (name: "read-records" | "write-records"): number =>
    Math.max(0, ((vertex.metrics[name] - then.metrics[name]) * 1000) / ms);
  const share = (
    name: "accumulated-busy-time" | "accumulated-backpressured-time" | "accumulated-idle-time",
  ): number | undefined => {
    const [now, before] = [number(vertex.metrics[name]), number(then.metrics[name])];
    if (now === undefined || before === undefined || !vertex.parallelism) return undefined;
    return Math.min(1, Math.max(0, (now - before) / ms / vertex.parallelism));
  };
  return {
    recordsIn: per("read-records"),
    recordsOut: per("write-records"),
    busy: share("accumulated-busy-time"),
    backPressured: share("accumulated-backpressured-time"),
    idle: share("accumulated-idle-time"),
  };
}

function figuresOf(metrics: AggregatedMetric[], now: number): Figures {
  const by = new Map(metrics.map((metric) => [metric.id, metric]));
  const share = (id: string, of: "avg" | "max"): number | undefined => {
    const value = number(by.get(id)?.[of]);
    return value === undefined ? undefined : Math.min(1, Math.max(0, value / 1000));
  };
  const lowest = number(by.get("currentInputWatermark")?.min);
  const found: Figures = {
    recordsIn: number(by.get("numRecordsInPerSecond")?.sum),
    recordsOut: number(by.get("numRecordsOutPerSecond")?.sum),
    busy: share("busyTimeMsPerSecond", "avg"),
    busyMax: share("busyTimeMsPerSecond", "max"),
    backPressured: share("backPressuredTimeMsPerSecond", "avg"),
    backPressuredMax: share("backPressuredTimeMsPerSecond", "max"),
    idle: share("idleTimeMsPerSecond", "avg"),
    watermark: lowest,
    lag: isTime(lowest) ? Math.max(0, now - lowest) : undefined,
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}

const watches = new Map<string, JobWatch>();

function watchOf(jobId: string): JobWatch {
  let watch = watches.get(jobId);
  if (!watch) watches.set(jobId, (watch = new JobWatch(jobId)));
  return watch;
}

/** The figures of a job, anew with each answer. */
export function useJobWatch(jobId: string): JobWatch {
  const [, turn] = useState(0);
  const watch = watchOf(jobId);
  useEffect(() => watch.listen(() => turn((n) => n + 1)), [watch]);
  return watch;
}
