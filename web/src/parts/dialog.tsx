/** A question that must be answered before anything else: the browser's own dialog, with its keyboard. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Dialog(props: {
  title: string;
  confirm: string;
  danger?: boolean;
  disabled?: boolean;
  onConfirm: () => void;
  onClose: () => void;
  children: ComponentChildren;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onClose={props.onClose}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          props.onConfirm();
        }}
      >
        <h2 id="dialog-title">{props.title}</h2>
        {props.children}
        <div class="buttons">
          <button type="button" onClick={props.onClose}>
            Do nothing
          </button>
          <button type="submit" class={props.danger ? "danger" : "primary"} disabled={props.disabled}>
            {props.confirm}
          </button>
        </div>
      </form>
    </dialog>
  );
}
