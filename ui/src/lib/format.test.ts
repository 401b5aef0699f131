import { describe, expect, it } from "vitest";
import { ago, bytes, dimensions, span, visible } from "./format";

describe("format", () => {
  it("writes spans as people read them", () => {
    const rows: [number, string][] = [[-5, "0 s"], [320, "320 ms"], [4_250, "4.2 s"], [59_999, "59 s"], [200_000, "3 m 20 s"], [3_600_000, "1 h"], [7_500_000, "2 h 5 m"], [100 * 3_600_000, "4 d 4 h"]];
    for (const [ms, text] of rows) {
      expect(span(ms), String(ms)).toBe(text);
    }
  });
  it("writes how long ago a moment was", () => {
    expect(ago(1_000, 1_500)).toBe("now");
    expect(ago(0, 125_000)).toBe("2 m ago");
    expect(ago(70_000, 0)).toBe("in 1 m");
  });
  it("writes sizes and dimensions", () => {
    expect(bytes(12)).toBe("12 B");
    expect(bytes(1_572_864)).toBe("1.5 MiB");
    expect(dimensions({ os: ["Linux", "Debian"], gpu: ["h100"] })).toBe("os=Linux|Debian, gpu=h100");
  });
  it("shows characters that nobody sees, and those that turn text around", () => {
    expect(visible("ab\u202ecod.exe\u0000\u200b")).toBe("ab\\u202ecod.exe\\u0000\\u200b");
    expect(visible("naïve 日本 ✓\n")).toBe("naïve 日本 ✓\n");
  });
});
