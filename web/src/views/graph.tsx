/** The job graph with what happens in it now, and a vertex's details beside it. */

import { Graph, layout } from "@dagrejs/dagre";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { duration, percent, plain, rate, steps, watermark } from "../lib/format";
import { hasEnded, type Figures, type JobWatch } from "../lib/job_watch";
import { go, href } from "../lib/route";
import type { Job, Vertex } from "../lib/types";
import { TimeShares } from "../parts/basics";
import { VertexDrawer } from "./vertex";
import { VertexTable } from "./vertex_table";

const NODE = { width: 224, height: 124 };
/** Narrower than this (px), the graph runs from top to bottom. */
const NARROW = 640;

interface Placed {
  width: number;
  height: number;
  nodes: Map<string, { x: number; y: number }>;
  edges: { from: string; to: string; ship: string; path: string; x: number; y: number }[];
}

interface Edge {
  from: string;
  to: string;
  ship: string;
}

function edgesOf(job: Job): Edge[] {
  const known = new Set(job.vertices.map((vertex) => vertex.id));
  return job.plan.nodes.flatMap((node) =>
    (node.inputs ?? [])
      .filter((input) => known.has(input.id) && known.has(node.id))
      .map((input) => ({ from: input.id, to: node.id, ship: input.ship_strategy ?? "" })),
  );
}

function place(ids: string[], edges: Edge[], downwards: boolean): Placed {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: downwards ? "TB" : "LR", nodesep: 28, ranksep: downwards ? 52 : 96, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const id of ids) graph.setNode(id, { ...NODE });
  edges.forEach((edge, n) => graph.setEdge(edge.from, edge.to, { width: 72, height: 30, labelpos: "c" }, String(n)));
  layout(graph);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  const nodes = new Map(
    ids.map((id) => {
      const node = graph.node(id) as { x: number; y: number };
      return [id, { x: node.x - NODE.width / 2, y: node.y - NODE.height / 2 }];
    }),
  );
  return {
    width,
    height,
    nodes,
    edges: edges.map((edge, n) => {
      const { points, x, y } = graph.edge(edge.from, edge.to, String(n)) as unknown as {
        points: { x: number; y: number }[];
        x: number;
        y: number;
      };
      return { ...edge, path: curve(points), x, y };
    }),
  };
}

/** A smooth line through the points. */
function curve(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let path = `M${first.x},${first.y}`;
  rest.forEach((point, n) => {
    const next = rest[n + 1];
    if (next) path += ` Q${point.x},${point.y} ${(point.x + next.x) / 2},${(point.y + next.y) / 2}`;
    else path += ` L${point.x},${point.y}`;
  });
  return path;
}

export function GraphView({ job, watch, parts }: { job: Job; watch: JobWatch; parts: string[] }): JSX.Element {
  const [open, tab = "subtasks"] = parts;
  const chosen = job.vertices.find((vertex) => vertex.id === open);
  const box = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(1000);
  const [zoom, setZoom] = useState<number | null>(null);
  useLayoutEffect(() => {
    const holder = box.current;
    if (!holder) return undefined;
    const watchSize = new ResizeObserver(() => setRoom(holder.clientWidth));
    watchSize.observe(holder);
    setRoom(holder.clientWidth);
    return () => watchSize.disconnect();
  }, []);
  useEffect(() => {
    const close = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && open && !document.querySelector("dialog[open]")) go("jobs", job.jid, "graph");
    };
    window.addEventListener("keydown", close);
    return () => window.removeEventListener("keydown", close);
  }, [open, job.jid]);

  const downwards = room < NARROW;
  const shape = JSON.stringify([job.vertices.map((vertex) => vertex.id), edgesOf(job)]);
  const placed = useMemo(
    () => place(job.vertices.map((vertex) => vertex.id), edgesOf(job), downwards),
    [shape, downwards],
  );
  const fit = Math.min(1, Math.max(0.65, room / (placed.width || 1)));
  const scale = zoom ?? fit;
  const rates = useMemo(() => edgeRates(placed.edges, watch.figures), [placed, watch.figures]);

  return (
    <div class={`graph-view ${chosen ? "with-drawer" : ""}`}>
      <section class="panel graph" aria-label="Job graph">
        <div class="zoom">
          <Legend />
          <span class="grow" />
          <button type="button" class="quiet" aria-label="Smaller" onClick={() => setZoom(Math.max(0.3, scale - 0.1))}>
            −
          </button>
          <button type="button" class="quiet" onClick={() => setZoom(null)}>
            Fit
          </button>
          <button type="button" class="quiet" aria-label="Larger" onClick={() => setZoom(Math.min(1.6, scale + 0.1))}>
            +
          </button>
        </div>
        <div class="canvas" ref={box} tabIndex={0} role="region" aria-label="Vertices and edges">
          <div class="sheet" style={{ width: `${placed.width * scale}px`, height: `${placed.height * scale}px` }}>
            <div class="scaled" style={{ width: `${placed.width}px`, height: `${placed.height}px`, transform: `scale(${scale})` }}>
              <svg width={placed.width} height={placed.height} aria-hidden="true">
                <defs>
                  <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                    <path d="M0 0L8 4L0 8z" class="arrow" />
                  </marker>
                </defs>
                {placed.edges.map((edge, n) => (
                  <g key={n}>
                    <path d={edge.path} class={`edge ${rates[n] ? "flows" : ""}`} marker-end="url(#arrow)" />
                    <text x={edge.x} y={edge.y - 7} class="edge-rate">
                      {rates[n] === undefined ? "" : rate(rates[n])}
                    </text>
                    <text x={edge.x} y={edge.y + 14} class="edge-ship">
                      {edge.ship.toLowerCase()}
                    </text>
                  </g>
                ))}
              </svg>
              {job.vertices.map((vertex) => (
                <Node
                  key={vertex.id}
                  job={job}
                  vertex={vertex}
                  figures={watch.figures.get(vertex.id) ?? {}}
                  at={placed.nodes.get(vertex.id) ?? { x: 0, y: 0 }}
                  chosen={vertex.id === open}
                  reads={placed.edges.some((edge) => edge.to === vertex.id)}
                  writes={placed.edges.some((edge) => edge.from === vertex.id)}
                />
              ))}
            </div>
          </div>
        </div>
      </section>
      {chosen && <VertexDrawer job={job} vertex={chosen} watch={watch} tab={tab} />}
      {open && !chosen && <p class="note">The job has no such vertex.</p>}
      <VertexTable job={job} watch={watch} chosen={chosen?.id} />
    </div>
  );
}

