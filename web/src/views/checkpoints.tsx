/** A job's checkpoints: how they have gone, and one of them in detail. */

import type { JSX } from "preact";
import { useFeed } from "../lib/feed";
import { bytes, count, duration, number, percent, plain, time } from "../lib/format";
import { hasEnded } from "../lib/job_watch";
import { href } from "../lib/route";
import type { Checkpoint, CheckpointFigures, Checkpoints, Job, Statistic, SubtaskCheckpoint, VertexCheckpoint } from "../lib/types";
import { Awaited, Bar, Copy, Figure, Figures, Note, Panel, Status } from "../parts/basics";
import { BYTES_STEPS, Chart, DURATION_STEPS } from "../parts/chart";
import { Table, type Column } from "../parts/table";

const KINDS: Record<string, string> = {
  CHECKPOINT: "checkpoint",
  UNALIGNED_CHECKPOINT: "checkpoint, unaligned",
  SAVEPOINT: "savepoint",
  SYNC_SAVEPOINT: "savepoint that stops",
};

export function CheckpointsView({ job, parts }: { job: Job; parts: string[] }): JSX.Element {
  const answer = useFeed<Checkpoints>(`/jobs/${job.jid}/checkpoints`, hasEnded(job.state) ? 10_000 : undefined);
  const [chosen, vertex] = parts;
  const data = answer.data;
  if (answer.error?.status === 404 && !data) return <Note>This job takes no checkpoints: execution.checkpointing.interval is not set.</Note>;
  if (!data) return <Awaited answer={answer} what="checkpoints" />;
  return (
    <>
      <Figures>
        <Figure label="Completed" value={count(data.counts.completed)} />
        <Figure label="In progress" value={count(data.counts.in_progress)} />
        <Figure label="Failed" value={count(data.counts.failed)} />
        <Figure label="Restored" value={count(data.counts.restored)} />
        {data.latest.completed && (
          <>
            <Figure label="Last completed" value={`#${data.latest.completed.id}, ${time(data.latest.completed.latest_ack_timestamp)}`} />
            <Figure label="It took" value={duration(data.latest.completed.end_to_end_duration)} />
            <Figure label="State" value={bytes(data.latest.completed.state_size)} />
          </>
        )}
      </Figures>
      <Latest data={data} />
      <Charts history={data.history} />
      <Panel title="History">
        <Table
          label="Checkpoints"
          rows={data.history}
          columns={columns(job)}
          id={(row) => row.id}
          current={chosen === undefined ? undefined : Number(chosen)}
          sortedBy="id"
          descending
          height={360}
          empty="No checkpoint yet."
        />
      </Panel>
      {chosen !== undefined && <Detail job={job} id={chosen} vertex={vertex} />}
      <Summary data={data} />
    </>
  );
}

function columns(job: Job): Column<Checkpoint>[] {
  return [
    { key: "id", title: "Id", width: 4.5, by: (row) => row.id, show: (row) => <a href={href("jobs", job.jid, "checkpoints", row.id)}>{row.id}</a> },
    { key: "status", title: "Status", text: true, width: 8, by: (row) => row.status, show: (row) => <Status value={row.status} /> },
    { key: "kind", title: "Kind", text: true, width: 9, by: (row) => row.checkpoint_type, show: (row) => KINDS[row.checkpoint_type] ?? row.checkpoint_type },
    { key: "at", title: "Triggered", width: 7, by: (row) => row.trigger_timestamp, show: (row) => time(row.trigger_timestamp) },
    { key: "took", title: "Duration", width: 6, by: (row) => row.end_to_end_duration, show: (row) => duration(row.end_to_end_duration) },
    { key: "size", title: "Written", width: 6, by: (row) => row.checkpointed_size, show: (row) => bytes(row.checkpointed_size) },
    { key: "state", title: "State", width: 6, by: (row) => row.state_size, show: (row) => bytes(row.state_size) },
    { key: "processed", title: "In flight, processed", width: 10, by: (row) => row.processed_data, show: (row) => bytes(row.processed_data) },
    { key: "persisted", title: "In flight, stored", width: 8.5, by: (row) => row.persisted_data, show: (row) => bytes(row.persisted_data) },
    {
      key: "acknowledged",
      title: "Acknowledged",
      text: true,
      width: 8.5,
      by: (row) => row.num_acknowledged_subtasks,
      show: (row) => <Acknowledged of={row} />,
    },
  ];
}

