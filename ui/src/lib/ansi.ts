/** Colours of terminals, as spans with classes. Only `anser` reads the codes, and its output is data, not markup. */

import Anser from "anser";

export interface Piece {
  text: string;
  className: string;
}

/** Longer lines are shown in part: one line of a megabyte would stop the browser. */
export const LINE_MAX = 10_000;
// What moves the cursor or sets a title says nothing in a log. Colours end with `m` and are left in.
 
const OTHER_CODES = /\u001b(?:\[[0-9;?]*[A-Za-ln-z]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[()][A-Z0-9]|[=>78])/g;

/** Split a line into pieces of one look each. */
export function pieces(line: string): Piece[] {
  const text = overwritten(line.length > LINE_MAX ? `${line.slice(0, LINE_MAX)} … (${line.length} characters)` : line);
  if (!text.includes("\u001b")) {
    return [{ text: printable(text), className: "" }];
  }
  return Anser.ansiToJson(text.replace(OTHER_CODES, ""), { use_classes: true, remove_empty: true }).map((one) => ({
    text: printable(one.content),
    className: classOf(one),
  }));
}

/** What was printed after the last carriage return is what a terminal shows. */
function overwritten(line: string): string {
  const whole = line.endsWith("\r") ? line.slice(0, -1) : line;
  const at = whole.lastIndexOf("\r");
  return at < 0 ? whole : whole.slice(at + 1);
}

function printable(text: string): string {
   
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, "�");
}

const DECORATIONS: Record<string, string> = {
  bold: "ansi-bold",
  dim: "ansi-dim",
  italic: "ansi-italic",
  underline: "ansi-underline",
  strikethrough: "ansi-strike",
};

interface Styled {
  fg: string | null;
  bg: string | null;
  fg_truecolor: string | null;
  bg_truecolor: string | null;
  decorations: string[];
}

/** Name the classes of a piece. */
function classOf(one: Styled): string {
  const names = one.decorations.map((name) => DECORATIONS[name] ?? "");
  names.push(colour(one.fg, one.fg_truecolor), one.bg === null ? "" : `${colour(one.bg, one.bg_truecolor)}-bg`);
  return names.filter((name) => /^ansi-[a-z-]+$/.test(name)).join(" ");
}

const EIGHT = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/** Name the class of a colour; of 256 or of exact colours, that of the nearest of eight. */
function colour(name: string | null, exact: string | null): string {
  if (name === "ansi-truecolor") {
    return nearest((exact ?? "").split(",").map((level) => Number(level) / 255));
  }
  const palette = /^ansi-palette-(\d+)$/.exec(name ?? "");
  if (palette === null) {
    return name ?? "";
  }
  const index = Number(palette[1]) - 16;
  const levels = [Math.floor(index / 36), Math.floor(index / 6) % 6, index % 6];
  return nearest(index < 216 ? levels.map((level) => level / 5) : Array(3).fill((index - 216) / 24));
}

function nearest(levels: number[]): string {
  const bits = levels.reduce((sum, level, place) => sum + (level >= 0.5 ? 1 << place : 0), 0);
  return `ansi-${EIGHT[bits] ?? "white"}`;
}
