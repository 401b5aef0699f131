import { describe, expect, it } from "vitest";
import { linesOf, syntaxFaults } from "./places";

const TEXT = `name: nightly
tasks:
  build:
    task:
      payload: {command: make}
  test-3.11:
    requires:
      - build
      - nothing
    task: {payload: {script: "true"}}
`;

describe("linesOf", () => {
  it("finds the line of a field, of an item, and of a label with dots", () => {
    const line = linesOf(TEXT);
    expect(line("tasks.build.task.payload.command")).toBe(5);
    expect(line("tasks.test-3.11.requires[1]")).toBe(9);
    expect(line("tasks.test-3.11.requires.1")).toBe(9);
    expect(line("tasks.test-3.11.task")).toBe(10);
  });
  it("points at what is nearest to a field that is missing", () => {
    expect(linesOf(TEXT)("tasks.build.task.payload.nope")).toBe(5);
    expect(linesOf(TEXT)("")).toBe(1);
  });
});

describe("syntaxFaults", () => {
  it("finds where a text is not YAML", () => {
    expect(syntaxFaults("tasks: {\n  a: [1,\n")[0]?.line).toBeGreaterThan(1);
    expect(syntaxFaults(TEXT)).toEqual([]);
  });
});
