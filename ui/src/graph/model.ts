/** What a drawing shows: boxes and lines, from the layout of the server, the states, and which groups are expanded. */

import type { Schemas } from "../api/client";

export type Layout = Schemas["GraphLayout"];
export type States = Schemas["GraphStates"];

/** Larger drawings are drawn by sigma, on a canvas. */
export const BOXES_MAX = 1_000;
/** Larger groups are not expanded among the others: nobody could read it. */
export const EXPANDED_MAX = 600;
const X_GAP = 280;
const Y_GAP = 72;

export interface TaskBox {
  kind: "task";
  key: string;
  id: string;
  label: string;
  state: string;
  x: number;
  y: number;
}

export interface GroupBox {
  kind: "group";
  key: string;
  group: number;
  label: string;
  counts: Record<string, number>;
  size: number;
  x: number;
  y: number;
}

export type Box = TaskBox | GroupBox;

export interface Line {
  key: string;
  from: string;
  to: string;
  on: string;
}

export interface Drawing {
  boxes: Box[];
  lines: Line[];
}

export function stateOf(states: States | undefined, task: number): string {
  const place = states?.tasks[task];
  return (place === undefined ? undefined : states?.states[place]) ?? "unscheduled";
}

/** Draw every task. */
export function drawTasks(layout: Layout, states: States | undefined): Drawing {
  const boxes = layout.ids.map(
    (id, task): TaskBox => ({
      kind: "task",
      key: id,
      id,
      label: layout.names[task] ?? "",
      state: stateOf(states, task),
      x: layout.x[task] ?? 0,
      y: layout.y[task] ?? 0,
    }),
  );
  const lines = layout.edges.map(([from, to], place): Line => ({
    key: `${from}-${to}-${place}`,
    from: layout.ids[from ?? 0] ?? "",
    to: layout.ids[to ?? 0] ?? "",
    on: layout.ends[place] ?? "success",
  }));
  return { boxes, lines };
}

/** Count the states of the tasks of each group. */
export function countGroups(layout: Layout, states: States | undefined): Record<string, number>[] {
  const counts: Record<string, number>[] = layout.names.map(() => ({}));
  layout.group_of.forEach((group, task) => {
    const state = stateOf(states, task);
    const found = counts[group];
    if (found !== undefined) {
      found[state] = (found[state] ?? 0) + 1;
    }
  });
  return counts;
}

/** Draw groups, and the tasks of those that are expanded; these push aside what is behind and below them. */
export function drawGroups(groups: Layout, tasks: Layout | undefined, states: States | undefined, expanded: ReadonlySet<number>): Drawing {
  const counts = countGroups(groups, states);
  const members = membersOf(groups, tasks === undefined ? new Set() : expanded);
  const x = [...groups.x];
  const y = [...groups.y];
  const grids = new Map<number, { columns: number; rows: number }>();
  for (const [group, found] of [...members].sort(([one], [other]) => (groups.x[one] ?? 0) - (groups.x[other] ?? 0))) {
    const rows = Math.max(1, Math.ceil(Math.sqrt(found.length * 3)));
    const grid = { rows, columns: Math.ceil(found.length / rows) };
    grids.set(group, grid);
    const [ownX, ownY] = [x[group] ?? 0, y[group] ?? 0];
    for (let other = 0; other < x.length; other += 1) {
      if (other !== group && (x[other] ?? 0) > ownX) {
        x[other] = (x[other] ?? 0) + (grid.columns - 1) * X_GAP;
      } else if (other !== group && x[other] === ownX && (y[other] ?? 0) > ownY) {
        y[other] = (y[other] ?? 0) + (grid.rows - 1) * Y_GAP;
      }
    }
  }
  const boxes: Box[] = [];
  groups.names.forEach((label, group) => {
    const grid = grids.get(group);
    const found = members.get(group);
    if (grid === undefined || found === undefined || tasks === undefined) {
      const own = counts[group] ?? {};
      const size = Object.values(own).reduce((sum, one) => sum + one, 0);
      boxes.push({ kind: "group", key: `group-${group}`, group, label, counts: own, size, x: x[group] ?? 0, y: y[group] ?? 0 });
      return;
    }
    found.forEach((task, place) =>
      boxes.push({
        kind: "task",
        key: tasks.ids[task] ?? "",
        id: tasks.ids[task] ?? "",
        label: tasks.names[task] ?? "",
        state: stateOf(states, task),
        x: (x[group] ?? 0) + Math.floor(place / grid.rows) * X_GAP,
        y: (y[group] ?? 0) + (place % grid.rows) * Y_GAP,
      }),
    );
  });
  return { boxes, lines: linesOf(groups, tasks, new Set(members.keys())) };
}

function membersOf(groups: Layout, expanded: ReadonlySet<number>): Map<number, number[]> {
  const members = new Map<number, number[]>([...expanded].map((group) => [group, []]));
  groups.group_of.forEach((group, task) => members.get(group)?.push(task));
  for (const [group, found] of members) {
    if (found.length > EXPANDED_MAX) {
      members.delete(group);
    }
  }
  return members;
}

function linesOf(groups: Layout, tasks: Layout | undefined, expanded: ReadonlySet<number>): Line[] {
  const lines = new Map<string, Line>();
  const add = (from: string, to: string, on: string) => {
    if (from !== to) {
      lines.set(`${from} ${to}`, { key: `${from} ${to}`, from, to, on });
    }
  };
  groups.edges.forEach(([from, to]) => {
    if (!expanded.has(from ?? 0) && !expanded.has(to ?? 0)) {
      add(`group-${from}`, `group-${to}`, "success");
    }
  });
  if (tasks === undefined || expanded.size === 0) {
    return [...lines.values()];
  }
  const name = (task: number) => {
    const group = groups.group_of[task] ?? 0;
    return expanded.has(group) ? (tasks.ids[task] ?? "") : `group-${group}`;
  };
  tasks.edges.forEach(([from, to], place) => {
    if (expanded.has(groups.group_of[from ?? 0] ?? -1) || expanded.has(groups.group_of[to ?? 0] ?? -1)) {
      add(name(from ?? 0), name(to ?? 0), tasks.ends[place] ?? "success");
    }
  });
  return [...lines.values()];
}
