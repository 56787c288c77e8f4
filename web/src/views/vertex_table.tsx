/** All vertices of a job: what they have read and written so far, and what they do now. */

import type { JSX } from "preact";
import { bytes, count, duration, percent, plain, time } from "../lib/format";
import type { Figures, JobWatch } from "../lib/job_watch";
import { href } from "../lib/route";
import type { Job, Vertex } from "../lib/types";
import { Panel, Status } from "../parts/basics";
import { Table, type Column } from "../parts/table";

type Row = Vertex & { figures: Figures };

export function VertexTable({ job, watch, chosen }: { job: Job; watch: JobWatch; chosen: string | undefined }): JSX.Element {
  const rows = job.vertices.map((vertex) => ({ ...vertex, figures: watch.figures.get(vertex.id) ?? {} }));
  return (
    <Panel title="Vertices">
      <Table label="Vertices" rows={rows} columns={columns(job)} id={(row) => row.id} current={chosen} height={640} />
    </Panel>
  );
}

function columns(job: Job): Column<Row>[] {
  return [
    {
      key: "name",
      title: "Name",
      text: true,
      width: 16,
      grows: true,
      by: (row) => row.name,
      hint: (row) => plain(row.name),
      show: (row) => <a href={href("jobs", job.jid, "graph", row.id, "subtasks")}>{plain(row.name)}</a>,
    },
    { key: "status", title: "Status", text: true, width: 7, by: (row) => row.status, show: (row) => <Status value={row.status} /> },
    { key: "parallelism", title: "Parallelism", width: 6.3, by: (row) => row.parallelism, show: (row) => count(row.parallelism) },
    { key: "busy", title: "Busy", width: 4.5, by: (row) => row.figures.busy, show: (row) => percent(row.figures.busy) },
    { key: "held", title: "Back-pressured", width: 8, by: (row) => row.figures.backPressured, show: (row) => percent(row.figures.backPressured) },
    { key: "records-in", title: "Records in", width: 7.2, by: (row) => row.metrics["read-records"], show: (row) => count(row.metrics["read-records"]) },
    { key: "records-out", title: "Records out", width: 7.2, by: (row) => row.metrics["write-records"], show: (row) => count(row.metrics["write-records"]) },
    { key: "bytes-in", title: "Bytes in", width: 6, by: (row) => row.metrics["read-bytes"], show: (row) => bytes(row.metrics["read-bytes"]) },
    { key: "bytes-out", title: "Bytes out", width: 6, by: (row) => row.metrics["write-bytes"], show: (row) => bytes(row.metrics["write-bytes"]) },
    { key: "start", title: "Started", width: 6.5, by: (row) => row["start-time"], show: (row) => time(row["start-time"]) },
    { key: "duration", title: "Duration", width: 7, by: (row) => row.duration, show: (row) => duration(row.duration) },
  ];
}
