/** When the job, its vertices and their subtasks came to which status. */

import type { JSX } from "preact";
import { useFeed } from "../lib/feed";
import { duration, plain, plural, time } from "../lib/format";
import { hasEnded } from "../lib/job_watch";
import { href } from "../lib/route";
import type { Job, StatusHistory, SubtaskTimes } from "../lib/types";
import { Awaited, Note, Panel, Status } from "../parts/basics";
import { Table } from "../parts/table";

interface Stretch {
  status: string;
  from: number;
  to: number;
}

/** The stretches between moments at which something came to a status. */
function stretches(timestamps: Record<string, number>, end: number): Stretch[] {
  const moves = Object.entries(timestamps)
    .filter(([, at]) => at > 0)
    .sort((a, b) => a[1] - b[1]);
  return moves.map(([status, from], n) => ({ status, from, to: moves[n + 1]?.[1] ?? Math.max(from, end) }));
}

export function TimelineView({ job, parts }: { job: Job; parts: string[] }): JSX.Element {
  const chosen = job.vertices.find((vertex) => vertex.id === parts[0]);
  const history = useFeed<StatusHistory>(`/jobs/${job.jid}/status-history`);
  // The two answers are not of one moment.
  const end = hasEnded(job.state) ? job["end-time"] : Math.max(job.now, history.data?.now ?? 0);
  const moves = (history.data?.periods ?? []).map((period) => ({
    status: period.status,
    from: period["start-time"],
    to: period["end-time"] >= 0 ? period["end-time"] : end,
  }));
  const from = moves[0]?.from ?? job["start-time"];
  return (
    <>
      <Panel title="The job">
        <Awaited answer={history} what="job's statuses" />
        {history.data && (
          <>
            <Stretches of={moves} from={from} to={end} label={`${plural(moves.length, "status", "statuses")} since ${time(from)}`} />
            <Table
              label="Statuses of the job"
              rows={moves.map((move, number) => ({ ...move, number }))}
              id={(row) => row.number}
              sortedBy="at"
              descending
              height={280}
              columns={[
                { key: "status", title: "Status", text: true, width: 9, show: (row) => <Status value={row.status} /> },
                { key: "at", title: "Since", width: 9, by: (row) => row.number, show: (row) => time(row.from) },
                { key: "for", title: "For", width: 7, by: (row) => row.to - row.from, show: (row) => (hasEnded(row.status) ? "–" : duration(row.to - row.from)) },
                { key: "bar", title: "", text: true, width: 16, show: (row) => <Stretches of={[row]} from={from} to={end} label={row.status.toLowerCase()} /> },
              ]}
            />
            {history.data.truncated && <Note>Older ones are no longer known.</Note>}
          </>
        )}
      </Panel>
      <Panel title="Vertices">
        <Table
          label="Vertices over time"
          rows={job.vertices}
          id={(row) => row.id}
          current={chosen?.id}
          columns={[
            {
              key: "name",
              title: "Vertex",
              text: true,
              width: 16,
              hint: (row) => plain(row.name),
              show: (row) => <a href={href("jobs", job.jid, "timeline", row.id)}>{plain(row.name)}</a>,
            },
            { key: "status", title: "Status", text: true, width: 8, show: (row) => <Status value={row.status} /> },
            { key: "start", title: "Began", width: 8, by: (row) => row["start-time"], show: (row) => time(row["start-time"]) },
            { key: "for", title: "For", width: 7, by: (row) => row.duration, show: (row) => duration(row.duration) },
            {
              key: "bar",
              title: "",
              text: true,
              width: 16,
              show: (row) =>
                row["start-time"] > 0 && (
                  <Stretches
                    of={[{ status: row.status, from: row["start-time"], to: row["end-time"] > 0 ? row["end-time"] : end }]}
                    from={from}
                    to={end}
                    label={row.status}
                  />
                ),
            },
          ]}
        />
      </Panel>
      {chosen && <SubtaskTimeline job={job} vertex={chosen.id} name={plain(chosen.name)} end={end} />}
    </>
  );
}

function SubtaskTimeline(props: { job: Job; vertex: string; name: string; end: number }): JSX.Element {
  const answer = useFeed<SubtaskTimes>(`/jobs/${props.job.jid}/vertices/${props.vertex}/subtasktimes`);
  const rows = (answer.data?.subtasks ?? []).map((one) => ({ ...one, moves: stretches(one.timestamps, props.end) }));
  const from = rows.reduce((least, row) => Math.min(least, row.moves[0]?.from ?? least), Infinity);
  return (
    <Panel title={`Subtasks of ${props.name}`}>
      <Awaited answer={answer} what="subtasks' times" />
      {answer.data && (
        <Table
          label="Subtasks over time"
          rows={rows}
          id={(row) => row.subtask}
          columns={[
            { key: "subtask", title: "Subtask", width: 5, by: (row) => row.subtask, show: (row) => row.subtask },
            { key: "status", title: "Status", text: true, width: 8, show: (row) => <Status value={row.moves.at(-1)?.status ?? "CREATED"} /> },
            { key: "for", title: "For", width: 7, by: (row) => row.duration, show: (row) => duration(row.duration) },
            {
              key: "bar",
              title: "",
              text: true,
              width: 24,
              show: (row) => (
                <Stretches
                  of={row.moves}
                  from={from}
                  to={props.end}
                  label={row.moves.map((move) => `${move.status.toLowerCase()} for ${duration(move.to - move.from)}`).join(", ")}
                />
              ),
            },
          ]}
        />
      )}
    </Panel>
  );
}

function Stretches({ of, from, to, label }: { of: Stretch[]; from: number; to: number; label: string }): JSX.Element {
  const whole = Math.max(1, to - from);
  return (
    <span class="stretches" role="img" aria-label={label} title={label}>
      {of.map((one, n) => (
        <span
          key={n}
          class={`stretch ${one.status.toLowerCase()}`}
          style={{ left: `${((one.from - from) / whole) * 100}%`, width: `max(2px, ${((one.to - one.from) / whole) * 100}%)` }}
        />
      ))}
    </span>
  );
}