function Acknowledged({ of }: { of: CheckpointFigures }): JSX.Element {
  const share = of.num_subtasks ? of.num_acknowledged_subtasks / of.num_subtasks : 0;
  const label = `${of.num_acknowledged_subtasks} of ${of.num_subtasks} subtasks`;
  return (
    <span class="tasks">
      <Bar label={label} parts={[[of.status === "FAILED" ? "bad" : "good", share]]} />
      {percent(share)}
    </span>
  );
}

function Latest({ data }: { data: Checkpoints }): JSX.Element {
  const { completed, savepoint, failed, restored } = data.latest;
  return (
    <>
      {failed && (
        <p class={completed && completed.id > failed.id ? "note" : "note bad"}>
          {failed.is_savepoint ? "Savepoint" : "Checkpoint"} {failed.id} failed at {time(failed.failure_timestamp)}:{" "}
          {failed.failure_message ?? "no reason is known"}
          {completed && completed.id > failed.id ? `; checkpoint ${completed.id} has completed since.` : ""}
        </p>
      )}
      {restored && (
        <p class="note">
          The job began last from {restored.is_savepoint ? "savepoint" : "checkpoint"} {restored.id} at {time(restored.restore_timestamp)}
          {restored.external_path ? <Path path={restored.external_path} /> : null}
        </p>
      )}
      {savepoint?.external_path && (
        <p class="note">
          The last savepoint is of {time(savepoint.latest_ack_timestamp)}
          <Path path={savepoint.external_path} />
        </p>
      )}
    </>
  );
}

function Path({ path }: { path: string }): JSX.Element {
  return (
    <>
      : <code class="path">{path}</code> <Copy text={path} what="the path" />
    </>
  );
}

function Charts({ history }: { history: Checkpoint[] }): JSX.Element | null {
  const done = history.filter((one) => one.status === "COMPLETED").sort((a, b) => a.id - b.id);
  if (done.length < 2) return null;
  const at = done.map((one) => one.id);
  const line = (name: string, of: (one: Checkpoint) => number): { name: string; values: number[] } => ({ name, values: done.map(of) });
  const places = (id: number): string => (Number.isInteger(id) ? `#${id}` : "");
  return (
    <div class="charts">
      <Chart title="Duration" at={at} places={places} points show={duration} steps={DURATION_STEPS} lines={[line("end to end", (one) => one.end_to_end_duration)]} />
      <Chart
        title="Size"
        at={at}
        places={places}
        points
        show={bytes}
        steps={BYTES_STEPS}
        lines={[line("state", (one) => one.state_size), line("written", (one) => one.checkpointed_size)]}
      />
    </div>
  );
}

function Detail({ job, id, vertex }: { job: Job; id: string; vertex: string | undefined }): JSX.Element {
  const answer = useFeed<Checkpoint>(`/jobs/${job.jid}/checkpoints/details/${id}`);
  const data = answer.data;
  const rows = job.vertices.map((one) => ({ vertex: one, part: data?.tasks?.[one.id] }));
  return (
    <Panel title={`Checkpoint ${id}`} aside={<a href={href("jobs", job.jid, "checkpoints")}>Close</a>}>
      <Awaited answer={answer} what={`checkpoint ${id}`} />
      {data && (
        <>
          {data.external_path && (
            <p class="note">
              Stored{data.discarded ? ", and deleted since" : ""}
              <Path path={data.external_path} />
            </p>
          )}
          {data.failure_message && <p class="note bad">{data.failure_message}</p>}
          <Table
            label={`Vertices in checkpoint ${id}`}
            rows={rows}
            id={(row) => row.vertex.id}
            current={vertex}
            columns={[
              {
                key: "name",
                title: "Vertex",
                text: true,
                width: 16,
                hint: (row) => plain(row.vertex.name),
                show: (row) => <a href={href("jobs", job.jid, "checkpoints", id, row.vertex.id)}>{plain(row.vertex.name)}</a>,
              },
              { key: "acknowledged", title: "Acknowledged", text: true, width: 9, show: (row) => (row.part ? <Acknowledged of={row.part} /> : "–") },
              { key: "took", title: "Duration", width: 6, by: (row) => row.part?.end_to_end_duration, show: (row) => duration(row.part?.end_to_end_duration) },
              { key: "size", title: "Written", width: 6, by: (row) => row.part?.checkpointed_size, show: (row) => bytes(row.part?.checkpointed_size) },
              { key: "state", title: "State", width: 6, by: (row) => row.part?.state_size, show: (row) => bytes(row.part?.state_size) },
              { key: "persisted", title: "In flight, stored", width: 8, by: (row) => row.part?.persisted_data, show: (row) => bytes(row.part?.persisted_data) },
            ]}
          />
          {vertex && <Parts job={job} id={id} vertex={vertex} />}
        </>
      )}
    </Panel>
  );
}

