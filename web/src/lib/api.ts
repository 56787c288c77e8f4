/** Requests to the server that the page came from. */

import { Store } from "./store";

const KEY = "penstock.token";

/** Whether the server wants a token that the page does not have: "none" yet, or one that it "refused". */
export const tokenWanted = new Store<"no" | "none" | "refused">("no");

let token = sessionStorage.getItem(KEY) ?? "";

export function setToken(given: string): void {
  token = given.trim();
  sessionStorage.setItem(KEY, token);
  tokenWanted.set("no");
}

/** An answer that is an error: its status, 0 when there was no answer, and the sentences that came with it. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly sentences: string[],
  ) {
    super(sentences.join("\n"));
  }
}

const base = new URL(".", document.baseURI);

/** `quietly`: not asking the reader for a token where the server wants one. */
async function request(path: string, init: RequestInit = {}, quietly = false): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  if (init.body) headers.set("Content-Type", "application/json");
  let response: Response;
  try {
    response = await fetch(new URL(path.replace(/^\//, ""), base), { ...init, headers, cache: "no-store" });
  } catch {
    throw new ApiError(0, ["The server does not answer."]);
  }
  if (response.ok) return response;
  if (response.status === 401 && !quietly) tokenWanted.set(token ? "refused" : "none");
  throw new ApiError(response.status, await sentencesOf(response));
}

async function sentencesOf(response: Response): Promise<string[]> {
  const text = await response.text();
  try {
    const errors: unknown = (JSON.parse(text) as { errors?: unknown }).errors;
    if (Array.isArray(errors) && errors.length) return errors.map(String);
  } catch {
    // Not one of the API's errors: a proxy in between may have answered.
  }
  return [`The server answers ${response.status} ${response.statusText}.`];
}

export async function getText(path: string, quietly = false): Promise<string> {
  return (await request(path, {}, quietly)).text();
}

/** A part of a text from its end, for logs that are long. */
export async function getBlob(path: string): Promise<Blob> {
  return (await request(path)).blob();
}

export async function getJson<T>(path: string): Promise<T> {
  return JSON.parse(await getText(path)) as T;
}

export async function send<T>(method: "POST" | "PUT" | "PATCH", path: string, body?: unknown): Promise<T> {
  const response = await request(path, { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  const text = await response.text();
  return (text ? JSON.parse(text) : {}) as T;
}
