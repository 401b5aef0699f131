/** The drawing of a document that is not submitted yet: the server lays out only graphs that it has. */

import type { Drawing, Line, TaskBox } from "./model";

const X_GAP = 260;
const Y_GAP = 66;

/** Draw the nodes of a document in layers; null if it is none, or too large. A matrix is one box. */
export function previewOf(document: unknown, most: number): Drawing | null {
  const tasks = (document as { tasks?: unknown } | null)?.tasks;
  if (typeof tasks !== "object" || tasks === null) {
    return null;
  }
  const labels = Object.keys(tasks);
  if (labels.length > most) {
    return null;
  }
  const lines: Line[] = [];
  for (const label of labels) {
    for (const { task, on } of requiresOf((tasks as Record<string, unknown>)[label])) {
      if (labels.includes(task)) {
        lines.push({ key: `${task} ${label} ${on}`, from: task, to: label, on });
      }
    }
  }
  const layers = layersOf(labels, lines);
  const heights = new Map<number, number>();
  for (const layer of layers.values()) {
    heights.set(layer, (heights.get(layer) ?? 0) + 1);
  }
  const placed = new Map<number, number>();
  const boxes = labels.map((label): TaskBox => {
    const layer = layers.get(label) ?? 0;
    const place = placed.get(layer) ?? 0;
    placed.set(layer, place + 1);
    return { kind: "task", key: label, id: label, label, state: "unscheduled", x: layer * X_GAP, y: (place - ((heights.get(layer) ?? 1) - 1) / 2) * Y_GAP };
  });
  return { boxes, lines };
}

function requiresOf(node: unknown): { task: string; on: string }[] {
  const requires = (node as { requires?: unknown } | null)?.requires;
  return (Array.isArray(requires) ? requires : []).flatMap((one: unknown) => {
    if (typeof one === "string") {
      return [{ task: one, on: "success" }];
    }
    const { task, on } = (one ?? {}) as { task?: unknown; on?: unknown };
    return typeof task === "string" ? [{ task, on: typeof on === "string" ? on : "success" }] : [];
  });
}

/** The longest path that leads to each label; labels of a cycle stay where the search left them. */
function layersOf(labels: string[], lines: Line[]): Map<string, number> {
  const layers = new Map(labels.map((label) => [label, 0]));
  for (let round = 0; round < labels.length; round += 1) {
    let moved = false;
    for (const line of lines) {
      const wanted = (layers.get(line.from) ?? 0) + 1;
      if (wanted > (layers.get(line.to) ?? 0) && wanted < labels.length) {
        layers.set(line.to, wanted);
        moved = true;
      }
    }
    if (!moved) {
      break;
    }
  }
  return layers;
}
