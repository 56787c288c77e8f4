/** How large the job's state is, by vertex and subtask, as of its last completed checkpoint. */

import type { JSX } from "preact";
import { useFeed } from "../lib/feed";
import { bytes, percent, plain, time } from "../lib/format";
import { href } from "../lib/route";
import type { Checkpoint, Checkpoints, Job, VertexCheckpoint } from "../lib/types";
import { Awaited, Bar, Figure, Figures, Note, Panel } from "../parts/basics";
import { Table } from "../parts/table";

export function StateView({ job, parts }: { job: Job; parts: string[] }): JSX.Element {
  const answer = useFeed<Checkpoints>(`/jobs/${job.jid}/checkpoints`);
  const last = answer.data?.latest.completed;
  const details = useFeed<Checkpoint>(last ? `/jobs/${job.jid}/checkpoints/details/${last.id}` : null, 0);
  const chosen = parts[0];
  if (answer.error?.status === 404 && !answer.data) {
    return <Note>This job takes no checkpoints, and the size of its state is measured by them.</Note>;
  }
  if (!answer.data) return <Awaited answer={answer} what="state sizes" />;
  if (!last) return <Note>The size of the state is known from the first completed checkpoint on.</Note>;
  const rows = job.vertices
    .map((vertex) => ({ vertex, size: details.data?.tasks?.[vertex.id]?.state_size ?? 0 }))
    .sort((a, b) => b.size - a.size);
  const total = rows.reduce((sum, row) => sum + row.size, 0);
  return (
    <>
      <Figures>
        <Figure label="State" value={bytes(last.state_size)} />
        <Figure label="As of" value={`checkpoint ${last.id}, ${time(last.latest_ack_timestamp)}`} />
        <Figure label="Written for it" value={bytes(last.checkpointed_size)} />
      </Figures>
      <Panel title="By vertex">
        <Awaited answer={details} what="checkpoint's details" />
        <Table
          label="State by vertex"
          rows={rows}
          id={(row) => row.vertex.id}
          current={chosen}
          columns={[
            {
              key: "name",
              title: "Vertex",
              text: true,
              width: 18,
              hint: (row) => plain(row.vertex.name),
              show: (row) => <a href={href("jobs", job.jid, "state", row.vertex.id)}>{plain(row.vertex.name)}</a>,
            },
            { key: "size", title: "State", width: 7, by: (row) => row.size, show: (row) => bytes(row.size) },
            {
              key: "share",
              title: "Of all",
              text: true,
              width: 12,
              show: (row) => (
                <span class="tasks">
                  <Bar label={percent(total ? row.size / total : 0)} parts={[["calm", total ? row.size / total : 0]]} />
                  {percent(total ? row.size / total : 0)}
                </span>
              ),
            },
          ]}
        />
      </Panel>
      {chosen && <BySubtask job={job} id={last.id} vertex={chosen} />}
    </>
  );
}

function BySubtask({ job, id, vertex }: { job: Job; id: number; vertex: string }): JSX.Element {
  const answer = useFeed<VertexCheckpoint>(`/jobs/${job.jid}/checkpoints/details/${id}/subtasks/${vertex}`, 0);
  const rows = answer.data?.subtasks ?? [];
  const largest = Math.max(1, ...rows.map((row) => row.state_size ?? 0));
  const average = rows.reduce((sum, row) => sum + (row.state_size ?? 0), 0) / (rows.length || 1);
  return (
    <Panel title={`Subtasks of ${plain(job.vertices.find((one) => one.id === vertex)?.name ?? vertex)}`}>
      <Awaited answer={answer} what="subtasks' state" />
      {answer.data && (
        <>
          <Figures>
            <Figure label="Largest" value={bytes(largest)} />
            <Figure label="Average" value={bytes(average)} />
            <Figure label="Largest to average" value={average ? `${(largest / average).toFixed(1)} times` : "–"} hint="1 is even: keys are spread well" />
          </Figures>
          <Table
            label="State by subtask"
            rows={rows}
            id={(row) => row.index}
            sortedBy="size"
            descending
            columns={[
              { key: "index", title: "Subtask", width: 5, by: (row) => row.index, show: (row) => row.index },
              { key: "size", title: "State", width: 7, by: (row) => row.state_size, show: (row) => bytes(row.state_size) },
              {
                key: "bar",
                title: "Beside the largest",
                text: true,
                width: 14,
                show: (row) => <Bar label={percent((row.state_size ?? 0) / largest)} parts={[["calm", (row.state_size ?? 0) / largest]]} />,
              },
            ]}
          />
        </>
      )}
    </Panel>
  );
}
