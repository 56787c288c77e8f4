/** Why tasks of a job failed, newest first, with the user's traceback. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { plain, time } from "../lib/format";
import { href } from "../lib/route";
import type { ExceptionEntry, Exceptions, Job } from "../lib/types";
import { Awaited, Copy, Note } from "../parts/basics";

const STEP = 20;

export function ExceptionsView({ job }: { job: Job }): JSX.Element {
  const [max, setMax] = useState(STEP);
  const answer = useFeed<Exceptions>(`/jobs/${job.jid}/exceptions?maxExceptions=${max}`);
  const history = answer.data?.exceptionHistory;
  return (
    <>
      <Awaited answer={answer} what="exceptions" />
      {history && !history.entries.length && <Note>Nothing has failed.</Note>}
      {history?.entries.map((entry, n) => <Failure key={`${entry.timestamp} ${entry.taskName}`} entry={entry} open={n === 0} />)}
      {history?.truncated && (
        <button type="button" onClick={() => setMax(max + STEP)}>
          Show older ones
        </button>
      )}
    </>
  );
}

function Failure({ entry, open }: { entry: ExceptionEntry; open: boolean }): JSX.Element {
  const others = entry.concurrentExceptions ?? [];
  return (
    <details class="panel failure" open={open}>
      <summary>
        <span class="when">{time(entry.timestamp)}</span>
        <strong>{entry.exceptionName}</strong>
        <span class="where">{entry.taskName ? plain(entry.taskName) : "the job"}</span>
      </summary>
      <Traceback entry={entry} />
      {others.length > 0 && (
        <details class="others">
          <summary>
            {others.length === 1 ? "One other failed" : `${others.length} others failed`} before the job began again
          </summary>
          {others.map((other, n) => (
            <div key={n} class="other">
              <p>
                <span class="when">{time(other.timestamp)}</span> <strong>{other.exceptionName}</strong> {other.taskName ? plain(other.taskName) : ""}
              </p>
              <Traceback entry={other} />
            </div>
          ))}
        </details>
      )}
    </details>
  );
}

function Traceback({ entry }: { entry: ExceptionEntry }): JSX.Element {
  const labels = Object.entries(entry.failureLabels ?? {});
  return (
    <>
      <p class="labels">
        {labels.map(([key, value]) => (
          <span key={key} class="label">
            {key}: {value}
          </span>
        ))}
        {entry.taskManagerId && (
          <span>
            on <a href={href("workers", entry.taskManagerId)}>{entry.endpoint || entry.taskManagerId}</a>
          </span>
        )}
        <span class="grow" />
        <Copy text={entry.stacktrace} what="the traceback" />
      </p>
      <pre class="traceback" tabIndex={0} role="region" aria-label={`Traceback of ${entry.exceptionName}`}>
        {entry.stacktrace
          .trimEnd()
          .split("\n")
          .map((line, n) => (
            <span key={n} class={toneOf(line)}>
              {line}
              {"\n"}
            </span>
          ))}
      </pre>
    </>
  );
}

/** Frames of Penstock and of installed packages are dimmed, so that the user's own stand out. */
function toneOf(line: string): string {
  if (/^\s*File ".*(\/penstock\/|site-packages|\/lib\/python)/.test(line)) return "foreign";
  if (/^\s*File "/.test(line)) return "own";
  return /^\s/.test(line) ? "" : "says";
}
