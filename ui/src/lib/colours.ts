/** The colours of the design as they are now: a canvas knows no variables of CSS. */

import type { Tone } from "./states";

export type Palette = Record<Tone | "text" | "faint" | "line" | "strong" | "raised" | "accent", string>;

const NAMES: Record<keyof Palette, string> = {
  good: "--good-solid",
  bad: "--bad-solid",
  warn: "--warn-solid",
  busy: "--busy-solid",
  wait: "--wait-solid",
  quiet: "--quiet-solid",
  text: "--text",
  faint: "--text-faint",
  line: "--line",
  strong: "--line-strong",
  raised: "--bg-raised",
  accent: "--accent",
};

/** Read the colours that hold inside an element, as `rgb(...)`. */
export function palette(element: Element): Palette {
  const probe = document.createElement("i");
  element.append(probe);
  const found = Object.entries(NAMES).map(([key, name]) => {
    probe.style.color = `var(${name})`;
    return [key, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(found) as Palette;
}

/** Write a colour as `#rrggbb`. */
export function hex(colour: string): string {
  const levels = colour.match(/[\d.]+/g)?.slice(0, 3) ?? ["128", "128", "128"];
  return `#${levels.map((level) => Math.round(Number(level)).toString(16).padStart(2, "0")).join("")}`;
}
