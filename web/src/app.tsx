/** The frame of the page: what is at the top of every view, and which view is shown. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { setToken, tokenWanted } from "./lib/api";
import { silentSince, useFeed } from "./lib/feed";
import { time } from "./lib/format";
import { href, route } from "./lib/route";
import { useStore } from "./lib/store";
import { choice, type Choice } from "./lib/theme";
import type { Overview, PageConfig } from "./lib/types";
import { OperationList } from "./parts/operation_list";
import { ClusterView } from "./views/cluster";
import { JobView } from "./views/job";
import { JobList } from "./views/job_list";
import { WorkerView, Workers } from "./views/workers";

const PLACES: [key: string, title: string][] = [
  ["jobs", "Jobs"],
  ["workers", "Workers"],
  ["cluster", "Job manager"],
];

export function App(): JSX.Element {
  const parts = useStore(route);
  const place = parts[0] ?? "jobs";
  useEffect(() => {
    if (!parts.length) document.title = "Penstock";
  }, [parts]);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <Top place={place} />
      <Silence />
      <main id="main" tabIndex={-1}>
        <View parts={parts} />
      </main>
      <OperationList />
      <TokenPrompt />
    </>
  );
}

function skip(event: MouseEvent): void {
  event.preventDefault(); // the address is the view's
  document.getElementById("main")?.focus();
}

function View({ parts }: { parts: string[] }): JSX.Element {
  const [place = "jobs", id, ...rest] = parts;
  if (place === "jobs") return id ? <JobView key={id} jobId={id} parts={rest} /> : <JobList />;
  if (place === "workers") return id ? <WorkerView key={id} id={id} parts={rest} /> : <Workers />;
  if (place === "cluster") return <ClusterView parts={id ? [id, ...rest] : rest} />;
  return (
    <p class="note">
      There is no such view. <a href={href("jobs")}>All jobs</a>
    </p>
  );
}

function Top({ place }: { place: string }): JSX.Element {
  const overview = useFeed<Overview>("/overview").data;
  const isHistory = useFeed<PageConfig>("/config", 0).data?.features["web-history"] === true;
  return (
    <header class="top">
      <a class="name" href={href("jobs")}>
        Penstock
      </a>
      <nav aria-label="Places">
        {PLACES.filter(([key]) => !isHistory || key !== "workers").map(([key, title]) => (
          <a key={key} href={href(key)} aria-current={key === place ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <span class="grow" />
      {isHistory && <span class="slots">History: jobs that have ended</span>}
      {overview && !isHistory && (
        <span class="slots">
          {overview["jobs-running"]} running · {overview.taskmanagers} workers ·{" "}
          {overview["slots-total"] - overview["slots-available"]} of {overview["slots-total"]} slots
        </span>
      )}
      <ThemeSwitch />
    </header>
  );
}

const NEXT: Record<Choice, Choice> = { auto: "light", light: "dark", dark: "auto" };

function ThemeSwitch(): JSX.Element {
  const now = useStore(choice);
  return (
    <button
      type="button"
      class="quiet"
      onClick={() => choice.set(NEXT[now])}
      aria-label={`Colours: ${now}. Change to ${NEXT[now]}`}
      title={now === "auto" ? "As the system says" : undefined}
    >
      <span aria-hidden="true">{now === "auto" ? "◐" : now === "light" ? "☀" : "☾"} </span>
      {now}
    </button>
  );
}

/** Says that the figures are old, as long as they are. */
function Silence(): JSX.Element | null {
  const since = useStore(silentSince);
  if (since === null) return null;
  return (
    <p class="banner" role="status">
      The server has not answered since {time(since)}. What you see may be older; the page keeps asking.
    </p>
  );
}

function TokenPrompt(): JSX.Element | null {
  const wanted = useStore(tokenWanted);
  const [given, setGiven] = useState("");
  if (wanted === "no") return null;
  return (
    <div class="cover" role="dialog" aria-modal="true" aria-labelledby="token-title">
      <form
        class="panel token"
        onSubmit={(event) => {
          event.preventDefault();
          setToken(given);
          setGiven("");
        }}
      >
        <h2 id="token-title">This server asks for a token</h2>
        <p>
          {wanted === "refused"
            ? "It did not accept the token that this page has."
            : "Whoever started the server can give it to you. It stays in this tab, and is forgotten with it."}
        </p>
        <label>
          Token
          <input
            type="password"
            autoComplete="off"
            value={given}
            onInput={(event) => setGiven(event.currentTarget.value)}
            ref={(input) => input?.focus()}
            required
          />
        </label>
        <div class="buttons">
          <button type="submit" class="primary">
            Go on
          </button>
        </div>
      </form>
    </div>
  );
}
