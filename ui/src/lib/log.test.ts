import { describe, expect, it } from "vitest";
import { LogBuffer } from "./log";

const encode = (text: string) => new TextEncoder().encode(text);

describe("LogBuffer", () => {
  it("finds lines however the bytes come", () => {
    const text = "one\ntwo\n\nfour ✓\nlast";
    for (const size of [1, 2, 3, 7, 100]) {
      const log = new LogBuffer();
      const bytes = encode(text);
      for (let at = 0; at < bytes.length; at += size) {
        log.add(bytes.subarray(at, at + size));
      }
      expect(Array.from({ length: log.lines }, (_, line) => log.line(line))).toEqual(text.split("\n"));
    }
  });
  it("counts no line after the last newline", () => {
    const log = new LogBuffer();
    expect(log.lines).toBe(0);
    log.add(encode("a\n"));
    expect(log.lines).toBe(1);
    log.add(encode("b"));
    expect([log.lines, log.line(1)]).toEqual([2, "b"]);
  });
  it("searches without regard to case, step by step", () => {
    const log = new LogBuffer();
    log.add(encode(Array.from({ length: 1_000 }, (_, line) => `line ${line}${line % 100 === 0 ? " ERROR" : ""}\n`).join("")));
    const first = log.search("error", 0, 100, 450);
    expect(first).toEqual({ found: [0, 100, 200, 300, 400], next: 450 });
    expect(log.search("error", first.next, 2, 10_000).found).toEqual([500, 600]);
  });
});
