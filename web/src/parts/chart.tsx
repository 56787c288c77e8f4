/** Lines over time. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useStore } from "../lib/store";
import { colour, shown } from "../lib/theme";

export interface Line {
  name: string;
  values: (number | null)[];
  /** Which of the colours; lines of one thing have the same in all charts. */
  tone?: number;
}

export const COLOURS = 6;
const FONT = "11px system-ui, sans-serif";
/** Between a label of the axis and the lines. */
const GAP_PX = 12;
const paper = document.createElement("canvas").getContext("2d");

/** How wide (px) an axis is that has these labels. */
function widthOf(labels: string[] | null): number {
  if (!paper || !labels) return 40;
  paper.font = FONT;
  return Math.ceil(Math.max(28, ...labels.map((label) => paper.measureText(label).width)) + GAP_PX);
}

/** Steps between ticks that are round numbers of a unit. */
export const BYTES_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);
export const DURATION_STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200].map((seconds) => seconds * 1000),
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000].map((days) => days * 86_400_000),
];

const moment = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const asTime = (seconds: number): string => moment.format(seconds * 1000);

export function Chart(props: {
  title: string;
  /** Seconds since the epoch, or any rising number with `places`. */
  at: number[];
  lines: Line[];
  show: (value: number | null | undefined) => string;
  /** What the horizontal axis says instead of times. */
  places?: (at: number) => string;
  points?: boolean;
  max?: number;
  /** What may be between two ticks of the vertical axis; round decimal numbers otherwise. */
  steps?: number[] | undefined;
}): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const look = useStore(shown);
  const show = useRef(props.show);
  show.current = props.show;
  const names = props.lines.map((line) => `${line.name} ${line.tone}`).join("\n");
  const place = props.places ?? asTime;

  useEffect(() => {
    const holder = box.current;
    if (!holder) return undefined;
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: holder.clientWidth || 400,
        height: 160,
        cursor: { y: false, points: { size: 6 } },
        legend: { live: true },
        scales: {
          x: { time: !props.places },
          y: { range: (_, __, max) => [0, props.max ?? (max > 0 ? max * 1.1 : 1)] },
        },
        axes: [
          { ...axis, font: FONT, size: 32, space: props.places ? 40 : 80, values: (_, at) => at.map(place) },
          {
            ...axis,
            font: FONT,
            size: (_, labels) => widthOf(labels),
            values: (_, ticks) => ticks.map((value) => show.current(value)),
            ...(props.steps ? { incrs: props.steps } : {}),
          },
        ],
        series: [
          { label: "", value: (_, at) => (at === null ? "" : place(at)) },
          ...props.lines.map((line, n) => ({
            label: line.name,
            stroke: colour(`line-${((line.tone ?? n) % COLOURS) + 1}`),
            width: 1.75,
            points: { show: props.points ?? false, size: 5 },
            value: (_: uPlot, value: number | null) => show.current(value),
          })),
        ],
      },
      [props.at, ...props.lines.map((line) => line.values)] as uPlot.AlignedData,
      holder,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: holder.clientWidth, height: 160 }));
    watch.observe(holder);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [names, look]);

  useEffect(() => {
    // The arrays grow in place: uPlot is handed what they hold now.
    const made = plot.current;
    made?.setData([props.at, ...props.lines.map((line) => line.values)] as uPlot.AlignedData);
    // Unless somebody points at a moment, the legend tells the last one.
    if (made && made.cursor.idx == null && props.at.length) made.setLegend({ idx: props.at.length - 1 }, false);
  });

  const now = props.lines.map((line) => `${line.name}: ${props.show(line.values.at(-1))}`).join("; ");
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <div ref={box} role="img" aria-label={`${props.title}. ${now || "Nothing yet"}`} />
    </figure>
  );
}