/** A rate is an edge's own if it is the only one into its consumer, or out of its producer; others are not known. */
function edgeRates(edges: Edge[], figures: Map<string, Figures>): (number | undefined)[] {
  const into = (id: string): number => edges.filter((edge) => edge.to === id).length;
  const outOf = (id: string): number => edges.filter((edge) => edge.from === id).length;
  return edges.map((edge) => {
    if (into(edge.to) === 1) return figures.get(edge.to)?.recordsIn;
    if (outOf(edge.from) === 1) return figures.get(edge.from)?.recordsOut;
    return undefined;
  });
}

function Legend(): JSX.Element {
  return (
    <span class="legend">
      <i class="busy" /> busy <i class="held" /> back-pressured <i class="idle" /> idle
    </span>
  );
}

/** How a vertex is shaded: by what most of its time goes into, the stronger the more. */
function shading(figures: Figures): Record<string, string> {
  const busy = figures.busyMax ?? figures.busy ?? 0;
  const held = figures.backPressuredMax ?? figures.backPressured ?? 0;
  const [tone, share] = held > 0.1 && held >= busy ? ["held", held] : ["busy", busy];
  return { "--tone": `var(--${tone})`, "--share": `${Math.round(share * 30)}%` };
}

function Node(props: {
  job: Job;
  vertex: Vertex;
  figures: Figures;
  at: { x: number; y: number };
  chosen: boolean;
  /** Whether edges lead to it, and from it. */
  reads: boolean;
  writes: boolean;
}): JSX.Element {
  const { job, vertex, figures } = props;
  const ended = hasEnded(job.state);
  const name = plain(vertex.name);
  const does = steps(job.plan.nodes.find((node) => node.id === vertex.id)?.description, vertex.name);
  return (
    <a
      class={`node ${vertex.status.toLowerCase()}`}
      href={href("jobs", job.jid, "graph", vertex.id, "subtasks")}
      aria-current={props.chosen ? "true" : undefined}
      title={does.length ? [name, "", ...does].join("\n") : name}
      style={{
        left: `${props.at.x}px`,
        top: `${props.at.y}px`,
        width: `${NODE.width}px`,
        height: `${NODE.height}px`,
        ...(ended ? {} : shading(figures)),
      }}
    >
      <span class="node-name">{name}</span>
      <span class="node-line">
        <span title="Parallelism">×{vertex.parallelism}</span>
        <span>{vertex.status.toLowerCase()}</span>
      </span>
      {!ended && (
        <>
          <TimeShares quiet busy={figures.busy} backPressured={figures.backPressured} idle={figures.idle} />
          <span class="node-line">
            <span>
              busy {percent(figures.busy)}
              {figures.backPressured ? ` · held ${percent(figures.backPressured)}` : ""}
            </span>
            <span title={`Watermark: ${watermark(figures.watermark)}`}>
              {figures.lag === undefined ? "" : `lag ${duration(figures.lag)}`}
            </span>
          </span>
          <span class="node-line">
            <span>{props.reads || figures.recordsIn ? `in ${rate(figures.recordsIn)}` : ""}</span>
            <span>{props.writes || figures.recordsOut ? `out ${rate(figures.recordsOut)}` : ""}</span>
          </span>
        </>
      )}
    </a>
  );
}
