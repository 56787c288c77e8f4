/** What the reader can ask of a job, each with a question first that says what will happen. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { jobName, plain } from "../lib/format";
import { hasEnded } from "../lib/job_watch";
import { cancelJob, rescaleJob, stopJob, takeCheckpoint, takeSavepoint } from "../lib/operations";
import type { Job, PageConfig, Requirements } from "../lib/types";
import { Awaited } from "../parts/basics";
import { Dialog } from "../parts/dialog";

type Kind = "savepoint" | "checkpoint" | "rescale" | "stop" | "cancel";

export function Actions({ job }: { job: Job }): JSX.Element | null {
  const [open, setOpen] = useState<Kind | null>(null);
  const features = useFeed<PageConfig>("/config", 0).data?.features;
  if (hasEnded(job.state)) return null;
  const streaming = job["job-type"] !== "BATCH";
  const close = (): void => setOpen(null);
  const shows: [Kind, string, boolean][] = [
    ["savepoint", "Savepoint", streaming],
    ["checkpoint", "Checkpoint", streaming],
    ["rescale", "Rescale", streaming && features?.["web-rescale"] !== false],
    ["stop", "Stop", streaming],
    ["cancel", "Cancel", features?.["web-cancel"] !== false],
  ];
  return (
    <>
      <div class="actions" role="group" aria-label="What to do with the job">
        {shows
          .filter(([, , allowed]) => allowed)
          .map(([kind, title]) => (
            <button key={kind} type="button" class={kind === "cancel" ? "danger-quiet" : ""} onClick={() => setOpen(kind)}>
              {title}
            </button>
          ))}
      </div>
      {open === "savepoint" && <SavepointDialog job={job} onClose={close} />}
      {open === "checkpoint" && <CheckpointDialog job={job} onClose={close} />}
      {open === "rescale" && <RescaleDialog job={job} onClose={close} />}
      {open === "stop" && <StopDialog job={job} onClose={close} />}
      {open === "cancel" && <CancelDialog job={job} onClose={close} />}
    </>
  );
}

interface Asked {
  job: Job;
  onClose: () => void;
}

function Directory({ value, onChange }: { value: string; onChange: (value: string) => void }): JSX.Element {
  return (
    <label>
      Directory
      <input
        type="text"
        value={value}
        placeholder="as configured: execution.checkpointing.savepoint-dir"
        spellcheck={false}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </label>
  );
}

function SavepointDialog({ job, onClose }: Asked): JSX.Element {
  const [directory, setDirectory] = useState("");
  return (
    <Dialog
      title={`Take a savepoint of ${jobName(job.name)}?`}
      confirm="Take savepoint"
      onClose={onClose}
      onConfirm={() => {
        takeSavepoint(job, directory.trim());
        onClose();
      }}
    >
      <p>
        The job goes on. Its whole state is written to a new directory, which belongs to you: nothing deletes it. A job can
        start from it, with another parallelism, another state backend or another version of the program.
      </p>
      <Directory value={directory} onChange={setDirectory} />
    </Dialog>
  );
}

function CheckpointDialog({ job, onClose }: Asked): JSX.Element {
  return (
    <Dialog
      title={`Take a checkpoint of ${jobName(job.name)} now?`}
      confirm="Take checkpoint"
      onClose={onClose}
      onConfirm={() => {
        takeCheckpoint(job);
        onClose();
      }}
    >
      <p>
        The job goes on. This checkpoint is like those that it takes by itself: sinks commit what it covers, and a later one
        replaces it.
      </p>
    </Dialog>
  );
}

function StopDialog({ job, onClose }: Asked): JSX.Element {
  const [directory, setDirectory] = useState("");
  const [drain, setDrain] = useState(false);
  return (
    <Dialog
      title={`Stop ${jobName(job.name)} with a savepoint?`}
      confirm={drain ? "Drain and stop" : "Stop"}
      danger
      onClose={onClose}
      onConfirm={() => {
        stopJob(job, directory.trim(), drain);
        onClose();
      }}
    >
      <p>
        Sources end, a savepoint is taken, sinks commit what it covers, and the job becomes FINISHED. You can start it again
        from the savepoint. If the savepoint fails, the job goes on.
      </p>
      <Directory value={directory} onChange={setDirectory} />
      <label class="check">
        <input type="checkbox" checked={drain} onChange={(event) => setDrain(event.currentTarget.checked)} />
        Drain: fire all timers and windows first
      </label>
      {drain && (
        <p class="note warn">
          After a drain the job has emitted everything that it held back. Do not start it again from this savepoint to go on
          with the same input: windows would fire twice.
        </p>
      )}
    </Dialog>
  );
}

function CancelDialog({ job, onClose }: Asked): JSX.Element {
  return (
    <Dialog
      title={`Cancel ${jobName(job.name)}?`}
      confirm="Cancel the job"
      danger
      onClose={onClose}
      onConfirm={() => {
        cancelJob(job);
        onClose();
      }}
    >
      <p>
        The job ends at once and no savepoint is taken. It can go on from its last checkpoint only if that is retained:{" "}
        <code>execution.checkpointing.externalized-checkpoint-retention</code> says so. It then reads again what it read since;
        two-phase sinks show none of that twice.
      </p>
      <p>To be able to go on later, stop the job with a savepoint instead.</p>
    </Dialog>
  );
}

function RescaleDialog({ job, onClose }: Asked): JSX.Element {
  const answer = useFeed<Requirements>(`/jobs/${job.jid}/resource-requirements`, 0);
  const [wanted, setWanted] = useState<Record<string, number>>({});
  const now = answer.data;
  const of = (id: string): number => wanted[id] ?? now?.[id]?.parallelism.upperBound ?? 1;
  const changes = job.vertices.filter((vertex) => now?.[vertex.id] && of(vertex.id) !== now[vertex.id]?.parallelism.upperBound);
  const send = (): void => {
    const asked = Object.fromEntries(
      Object.entries(now ?? {}).map(([id, { parallelism }]) => [
        id,
        { parallelism: { lowerBound: Math.min(parallelism.lowerBound, of(id)), upperBound: of(id) } },
      ]),
    );
    rescaleJob(job, asked);
    onClose();
  };
  return (
    <Dialog
      title={`Rescale ${jobName(job.name)}?`}
      confirm={changes.length ? `Rescale ${changes.length === 1 ? "one vertex" : `${changes.length} vertices`}` : "Rescale"}
      disabled={!changes.length}
      onClose={onClose}
      onConfirm={send}
    >
      <p>
        The job takes a checkpoint, ends its tasks, and begins again from the checkpoint. It does so when there are enough
        slots, one for each subtask of its widest vertex, and runs as it is until then. All that is chained with a vertex, or
        connected by forward edges, gets the same parallelism.
      </p>
      <Awaited answer={answer} what="parallelism of the job's vertices" />
      <div class="rescale">
        {now &&
          job.vertices
            .filter((vertex) => now[vertex.id])
            .map((vertex) => (
              <label key={vertex.id}>
                <span>{plain(vertex.name)}</span>
                <input
                  type="number"
                  min={1}
                  max={vertex.maxParallelism > 0 ? vertex.maxParallelism : undefined}
                  required
                  value={of(vertex.id)}
                  onInput={(event) => {
                    const value = event.currentTarget.valueAsNumber;
                    if (value >= 1) setWanted({ ...wanted, [vertex.id]: value });
                  }}
                />
              </label>
            ))}
      </div>
    </Dialog>
  );
}
