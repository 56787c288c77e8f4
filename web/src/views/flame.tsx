/** Where the threads of a vertex are: stacks that were sampled, wider the more often they were seen. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { count, percent, time } from "../lib/format";
import type { FlameGraph, FlameNode } from "../lib/types";
import { Awaited, Note } from "../parts/basics";

/** Narrower frames (of the whole) are not drawn. */
const SHARE_MIN = 0.004;
const EVERY_MS = 5000;
const TYPES: [string, string][] = [
  ["full", "All"],
  ["on_cpu", "At work"],
  ["off_cpu", "Waiting"],
];

interface Frame {
  node: FlameNode;
  depth: number;
  left: number;
  share: number;
  path: string;
}

export function FlameView(props: { path: string; parallelism: number; ended: boolean }): JSX.Element {
  const [type, setType] = useState("full");
  const [subtask, setSubtask] = useState("");
  const [zoomed, setZoomed] = useState<string>("");
  const query = `type=${type}${subtask === "" ? "" : `&subtaskindex=${subtask}`}`;
  const answer = useFeed<FlameGraph>(props.ended ? null : `${props.path}/flamegraph?${query}`, EVERY_MS);
  const root = answer.data?.data;
  const top = useMemo(() => (root ? (found(root, zoomed) ?? root) : undefined), [root, zoomed]);
  const frames = useMemo(() => (top ? framesOf(top, zoomed) : []), [top, zoomed]);
  const depth = Math.max(0, ...frames.map((frame) => frame.depth)) + 1;
  if (props.ended) return <Note>The job has ended: there are no stacks any more.</Note>;
  if (answer.error?.status === 404) return <Note>The server takes no stacks: set rest.flamegraph.enabled to true.</Note>;
  return (
    <>
      <div class="choices">
        <label>
          Threads
          <select value={type} onChange={(event) => setType(event.currentTarget.value)}>
            {TYPES.map(([key, title]) => (
              <option key={key} value={key}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <label>
          Subtask
          <input
            type="number"
            min={0}
            max={props.parallelism - 1}
            value={subtask}
            placeholder="all"
            onChange={(event) => setSubtask(event.currentTarget.value)}
          />
        </label>
        {zoomed && (
          <button type="button" onClick={() => setZoomed("")}>
            Show all
          </button>
        )}
      </div>
      <Awaited answer={answer} what="stacks" />
      {answer.data && !root && <Note>The server takes samples; the first picture comes in a few seconds.</Note>}
      {root && top && (
        <>
          <p class="note">
            {count(root.value)} samples until {time(answer.data?.endTimestamp)}. A frame that you press fills the width.
          </p>
          <div class="flame" role="group" aria-label="Flame graph" style={{ height: `${depth * 20}px` }}>
            {frames.map(({ node, depth: at, left, share, path }) => (
              <button
                key={path}
                type="button"
                class={`frame tone-${hash(node.name) % 5}`}
                style={{ left: `${left * 100}%`, width: `${share * 100}%`, top: `${at * 20}px` }}
                title={`${node.name}: ${percent(node.value / root.value)}`}
                aria-label={`${node.name}, ${percent(node.value / root.value)}`}
                onClick={() => setZoomed(path)}
              >
                {share > 0.03 ? node.name : ""}
              </button>
            ))}
          </div>
          <h3>Most often on top</h3>
          <ol class="hot">
            {hottest(top).map(([name, value]) => (
              <li key={name}>
                <code>{name}</code> {percent(value / (top.value || 1))}
              </li>
            ))}
          </ol>
        </>
      )}
    </>
  );
}

function framesOf(top: FlameNode, path: string): Frame[] {
  const frames: Frame[] = [];
  const walk = (node: FlameNode, depth: number, left: number, at: string): void => {
    const share = top.value ? node.value / top.value : 1;
    if (depth && share < SHARE_MIN) return;
    frames.push({ node, depth, left, share, path: at });
    let next = left;
    node.children.forEach((child, n) => {
      walk(child, depth + 1, next, at ? `${at}.${n}` : String(n));
      next += top.value ? child.value / top.value : 0;
    });
  };
  walk(top, 0, 0, path);
  return frames;
}

/** The frame at a path of places among siblings. */
function found(root: FlameNode, path: string): FlameNode | undefined {
  if (!path) return root;
  return path.split(".").reduce<FlameNode | undefined>((node, n) => node?.children[Number(n)], root);
}

/** Functions by how often they were the innermost. */
function hottest(top: FlameNode): [string, number][] {
  const own = new Map<string, number>();
  const walk = (node: FlameNode): void => {
    const below = node.children.reduce((sum, child) => sum + child.value, 0);
    if (node.value > below) own.set(node.name, (own.get(node.name) ?? 0) + node.value - below);
    node.children.forEach(walk);
  };
  walk(top);
  return [...own].sort((a, b) => b[1] - a[1]).slice(0, 8);
}

function hash(text: string): number {
  let value = 0;
  for (let n = 0; n < text.length; n++) value = (value * 31 + text.charCodeAt(n)) >>> 0;
  return value;
}
