/** The client of the API: typed by its description, with the header of the session, and problems as errors. */

import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** Why a request was refused: every fault is listed. */
export class ApiProblem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly faults: { message: string; path: string }[] = [],
  ) {
    super(detail);
  }
}

/** What requests that change something send; it is only ever in memory. */
let sessionHeader = "";
let onSessionLost: () => void = () => undefined;

export function setSessionHeader(header: string): void {
  sessionHeader = header;
}

/** Call `act` when a request learns that the session is over. */
export function whenSessionIsLost(act: () => void): void {
  onSessionLost = act;
}

export function sessionHeaders(): Record<string, string> {
  return sessionHeader === "" ? {} : { "x-taskyard-session": sessionHeader };
}

export const client = createClient<paths>({ baseUrl: "" });

client.use({
  onRequest({ request }) {
    for (const [name, value] of Object.entries(sessionHeaders())) {
      request.headers.set(name, value);
    }
    return request;
  },
});

interface Answered<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return what a request answered, or throw its problem. */
export async function answer<T>(asked: Promise<Answered<T>>): Promise<T> {
  let found: Answered<T>;
  try {
    found = await asked;
  } catch {
    throw new ApiProblem(0, "unreachable", "The server cannot be reached.");
  }
  if (found.response.ok) {
    return found.data as T;
  }
  const problem = problemOf(found.response.status, found.error);
  if (problem.status === 401 && problem.code !== "bad_token") {
    onSessionLost();
  }
  throw problem;
}

export function problemOf(status: number, body: unknown): ApiProblem {
  const said = (typeof body === "object" && body !== null ? body : {}) as Partial<Schemas["Problem"]>;
  return new ApiProblem(status, said.code ?? "failed", said.detail ?? `The server answered ${status}.`, said.faults ?? []);
}

/** Ask for something that is not JSON. */
export async function fetchRaw(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(path, { ...init, headers: { ...sessionHeaders(), ...init.headers } });
  if (!response.ok) {
    const body: unknown = await response.json().catch(() => null);
    if (response.status === 401) {
      onSessionLost();
    }
    throw problemOf(response.status, body);
  }
  return response;
}
