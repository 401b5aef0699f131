import { describe, expect, it } from "vitest";
import { LINE_MAX, pieces } from "./ansi";

const look = (line: string) => pieces(line).map((piece) => [piece.text, piece.className]);

describe("pieces", () => {
  it("turns colours into classes", () => {
    expect(look("\u001b[1;31mfailed\u001b[0m: 3")).toEqual([["failed", "ansi-bold ansi-red"], [": 3", ""]]);
    expect(look("\u001b[42mx")).toEqual([["x", "ansi-green-bg"]]);
  });
  it("takes the nearest of eight for colours that have no class", () => {
    expect(look("\u001b[38;5;196mx")).toEqual([["x", "ansi-red"]]);
    expect(look("\u001b[38;2;10;10;250mx")).toEqual([["x", "ansi-blue"]]);
  });
  it("leaves out what moves the cursor or sets a title", () => {
    expect(look("\u001b]0;evil\u0007a\u001b[2Kb\u001b[3Ac")).toEqual([["abc", ""]]);
  });
  it("shows what a terminal shows after a carriage return", () => {
    expect(look("10%\r50%\r100%")).toEqual([["100%", ""]]);
    expect(look("windows\r")).toEqual([["windows", ""]]);
  });
  it("keeps markup as text, in every class, too", () => {
    expect(look('<img src=x onerror="alert(1)">')).toEqual([['<img src=x onerror="alert(1)">', ""]]);
    expect(look("\u001b[31m<b>\u001b[0m")).toEqual([["<b>", "ansi-red"]]);
  });
  it("cuts lines that no browser could draw", () => {
    expect(look("x".repeat(LINE_MAX * 3))[0]?.[0]?.length).toBeLessThan(LINE_MAX + 100);
  });
});
