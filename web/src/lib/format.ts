/** Figures as people read them. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const NONE = "–";

export function count(value: number | undefined | null): string {
  return value === undefined || value === null || !Number.isFinite(value) ? NONE : whole.format(value);
}

function scaled(value: number, step: number, units: string[]): string {
  let at = 0;
  let left = value;
  while (Math.abs(left) >= step && at < units.length - 1) {
    left /= step;
    at += 1;
  }
  const digits = at === 0 ? (Math.abs(left) < 10 && left % 1 ? 1 : 0) : Math.abs(left) < 10 ? 2 : Math.abs(left) < 100 ? 1 : 0;
  return `${left.toFixed(digits)}${units[at] ?? ""}`;
}

export function short(value: number | undefined | null): string {
  return value === undefined || value === null || !Number.isFinite(value)
    ? NONE
    : scaled(value, 1000, ["", " k", " M", " G", " T"]);
}

const fraction = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

/** Any number in one form: whole from 1,000 on, with four digits below that, and scaled where it would be long. */
export function figure(value: number | undefined | null): string {
  if (value === undefined || value === null || !Number.isFinite(value)) return NONE;
  if (Math.abs(value) >= 1e9) return short(value);
  if (Math.abs(value) > 0 && Math.abs(value) < 1e-4) return value.toExponential(1);
  return Number.isInteger(value) || Math.abs(value) >= 1000 ? whole.format(value) : fraction.format(value);
}

export function rate(value: number | undefined | null): string {
  return value === undefined || value === null ? NONE : `${short(value)}/s`;
}

export function bytes(value: number | undefined | null): string {
  if (value === undefined || value === null || !Number.isFinite(value) || value < 0) return NONE;
  return scaled(value < 1024 ? Math.round(value) : value, 1024, [" B", " KB", " MB", " GB", " TB"]);
}

export function duration(ms: number | undefined | null): string {
  if (ms === undefined || ms === null || !Number.isFinite(ms) || ms < 0) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return hours < 240 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${count(hours / 24)} d`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-CA");

/** The time of day, with the date where that is not today. */
export function time(ms: number | undefined | null): string {
  if (ms === undefined || ms === null || ms <= 0) return NONE;
  const date = new Date(ms);
  const at = clock.format(date);
  return day.format(date) === day.format(new Date()) ? at : `${day.format(date)} ${at}`;
}

export function percent(fraction: number | undefined | null): string {
  return fraction === undefined || fraction === null || !Number.isFinite(fraction)
    ? NONE
    : `${Math.round(fraction * 100)} %`;
}

/** Watermarks at the ends of time: none has come yet, or no more will come. */
export function watermark(ms: number | undefined | null): string {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return NONE;
  if (ms < -9e18) return "none yet";
  if (ms > 9e18) return "end of time";
  return new Date(ms).toISOString().replace("T", " ").replace("Z", "");
}

export function isTime(ms: number | undefined | null): ms is number {
  return ms !== undefined && ms !== null && Math.abs(ms) < 8.64e15;
}

export function number(value: number | "NaN" | string | undefined | null): number | undefined {
  if (value === undefined || value === null || value === "") return undefined;
  const given = Number(value);
  return Number.isNaN(given) ? undefined : given;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

const PATH = /^[^.,]+\.[^.,]+\.([^.,]+)$/;
const INSERTS = "insert-into_";

/** A job's name without the catalogs and databases that a statement of SQL without a name of its own puts there. */
export function jobName(name: string): string {
  if (!name.startsWith(INSERTS)) return name;
  const tables = name.slice(INSERTS.length).split(",");
  return INSERTS + tables.map((path) => PATH.exec(path)?.[1] ?? path).join(",");
}

/** The beginning of a name that has no room; whoever shows it has the whole name in a title. */
export function brief(name: string, charsMax: number): string {
  return name.length > charsMax ? `${name.slice(0, charsMax - 1).trimEnd()}…` : name;
}

/** What the operators of a vertex do, one a line; none where that says no more than their names. */
export function steps(description: string | undefined, name: string): string[] {
  const lines = plain(description ?? "")
    .trim()
    .split("\n")
    .map((line) => line.replace(/^[\s+:|-]*- /, "").trim())
    .filter((line) => line !== "");
  return lines.join(" -> ") === plain(name) ? [] : lines;
}

/** Names and descriptions of operators may come with HTML's breaks and escapes. */
export function plain(text: string): string {
  return text
    .replace(/<br\s*\/?>/g, "\n")
    .replace(/&lt;/g, "<")
    .replace(/&gt;/g, ">")
    .replace(/&quot;/g, '"')
    .replace(/&amp;/g, "&");
}
