/** Which input holds the watermark of an operator back. */

import type { JSX } from "preact";
import { useQuietFeed } from "../lib/feed";
import { duration, plain, watermark } from "../lib/format";
import { hasEnded } from "../lib/job_watch";
import { href } from "../lib/route";
import type { Hold, HoldInput, Job, WatermarkHolds } from "../lib/types";
import { Status } from "./basics";
import { Table } from "./table";

/** A watermark that stands still for less than that (ms) is nothing to look at. */
const PATIENCE_MS = 10_000;

/** The vertices that are held back, the longest first. */
export function useHolds(job: Job): Hold[] {
  const asks = !hasEnded(job.state) && job["job-type"] !== "BATCH";
  const answer = useQuietFeed<WatermarkHolds>(asks ? `/jobs/${job.jid}/watermark-hold` : null);
  return answer.data?.holds.filter((hold) => hold.duration >= PATIENCE_MS) ?? [];
}

/** The subtasks or splits of an input, such as "subtasks 0, 3" or "topic-1 and 4 more". */
function partsOf(input: { subtasks: number[]; splits: string[]; count?: number }): string {
  const names = input.splits.length ? input.splits : input.subtasks.map(String);
  if (!names.length) return "";
  const more = (input.count ?? names.length) - names.length;
  const what = input.splits.length ? "" : names.length === 1 ? "subtask " : "subtasks ";
  return `${what}${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

export function HoldNote({ job }: { job: Job }): JSX.Element | null {
  const holds = useHolds(job);
  const hold = holds[0];
  if (!hold) return null;
  const culprit = hold.origin ?? hold.inputs.find((input) => input.holds);
  const parts = culprit ? partsOf(culprit) : "";
  return (
    <p class="note warn" role="status">
      The watermark of <a href={href("jobs", job.jid, "graph", hold.id, "watermarks")}>{plain(hold.name)}</a> has stood still for{" "}
      {duration(hold.duration)}
      {culprit && (
        <>
          : <strong>{plain(culprit.name)}</strong>
          {parts && `, ${parts},`} holds it back
        </>
      )}
      .{holds.length > 1 ? ` So it is with ${holds.length - 1} more.` : ""}
    </p>
  );
}

/** The inputs of a vertex that is held back. */
export function HoldInputs({ job, vertex }: { job: Job; vertex: string }): JSX.Element | null {
  const hold = useHolds(job).find((one) => one.id === vertex);
  if (!hold) return null;
  return (
    <>
      <p class="note warn">
        The watermark of {hold.operator} has stood still for {duration(hold.duration)}, while other inputs are ahead.
      </p>
      <Table
        label="Inputs of the operator"
        rows={hold.inputs.map((input, number) => ({ ...input, number }))}
        id={(row) => row.number}
        columns={[
          { key: "name", title: "Input", text: true, width: 14, hint: (row) => plain(row.name), show: (row) => <a href={href("jobs", job.jid, "graph", row.id, "subtasks")}>{plain(row.name)}</a> },
          { key: "is", title: "Is", text: true, width: 8, show: (row) => <Status value={standing(row)} tone={row.holds ? "warn" : "calm"} /> },
          { key: "watermark", title: "Watermark (UTC)", text: true, width: 14, by: (row) => row.watermark ?? undefined, show: (row) => watermark(row.watermark ?? -Infinity) },
          { key: "parts", title: "Which part", text: true, width: 14, hint: (row) => partsOf(row), show: (row) => partsOf(row) },
        ]}
      />
    </>
  );
}

function standing(input: HoldInput): string {
  if (input.holds) return "behind";
  return input.ended ? "at its end" : input.idle ? "idle" : "ahead";
}
