/** The bars of a timeline: which there are, where each is, and how they are drawn. */

import type { Palette } from "../lib/colours";
import { span, visible } from "../lib/format";
import { lookOf } from "../lib/states";
import { type Layout, type States, stateOf } from "./model";

export interface Bar {
  id: string;
  label: string;
  state: string;
  row: number;
  from: number;
  /** 0 while it runs. */
  to: number;
  critical: boolean;
}

/** What is in view: times, the first row, the size, and the times of the graph's begin and of now. */
export interface View {
  from: number;
  to: number;
  row: number;
  begin: number;
  now: number;
  width: number;
  height: number;
}

export const AXIS = 24;
const ROW_MIN = 20;
const ROW_MAX = 34;
const NAMES_WIDTH = 150;

/** Make a bar of each task that has begun. Bots that run several at once get a row for each place. */
export function barsOf(layout: Layout, times: States, byBot: boolean, critical: ReadonlySet<string>): { names: string[]; bars: Bar[] } {
  const begun = layout.ids.map((_, task) => task).filter((task) => (times.began_ms[task] ?? 0) > 0);
  begun.sort((one, other) => (times.began_ms[one] ?? 0) - (times.began_ms[other] ?? 0));
  const names: string[] = [];
  const free = new Map<string, { row: number; until: number }[]>();
  const bars = begun.map((task): Bar => {
    const label = visible(layout.names[task] ?? "");
    const from = times.began_ms[task] ?? 0;
    const to = times.ended_ms[task] ?? 0;
    const name = byBot ? visible(times.bots[times.bot_of[task] ?? -1] || "server") : label;
    const places = free.get(name) ?? [];
    free.set(name, places);
    let place = places.find((one) => one.until <= from);
    if (place === undefined) {
      place = { row: names.length, until: 0 };
      places.push(place);
      names.push(name);
    }
    place.until = to === 0 ? Infinity : to;
    const id = layout.ids[task] ?? "";
    return { id, label, state: stateOf(times, task), row: place.row, from, to, critical: critical.has(id) };
  });
  return byBot ? sortedByName(names, bars) : { names, bars };
}

/** Put the rows of each bot together. */
function sortedByName(names: string[], bars: Bar[]): { names: string[]; bars: Bar[] } {
  const order = names.map((_, row) => row).sort((one, other) => (names[one] ?? "").localeCompare(names[other] ?? "") || one - other);
  const place = new Map(order.map((row, at) => [row, at]));
  return { names: order.map((row) => names[row] ?? ""), bars: bars.map((bar) => ({ ...bar, row: place.get(bar.row) ?? 0 })) };
}

function rowHeight(names: string[], view: View): number {
  return Math.max(ROW_MIN, Math.min(ROW_MAX, (view.height - AXIS) / Math.max(1, names.length)));
}

function left(view: View): number {
  return view.width < 600 ? 0 : NAMES_WIDTH;
}

function boxOf(bar: Bar, names: string[], view: View) {
  const height = rowHeight(names, view);
  const room = view.width - left(view);
  const scale = room / Math.max(1, view.to - view.from);
  const x = left(view) + (bar.from - view.from) * scale;
  const width = Math.max(2, ((bar.to || view.now) - bar.from) * scale);
  return { x, y: AXIS + (bar.row - view.row) * height + height * 0.16, width, height: height * 0.68 };
}

/** Find the bar at a point. */
export function barAt(names: string[], bars: Bar[], view: View, x: number, y: number): Bar | null {
  const found = bars.findLast((bar) => {
    const box = boxOf(bar, names, view);
    return x >= box.x - 2 && x <= box.x + box.width + 2 && y >= box.y && y <= box.y + box.height;
  });
  return found === undefined || x < left(view) ? null : found;
}

