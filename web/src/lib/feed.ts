/**
 * What the server says at a path, asked again and again while somebody looks.
 *
 * A path is asked for once at a time, however many components show it, and not at all while the page is hidden or a
 * token is awaited. An answer that has not changed re-renders nothing.
 */

import { useEffect, useState } from "preact/hooks";
import { ApiError, getText, tokenWanted } from "./api";
import { Store } from "./store";

/** How often (ms) a path is asked for. */
export const EVERY_MS = 2000;
/** How long (ms) an answer is kept that nobody looks at. */
const KEPT_MS = 60_000;

/** Since when (ms) the server has not answered; null while it does. */
export const silentSince = new Store<number | null>(null);

export interface Answer<T> {
  data?: T;
  error?: ApiError;
  /** When (ms since the page was opened) the data came. */
  at: number;
}

export class Feed<T> {
  answer: Answer<T> = { at: 0 };
  private readonly listeners = new Set<() => void>();
  private timer = 0;
  private asking = false;
  private text = "";

  constructor(
    readonly path: string,
    private readonly everyMs: number,
    private readonly parse: (text: string) => T,
    /** Of what the page shows if it may: without a token that the server wants, it is not asked for again. */
    private readonly isQuiet = false,
  ) {}

  listen(listener: () => void): () => void {
    clearTimeout(this.timer);
    this.listeners.add(listener);
    const age = performance.now() - this.answer.at;
    if (!this.answer.data || (this.everyMs && age >= this.everyMs)) void this.ask();
    else this.later(this.everyMs - age);
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size) return;
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => feeds.delete(this.key), KEPT_MS);
    };
  }

  get key(): string {
    return keyOf(this.path, this.everyMs, this.isQuiet);
  }

  /** Ask now, unless nobody may see the answer. */
  async ask(): Promise<void> {
    if (this.asking || !this.listeners.size || document.hidden || tokenWanted.get() !== "no") return;
    this.asking = true;
    clearTimeout(this.timer);
    try {
      const text = await getText(this.path, this.isQuiet);
      silentSince.set(null);
      const at = performance.now();
      if (text !== this.text || this.answer.error) {
        this.text = text;
        this.answer = { data: this.parse(text), at };
        this.tell();
      } else {
        this.answer.at = at;
      }
    } catch (error) {
      const told = error instanceof ApiError ? error : new ApiError(0, [String(error)]);
      if (told.status === 0 && silentSince.get() === null) silentSince.set(Date.now());
      this.answer = { ...this.answer, error: told };
      this.tell();
    } finally {
      this.asking = false;
      if (!this.isQuiet || this.answer.error?.status !== 401) this.later(this.everyMs);
    }
  }

  private later(ms: number): void {
    if (!this.everyMs || !this.listeners.size) return;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.ask(), ms);
  }

  private tell(): void {
    for (const listener of [...this.listeners]) listener();
  }
}

const feeds = new Map<string, Feed<unknown>>();

function keyOf(path: string, everyMs: number, isQuiet: boolean): string {
  return `${everyMs} ${isQuiet} ${path}`;
}

function askAll(): void {
  for (const feed of feeds.values()) void feed.ask();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) askAll();
});
tokenWanted.subscribe(() => {
  if (tokenWanted.get() === "no") askAll();
});

/** The feed of a path; `everyMs` of 0 asks once. */
export function feedOf<T>(
  path: string,
  everyMs = EVERY_MS,
  parse: (text: string) => T = JSON.parse,
  isQuiet = false,
): Feed<T> {
  const key = keyOf(path, everyMs, isQuiet);
  const known = feeds.get(key);
  if (known) return known as Feed<T>;
  const feed = new Feed(path, everyMs, parse, isQuiet);
  feeds.set(key, feed as Feed<unknown>);
  return feed;
}

/** What is known of a path; null asks for nothing. */
export function useFeed<T>(path: string | null, everyMs = EVERY_MS): Answer<T> {
  return useParsed<T>(path, everyMs, JSON.parse as (text: string) => T);
}

/** The same of what may need a token that the reader has not given: then nothing is known, and nobody is asked. */
export function useQuietFeed<T>(path: string | null): Answer<T> {
  return useParsed<T>(path, EVERY_MS, JSON.parse as (text: string) => T, true);
}

/** The text at a path. */
export function useText(path: string | null, everyMs = EVERY_MS): Answer<string> {
  return useParsed(path, everyMs, asText);
}

const asText = (text: string): string => text;

function useParsed<T>(path: string | null, everyMs: number, parse: (text: string) => T, isQuiet = false): Answer<T> {
  const [, turn] = useState(0);
  const feed = path === null ? null : feedOf<T>(path, everyMs, parse, isQuiet);
  useEffect(() => feed?.listen(() => turn((n) => n + 1)), [feed]);
  return feed?.answer ?? { at: 0 };
}
