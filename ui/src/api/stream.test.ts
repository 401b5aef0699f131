import { afterEach, describe, expect, it, vi } from "vitest";
import { EventStream, lastId, type StreamHandlers } from "./stream";

afterEach(() => vi.unstubAllGlobals());

function answer(text: string): Response {
  return new Response(new ReadableStream({ start: (stream) => {
    stream.enqueue(new TextEncoder().encode(text));
    stream.close();
  } }));
}

async function follow(answers: (() => Response | Promise<Response>)[]) {
  const asked: (string | null)[] = [];
  const told: string[] = [];
  let stream: EventStream | undefined;
  await new Promise<void>((done) => {
    vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
      asked.push(new Headers(init.headers).get("last-event-id"));
      const next = answers.shift();
      if (next === undefined) {
        done();
        return new Promise(() => undefined);
      }
      return Promise.resolve().then(next);
    });
    const handlers: StreamHandlers = {
      event: (event) => told.push(event.id),
      reset: () => told.push("reset"),
      state: (state) => told.push(state),
      refused: () => {
        told.push("refused");
        done();
      },
    };
    stream = new EventStream("/events", handlers);
    stream.start();
  });
  stream?.close();
  return { asked, told };
}

describe("EventStream", () => {
  it("goes on behind the last event, and behind a heartbeat", async () => {
    const { asked, told } = await follow([
      () => answer('id: 4\n\nid: 5\ndata: {"id":"g-1"}\n\n'),
      () => answer(": heartbeat\nid: 9\n\n"),
    ]);
    expect(asked).toEqual([null, "5", "9"]);
    expect(told).toEqual(["connecting", "g-1", "live", "down", "live", "down"]);
  });
  it("says that events are lost", async () => {
    expect((await follow([() => answer('id: 7\nevent: reset\ndata: {"position":7}\n\n')])).told).toContain("reset");
  });
  it("tries again after an outage, and not after a refusal", async () => {
    const { told } = await follow([() => Promise.reject(new TypeError("network")), () => new Response("", { status: 503 }), () => new Response("", { status: 401 })]);
    expect(told.filter((one) => one === "down").length).toBe(2);
    expect(told.at(-1)).toBe("refused");
  });
});

describe("lastId", () => {
  it("finds the last whole id", () => {
    expect(lastId("id: 1\ndata: x\n\nid: 22\n\nid: 3")).toBe("22");
    expect(lastId("data: id: 5\n")).toBe(null);
  });
});