const PARTS: Column<SubtaskCheckpoint>[] = [
  { key: "index", title: "Subtask", width: 5, by: (row) => row.index, show: (row) => row.index },
  { key: "status", title: "Status", text: true, width: 8, by: (row) => row.status, show: (row) => <Status value={row.status} /> },
  { key: "took", title: "Duration", width: 6, by: (row) => row.end_to_end_duration, show: (row) => duration(row.end_to_end_duration) },
  { key: "delay", title: "Barrier came after", width: 9, by: (row) => row.start_delay, show: (row) => duration(row.start_delay) },
  { key: "aligned", title: "Aligned for", width: 6, by: (row) => row.alignment?.duration, show: (row) => duration(row.alignment?.duration) },
  { key: "sync", title: "Stood still", width: 6, by: (row) => row.checkpoint?.sync, show: (row) => duration(row.checkpoint?.sync) },
  { key: "async", title: "Wrote for", width: 6, by: (row) => row.checkpoint?.async, show: (row) => duration(row.checkpoint?.async) },
  { key: "size", title: "Written", width: 6, by: (row) => row.checkpointed_size, show: (row) => bytes(row.checkpointed_size) },
  { key: "state", title: "State", width: 6, by: (row) => row.state_size, show: (row) => bytes(row.state_size) },
  { key: "processed", title: "In flight, processed", width: 10, by: (row) => row.alignment?.processed, show: (row) => bytes(row.alignment?.processed) },
  { key: "persisted", title: "In flight, stored", width: 8.5, by: (row) => row.alignment?.persisted, show: (row) => bytes(row.alignment?.persisted) },
  { key: "unaligned", title: "Unaligned", text: true, width: 6, show: (row) => (row.unaligned_checkpoint ? "yes" : "no") },
];

function Parts({ job, id, vertex }: { job: Job; id: string; vertex: string }): JSX.Element {
  const answer = useFeed<VertexCheckpoint>(`/jobs/${job.jid}/checkpoints/details/${id}/subtasks/${vertex}`);
  const name = plain(job.vertices.find((one) => one.id === vertex)?.name ?? vertex);
  return (
    <>
      <h3>Subtasks of {name}</h3>
      <Awaited answer={answer} what="subtasks of the checkpoint" />
      {answer.data && <Table label={`Subtasks of ${name}`} rows={answer.data.subtasks} columns={PARTS} id={(row) => row.index} sortedBy="index" />}
    </>
  );
}

const SUMMARY: [key: string, title: string, show: (value: number | undefined) => string][] = [
  ["end_to_end_duration", "Duration", duration],
  ["checkpointed_size", "Written", bytes],
  ["state_size", "State", bytes],
  ["processed_data", "In flight, processed", bytes],
  ["persisted_data", "In flight, stored", bytes],
];

function Summary({ data }: { data: Checkpoints }): JSX.Element {
  const rows = SUMMARY.filter(([key]) => data.summary[key]);
  const column = (key: keyof Statistic, title: string): Column<(typeof SUMMARY)[number]> => ({
    key,
    title,
    width: 6,
    show: ([name, , show]) => show(number(data.summary[name]?.[key])),
  });
  return (
    <Panel title="Over all completed checkpoints">
      <Table
        label="Figures of all completed checkpoints"
        rows={rows}
        id={([key]) => key}
        columns={[
          { key: "what", title: "", text: true, width: 10, show: ([, title]) => title },
          column("min", "Lowest"),
          column("avg", "Average"),
          column("p50", "Median"),
          column("p90", "90 %"),
          column("p99", "99 %"),
          column("max", "Highest"),
        ]}
      />
    </Panel>
  );
}
