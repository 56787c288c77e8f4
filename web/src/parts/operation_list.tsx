/** What was asked of the server, until it is dismissed; a screen reader hears of each change. */

import type { JSX } from "preact";
import { dismiss, operations } from "../lib/operations";
import { useStore } from "../lib/store";

export function OperationList(): JSX.Element {
  const all = useStore(operations);
  return (
    <section class="operations" aria-label="What you asked for" aria-live="polite">
      {all.map((one) => (
        <div key={one.id} class={`operation ${one.state}`}>
          <span class="spinner" aria-hidden="true" />
          <div>
            <strong>
              {one.title}
              {one.state === "running" ? " …" : one.state === "failed" ? " failed" : ""}
            </strong>
            <p>{one.detail}</p>
          </div>
          <button type="button" class="quiet" aria-label={`Dismiss ${one.title}`} onClick={() => dismiss(one.id)}>
            ×
          </button>
        </div>
      ))}
    </section>
  );
}
