/** A table that renders only the rows in sight, so that thousands of them scroll and update at once. */

import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

export interface Column<R> {
  key: string;
  title: string;
  show: (row: R) => ComponentChildren;
  /** By what it is sorted; a column without cannot be. */
  by?: (row: R) => number | string | undefined;
  /** In rem. */
  width?: number;
  /** Whether it takes what room the others leave; its width is its least then. */
  grows?: boolean;
  text?: boolean;
  /** The whole of what may be cut, for those who point at it; a text that is shown as it is needs none. */
  hint?: (row: R) => string | undefined;
}

const ROW_PX = 32;
/** Rows rendered beyond those in sight, on either side; also how far one scrolls before anything is rendered. */
const MARGIN = 12;
/** Up to so many rows, a narrow screen shows each of them as a block with the names of its columns. */
const BLOCKS_MAX = 40;

export function Table<R>(props: {
  label: string;
  rows: R[];
  columns: Column<R>[];
  id: (row: R) => string | number;
  empty?: string;
  sortedBy?: string;
  descending?: boolean;
  current?: string | number | undefined;
  /** The height (px) that it takes at most. */
  height?: number;
}): JSX.Element {
  const { rows, columns } = props;
  const [sort, setSort] = useState({ key: props.sortedBy ?? "", down: props.descending ?? false });
  const [first, setFirst] = useState(0);
  const [height, setHeight] = useState(props.height ?? 480);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => setHeight(box.current?.clientHeight || (props.height ?? 480)), [rows.length]);

  const by = columns.find((column) => column.key === sort.key)?.by;
  const sorted = useMemo(() => (by ? [...rows].sort((a, b) => compare(by(a), by(b)) * (sort.down ? -1 : 1)) : rows), [
    rows,
    sort,
  ]);
  const visible = Math.max(BLOCKS_MAX, Math.ceil(height / ROW_PX) + 2 * MARGIN);
  const from = Math.max(0, Math.min(first, sorted.length - visible));
  const shown = sorted.slice(from, from + visible);
  const after = sorted.length - from - shown.length;

  const onScroll = (event: Event & { currentTarget: HTMLDivElement }): void => {
    const at = Math.floor(event.currentTarget.scrollTop / ROW_PX);
    const wanted = Math.max(0, Math.floor(at / MARGIN) * MARGIN - MARGIN);
    if (wanted !== first) setFirst(wanted);
  };

  if (!rows.length) return <p class="note">{props.empty ?? "None."}</p>;
  const width = columns.reduce((sum, column) => sum + (column.width ?? 7), 0);
  return (
    <div
      class={`scroll rows ${rows.length <= BLOCKS_MAX ? "blocks" : ""}`}
      ref={box}
      onScroll={onScroll}
      tabIndex={0}
      role="region"
      aria-label={props.label}
      style={{ maxHeight: `${props.height ?? 480}px` }}
    >
      <table class="data" aria-rowcount={sorted.length + 1} style={{ minWidth: `${width}rem` }}>
        <colgroup>
          {columns.map((column) => (
            <col key={column.key} style={{ width: column.grows ? "auto" : `${column.width ?? 7}rem` }} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <th
                key={column.key}
                scope="col"
                class={column.text ? "text" : ""}
                aria-sort={sort.key === column.key ? (sort.down ? "descending" : "ascending") : undefined}
              >
                {column.by ? (
                  <button
                    type="button"
                    onClick={() => setSort({ key: column.key, down: sort.key === column.key && !sort.down })}
                  >
                    {column.title}
                    <span aria-hidden="true">{sort.key === column.key ? (sort.down ? " ↓" : " ↑") : ""}</span>
                  </button>
                ) : (
                  column.title
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {from > 0 && <Gap rows={from} columns={columns.length} />}
          {shown.map((row, n) => {
            const id = props.id(row);
            return (
              <tr key={id} aria-rowindex={from + n + 2} class={props.current === id ? "current" : ""}>
                {columns.map((column) => {
                  const value = column.show(row);
                  const hint = column.hint?.(row) ?? (column.text && typeof value === "string" ? value : undefined);
                  return (
                    <td key={column.key} class={column.text ? "text" : ""} data-label={column.title} title={hint}>
                      {value}
                    </td>
                  );
                })}
              </tr>
            );
          })}
          {after > 0 && <Gap rows={after} columns={columns.length} />}
        </tbody>
      </table>
    </div>
  );
}

function Gap({ rows, columns }: { rows: number; columns: number }): JSX.Element {
  return (
    <tr aria-hidden="true" class="gap">
      <td colSpan={columns} style={{ height: `${rows * ROW_PX}px` }} />
    </tr>
  );
}

function compare(a: number | string | undefined, b: number | string | undefined): number {
  if (a === b) return 0;
  if (a === undefined) return 1;
  if (b === undefined) return -1;
  return a < b ? -1 : 1;
}
