/** With which options a job runs. */

import type { JSX } from "preact";
import { useFeed } from "../lib/feed";
import type { Job, JobConfig, KeyValue } from "../lib/types";
import { Awaited, Pairs, Panel } from "../parts/basics";

export function ConfigurationView({ job }: { job: Job }): JSX.Element {
  const answer = useFeed<JobConfig>(`/jobs/${job.jid}/config`, 0);
  const options = useFeed<KeyValue[]>(`/jobs/${job.jid}/jobmanager/config`, 0);
  const checkpoints = useFeed<Record<string, unknown>>(
    job["job-type"] === "BATCH" ? null : `/jobs/${job.jid}/checkpoints/config`,
    0,
  );
  const { "user-config": user, ...execution } = answer.data?.["execution-config"] ?? { "user-config": {} };
  return (
    <>
      <Panel title="Execution">
        <Awaited answer={answer} what="configuration" />
        {answer.data && <Pairs label="Execution" pairs={flat(execution)} />}
      </Panel>
      {Object.keys(user).length > 0 && (
        <Panel title="Parameters of the program">
          <Pairs label="Parameters of the program" pairs={flat(user)} />
        </Panel>
      )}
      {checkpoints.data && (
        <Panel title="Checkpoints">
          <Pairs label="Checkpoints" pairs={flat(checkpoints.data)} />
        </Panel>
      )}
      <Panel title="Options">
        <Awaited answer={options} what="options" />
        {options.data && <Pairs label="Options" pairs={options.data.map(({ key, value }) => [key, value])} />}
      </Panel>
    </>
  );
}

/** Names and values of all levels. */
export function flat(values: Record<string, unknown>, prefix = ""): [string, string][] {
  return Object.entries(values).flatMap(([key, value]): [string, string][] =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? flat(value as Record<string, unknown>, `${prefix}${key}.`)
      : [[`${prefix}${key}`, Array.isArray(value) ? value.join("\n") : String(value)]],
  );
}
