/** What a process has written, and where its threads are: the same of a worker and of the job manager. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { getBlob } from "../lib/api";
import { useFeed, useText } from "../lib/feed";
import { bytes, time } from "../lib/format";
import { href } from "../lib/route";
import type { LogFile, ThreadDump } from "../lib/types";
import { Awaited, Copy, Note, Panel } from "../parts/basics";
import { Table } from "../parts/table";

/** Of a long log the page shows its end. */
const SHOWN_CHARS = 400_000;

export function Logs({ path, place, chosen }: { path: string; place: string[]; chosen: string | undefined }): JSX.Element {
  const answer = useFeed<{ logs: LogFile[] }>(`${path}/logs`, 10_000);
  return (
    <>
      <Panel title="Log files">
        <Awaited answer={answer} what="log files" />
        {answer.data && (
          <Table
            label="Log files"
            rows={answer.data.logs}
            id={(row) => row.name}
            current={chosen}
            sortedBy="time"
            descending
            height={220}
            empty="There is no log file."
            columns={[
              { key: "name", title: "Name", text: true, width: 18, by: (row) => row.name, show: (row) => <a href={href(...place, "logs", row.name)}>{row.name}</a> },
              { key: "size", title: "Size", width: 6, by: (row) => row.size, show: (row) => bytes(row.size) },
              { key: "time", title: "Last written", width: 10, by: (row) => row.mtime, show: (row) => time(row.mtime) },
            ]}
          />
        )}
      </Panel>
      {chosen && <Text path={`${path}/logs/${encodeURIComponent(chosen)}`} title={chosen} />}
    </>
  );
}

/** A text of the server that grows, shown from its end. */
export function Text({ path, title }: { path: string; title: string }): JSX.Element {
  const [wanted, setWanted] = useState("");
  const [follow, setFollow] = useState(true);
  const answer = useText(path, 5000);
  const box = useRef<HTMLPreElement>(null);
  const whole = answer.data ?? "";
  const text = whole.slice(-SHOWN_CHARS);
  const shown = wanted
    ? text
        .split("\n")
        .filter((line) => line.toLowerCase().includes(wanted.toLowerCase()))
        .join("\n")
    : text;
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, follow]);
  return (
    <Panel title={title}>
      <div class="choices">
        <input
          type="search"
          placeholder="Lines with …"
          aria-label="Show lines with"
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
        <label class="check">
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
          Follow
        </label>
        <button type="button" onClick={() => void download(path, title)}>
          Download
        </button>
      </div>
      <Awaited answer={answer} what="text" />
      {whole.length > SHOWN_CHARS && <Note>The end of {bytes(whole.length)}; download it for the rest.</Note>}
      {answer.data === "" && <Note>Nothing has been written.</Note>}
      {answer.data && (
        <pre class="log" ref={box} tabIndex={0} role="region" aria-label={title}>
          {shown}
        </pre>
      )}
    </Panel>
  );
}

/** By way of the page, which has the token that a plain link would lack. */
async function download(path: string, name: string): Promise<void> {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await getBlob(path));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

export function Threads({ path }: { path: string }): JSX.Element {
  const [turn, setTurn] = useState(0);
  const answer = useFeed<ThreadDump>(`${path}/thread-dump?at=${turn}`, 0);
  const threads = answer.data?.threadInfos ?? [];
  return (
    <Panel
      title="Threads"
      aside={
        <button type="button" onClick={() => setTurn(turn + 1)}>
          Look again
        </button>
      }
    >
      <Awaited answer={answer} what="threads" />
      {answer.data && !threads.length && <Note>The process has told of no thread.</Note>}
      {threads.map((thread, n) => (
        <details key={n} class="thread" open={n === 0}>
          <summary>{thread.threadName}</summary>
          <Copy text={thread.stringifiedThreadInfo} what={`the stack of ${thread.threadName}`} />
          <pre class="log" tabIndex={0} role="region" aria-label={`Stack of ${thread.threadName}`}>
            {thread.stringifiedThreadInfo}
          </pre>
        </details>
      ))}
    </Panel>
  );
}