export function drawBars(canvas: HTMLCanvasElement, names: string[], bars: Bar[], view: View, colours: Palette): void {
  const ratio = devicePixelRatio || 1;
  canvas.width = view.width * ratio;
  canvas.height = view.height * ratio;
  canvas.style.width = `${view.width}px`;
  canvas.style.height = `${view.height}px`;
  const draw = canvas.getContext("2d");
  if (draw === null) {
    return;
  }
  draw.scale(ratio, ratio);
  draw.font = "11px system-ui, sans-serif";
  draw.textBaseline = "middle";
  drawAxis(draw, view, colours);
  for (const bar of bars) {
    drawBar(draw, bar, boxOf(bar, names, view), view, colours);
  }
  drawNames(draw, names, view, colours);
}

function drawAxis(draw: CanvasRenderingContext2D, view: View, colours: Palette): void {
  const wanted = (view.to - view.from) / Math.max(2, (view.width - left(view)) / 110);
  const step = STEPS.find((one) => one >= wanted) ?? 86_400_000;
  const scale = (view.width - left(view)) / (view.to - view.from);
  draw.fillStyle = colours.faint;
  draw.strokeStyle = colours.line;
  draw.textAlign = "left";
  draw.beginPath();
  for (let at = view.begin + Math.ceil((view.from - view.begin) / step) * step; at <= view.to; at += step) {
    const x = Math.round(left(view) + (at - view.from) * scale) + 0.5;
    draw.moveTo(x, AXIS - 4);
    draw.lineTo(x, view.height);
    if (at >= view.begin) {
      draw.fillText(span(at - view.begin), x + 3, 9);
    }
  }
  draw.stroke();
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000];

function drawBar(draw: CanvasRenderingContext2D, bar: Bar, box: ReturnType<typeof boxOf>, view: View, colours: Palette): void {
  if (box.x > view.width || box.x + box.width < left(view) || box.y > view.height || box.y + box.height < AXIS) {
    return;
  }
  const tone = lookOf(bar.state).tone;
  draw.fillStyle = colours[tone];
  draw.globalAlpha = bar.state === "running" ? 0.7 : 1;
  draw.beginPath();
  draw.roundRect(box.x, box.y, box.width, box.height, Math.min(3, box.width / 2));
  draw.fill();
  draw.globalAlpha = 1;
  if (tone === "bad" && box.width > 6) {
    stripe(draw, box);
  }
  if (bar.critical) {
    draw.strokeStyle = colours.text;
    draw.lineWidth = 1.6;
    draw.stroke();
    draw.lineWidth = 1;
  }
}

/** Colour alone does not say that something failed. */
function stripe(draw: CanvasRenderingContext2D, box: ReturnType<typeof boxOf>): void {
  draw.save();
  draw.clip();
  draw.strokeStyle = "rgb(0 0 0 / 35%)";
  draw.beginPath();
  for (let x = box.x - box.height; x < Math.min(box.x + box.width, 20_000); x += 6) {
    draw.moveTo(x, box.y + box.height);
    draw.lineTo(x + box.height, box.y);
  }
  draw.stroke();
  draw.restore();
  draw.beginPath();
  draw.roundRect(box.x, box.y, box.width, box.height, 3);
}

function drawNames(draw: CanvasRenderingContext2D, names: string[], view: View, colours: Palette): void {
  if (left(view) === 0) {
    return;
  }
  draw.fillStyle = colours.raised;
  draw.fillRect(0, 0, left(view) - 4, view.height);
  draw.fillStyle = colours.text;
  const height = rowHeight(names, view);
  names.forEach((name, row) => {
    const y = AXIS + (row - view.row + 0.5) * height;
    if (y > AXIS && y < view.height && name !== names[row - 1]) {
      draw.fillText(shortened(draw, name, left(view) - 12), 0, y);
    }
  });
}

function shortened(draw: CanvasRenderingContext2D, name: string, room: number): string {
  if (draw.measureText(name).width <= room) {
    return name;
  }
  let text = name.slice(0, 60);
  while (text.length > 1 && draw.measureText(`${text}…`).width > room) {
    text = text.slice(0, -1);
  }
  return `${text}…`;
}
