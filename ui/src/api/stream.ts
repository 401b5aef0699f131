/** The stream of events: it connects again after an outage, where it was, and says how it is. */

import { createParser } from "eventsource-parser";
import type { Schemas } from "./client";

export type StreamState = "connecting" | "live" | "down";
export type Event = Schemas["EventView"];

/** The server sends a heartbeat every 15 seconds; without two of them the connection is taken for dead. */
const SILENCE_MAX_MS = 40_000;
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 10_000;

export interface StreamHandlers {
  event: (event: Event) => void;
  /** Events were missed: everything has to be read again. */
  reset: () => void;
  state: (state: StreamState) => void;
  /** The session is over. */
  refused: () => void;
}

/** Follows the events of all graphs until it is closed. */
export class EventStream {
  private position = "";
  private closed = false;
  private controller: AbortController | null = null;
  private retryMs = RETRY_MIN_MS;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private wake: (() => void) | null = null;

  constructor(
    private readonly url: string,
    private readonly handlers: StreamHandlers,
  ) {}

  start(): void {
    void this.run();
  }

  close(): void {
    this.closed = true;
    this.controller?.abort();
    this.wake?.();
  }

  private async run(): Promise<void> {
    this.handlers.state("connecting");
    while (!this.closed) {
      const refused = await this.connect();
      if (this.closed) {
        return;
      }
      if (refused) {
        this.handlers.refused();
        return;
      }
      this.handlers.state("down");
      await this.pause();
    }
  }

  /** Read one connection to its end; return whether the server refused it for lack of a session. */
  private async connect(): Promise<boolean> {
    this.controller = new AbortController();
    try {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (this.position !== "") {
        headers["last-event-id"] = this.position;
      }
      const response = await fetch(this.url, { headers, signal: this.controller.signal, cache: "no-store" });
      if (response.status === 401 || response.status === 403) {
        return true;
      }
      if (response.ok && response.body !== null) {
        await this.read(response.body);
      }
    } catch {
      // An outage: the next connection goes on where this one was.
    } finally {
      clearTimeout(this.timer);
    }
    return false;
  }

  private async read(body: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    const parser = createParser({
      onEvent: (message) => {
        if (message.event === "reset") {
          this.handlers.reset();
        } else {
          this.handlers.event(JSON.parse(message.data) as Event);
        }
      },
    });
    const reader = body.getReader();
    for (;;) {
      this.expect();
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      const text = decoder.decode(value, { stream: true });
      this.position = lastId(text) ?? this.position;
      parser.feed(text);
      this.retryMs = RETRY_MIN_MS;
      this.handlers.state("live");
    }
  }

  /** Give the connection up when nothing comes for too long. */
  private expect(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.controller?.abort(), SILENCE_MAX_MS);
  }

  private async pause(): Promise<void> {
    const ms = this.retryMs * (0.75 + Math.random() / 2);
    this.retryMs = Math.min(RETRY_MAX_MS, this.retryMs * 2);
    await new Promise<void>((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, ms);
    });
    this.wake = null;
  }
}

/**
 * Find the last whole id in a piece of the stream. Heartbeats have an id and no data, so the parser reports nothing;
 * a position that is a little too old only repeats events, which changes nothing.
 */
export function lastId(text: string): string | null {
  const found = [...text.matchAll(/^id: (\d+)\n/gm)];
  return found.at(-1)?.[1] ?? null;
}
