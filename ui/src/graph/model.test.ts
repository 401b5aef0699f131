import { describe, expect, it } from "vitest";
import { barsOf } from "./bars";
import { drawGroups, drawTasks, EXPANDED_MAX, type Layout, type States } from "./model";

const groups: Layout = { graph_id: "g", size: 5, view: "groups", ids: [], names: ["first", "part-*", "last"], x: [0, 280, 560], y: [0, 0, 0], edges: [[0, 1], [1, 2]], ends: [], group_of: [0, 1, 1, 1, 2] };
const tasks: Layout = { ...groups, view: "tasks", ids: ["a", "b", "c", "d", "e"], names: ["first", "part-1", "part-2", "part-3", "last"], x: [0, 280, 280, 280, 560], y: [0, -72, 0, 72, 0], edges: [[0, 1], [0, 2], [0, 3], [1, 4], [2, 4], [3, 4]], ends: ["success", "success", "success", "success", "success", "always"], group_of: [] };
const states: States = { graph_id: "g", states: ["successful", "running"], tasks: [0, 0, 0, 1, 1], began_ms: [10, 20, 20, 35, 0], ended_ms: [20, 30, 40, 0, 0], bots: ["attic"], bot_of: [0, 0, 0, 0, -1] };

describe("drawings", () => {
  it("draw every task with its state", () => {
    const { boxes, lines } = drawTasks(tasks, states);
    expect(boxes.map((box) => box.kind === "task" && box.state)).toEqual(["successful", "successful", "successful", "running", "running"]);
    expect(lines[5]).toMatchObject({ from: "d", to: "e", on: "always" });
  });
  it("count the states of groups", () => {
    const { boxes, lines } = drawGroups(groups, undefined, states, new Set());
    expect(boxes.map((box) => box.kind === "group" && box.counts)).toEqual([{ successful: 1 }, { successful: 2, running: 1 }, { running: 1 }]);
    expect(lines.map((line) => line.key)).toEqual(["group-0 group-1", "group-1 group-2"]);
  });
  it("expand a group among the others, which make room", () => {
    const { boxes, lines } = drawGroups(groups, tasks, states, new Set([1]));
    expect(boxes.map((box) => box.key)).toEqual(["group-0", "b", "c", "d", "group-2"]);
    expect(lines.map((line) => line.key).sort()).toEqual(["b group-2", "c group-2", "d group-2", "group-0 b", "group-0 c", "group-0 d"]);
    expect(new Set(boxes.map((box) => `${box.x} ${box.y}`)).size).toBe(5);
  });
  it("leave a group closed that nobody could read", () => {
    const many = Array.from({ length: EXPANDED_MAX + 1 }, () => 1);
    const { boxes } = drawGroups({ ...groups, group_of: [0, ...many, 2] }, tasks, states, new Set([1]));
    expect(boxes.map((box) => box.kind)).toEqual(["group", "group", "group"]);
  });
});

describe("timelines", () => {
  it("have a row for each task that has begun", () => {
    expect(barsOf(tasks, states, false, new Set(["b"])).bars.map((bar) => [bar.label, bar.row, bar.to, bar.critical])).toEqual([
      ["first", 0, 20, false],
      ["part-1", 1, 30, true],
      ["part-2", 2, 40, false],
      ["part-3", 3, 0, false],
    ]);
  });
  it("have as many rows for a bot as it ran tasks at once", () => {
    const { names, bars } = barsOf(tasks, states, true, new Set());
    expect(names).toEqual(["attic", "attic"]);
    expect(bars.map((bar) => bar.row)).toEqual([0, 0, 1, 0]);
  });
});
