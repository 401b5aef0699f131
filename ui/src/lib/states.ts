/** The words of states, how each looks, and their order. States differ by their mark, not only by their colour. */

import type { Schemas } from "../api/client";

export type Task = Schemas["TaskView"];
export type Graph = Schemas["GraphView"];

export type Tone = "good" | "bad" | "warn" | "busy" | "wait" | "quiet";

interface Look {
  tone: Tone;
  /** The name of the mark: see `StateIcon`. */
  mark: string;
}

const LOOKS: Record<string, Look> = {
  running: { tone: "busy", mark: "spin" },
  stopping: { tone: "warn", mark: "stop" },
  waiting: { tone: "wait", mark: "clock" },
  pending: { tone: "wait", mark: "hold" },
  unscheduled: { tone: "quiet", mark: "dots" },
  blocked: { tone: "warn", mark: "bar" },
  successful: { tone: "good", mark: "check" },
  finished: { tone: "good", mark: "check" },
  failed: { tone: "bad", mark: "cross" },
  error: { tone: "bad", mark: "bang" },
  canceled: { tone: "quiet", mark: "slash" },
  canceling: { tone: "warn", mark: "stop" },
  skipped: { tone: "quiet", mark: "skip" },
};

/** The states of tasks, those that move first. */
export const TASK_STATES = [
  "running",
  "stopping",
  "waiting",
  "pending",
  "unscheduled",
  "blocked",
  "failed",
  "error",
  "canceled",
  "skipped",
  "successful",
] as const;

export const GRAPH_STATES = ["running", "blocked", "finished", "canceling", "canceled"] as const;

const ENDED = new Set(["successful", "failed", "error", "canceled", "skipped"]);
const HELD = new Set(["unscheduled", "blocked", "pending", "waiting"]);

export function lookOf(state: string): Look {
  return LOOKS[state] ?? { tone: "quiet", mark: "dots" };
}

export function hasEnded(state: string): boolean {
  return ENDED.has(state);
}

export function isHeld(state: string): boolean {
  return HELD.has(state);
}

/** Name a reason in words. */
export function reasonText(reason: string): string {
  return reason.replaceAll("_", " ");
}
