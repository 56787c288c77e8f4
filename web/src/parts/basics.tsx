/** Small things that every view is made of. */

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { Answer } from "../lib/feed";
import { percent } from "../lib/format";

const TONES: Record<string, string> = {
  RUNNING: "good",
  COMPLETED: "good",
  SUCCEEDED: "good",
  OK: "good",
  FINISHED: "calm",
  FAILED: "bad",
  FAILING: "bad",
  HIGH: "bad",
  CANCELED: "warn",
  CANCELING: "warn",
  CANCELLING: "warn",
  RESTARTING: "warn",
  LOW: "warn",
};

export function Status({ value, tone }: { value: string; tone?: string | undefined }): JSX.Element {
  return (
    <span class={`status ${tone ?? TONES[value.toUpperCase()] ?? "calm"}`}>
      <span class="dot" aria-hidden="true" />
      {value.toLowerCase().replaceAll("_", " ")}
    </span>
  );
}

export function Panel(props: {
  title: string;
  aside?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <section class={`panel ${props.class ?? ""}`} aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export function Figure({ label, value, hint }: { label: string; value: ComponentChildren; hint?: string }): JSX.Element {
  return (
    <div class="figure" title={hint}>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

export function Figures({ children }: { children: ComponentChildren }): JSX.Element {
  return <dl class="figures">{children}</dl>;
}

/** What is shown while there is nothing to show: that it is on its way, or why it does not come. */
export function Awaited({ answer, what }: { answer: Answer<unknown>; what: string }): JSX.Element | null {
  if (answer.error && answer.error.status !== 401) {
    return (
      <p class="note bad" role="alert">
        {answer.error.status === 404 ? `The server knows no ${what}. ` : ""}
        {answer.error.sentences.join(" ")}
      </p>
    );
  }
  return answer.data === undefined ? <p class="note">Asking for the {what} …</p> : null;
}

export function Note({ children }: { children: ComponentChildren }): JSX.Element {
  return <p class="note">{children}</p>;
}

/** A bar of shares of one whole. */
export function Bar(props: {
  parts: [tone: string, share: number | undefined][];
  label: string;
  /** The same is said in words beside it. */
  quiet?: boolean | undefined;
}): JSX.Element {
  const { parts, label, quiet } = props;
  return (
    <span class="bar" title={label} {...(quiet ? { "aria-hidden": true } : { role: "img", "aria-label": label })}>
      {parts.map(([tone, share]) => (
        <span key={tone} class={`fill ${tone}`} style={{ width: `${Math.min(1, Math.max(0, share ?? 0)) * 100}%` }} />
      ))}
    </span>
  );
}

export function TimeShares(props: {
  busy: number | undefined;
  backPressured: number | undefined;
  idle: number | undefined;
  quiet?: boolean;
}): JSX.Element {
  const label = `busy ${percent(props.busy)}, back-pressured ${percent(props.backPressured)}, idle ${percent(props.idle)}`;
  return (
    <Bar
      label={label}
      quiet={props.quiet}
      parts={[
        ["busy", props.busy],
        ["held", props.backPressured],
        ["idle", props.idle],
      ]}
    />
  );
}

export interface Tab {
  key: string;
  title: string;
  href: string;
}

export function Tabs({ tabs, current, label }: { tabs: Tab[]; current: string; label: string }): JSX.Element {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <a key={tab.key} href={tab.href} aria-current={tab.key === current ? "page" : undefined}>
          {tab.title}
        </a>
      ))}
    </nav>
  );
}

export function Copy({ text, what }: { text: string; what: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  return (
    <button
      type="button"
      class="quiet"
      onClick={() =>
        void navigator.clipboard?.writeText(text).then(() => {
          setCopied(true);
          setTimeout(() => setCopied(false), 1500);
        })
      }
      aria-label={`Copy ${what}`}
    >
      {copied ? "Copied" : "Copy"}
    </button>
  );
}

/** A table of names and values, which can be searched. */
export function Pairs({ pairs, label }: { pairs: [string, ComponentChildren][]; label: string }): JSX.Element {
  const [wanted, setWanted] = useState("");
  const shown = pairs.filter(([key, value]) => `${key} ${String(value)}`.toLowerCase().includes(wanted.toLowerCase()));
  return (
    <>
      {pairs.length > 12 && (
        <input
          type="search"
          placeholder="Filter"
          aria-label={`Filter ${label}`}
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label={label}>
        <table class="pairs">
          <tbody>
            {shown.map(([key, value]) => (
              <tr key={key}>
                <th scope="row">{key}</th>
                <td>{value}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {!shown.length && <Note>Nothing here{wanted ? ` with “${wanted}”` : ""}.</Note>}
    </>
  );
}
