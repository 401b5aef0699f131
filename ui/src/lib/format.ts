/** Times, spans, sizes and numbers as people read them. */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Write a span: `320 ms`, `4.2 s`, `3 m 20 s`, `2 h 5 m`, `4 d 3 h`. */
export function span(ms: number): string {
  if (ms < 0) {
    return "0 s";
  }
  if (ms < SECOND) {
    return `${Math.round(ms)} ms`;
  }
  if (ms < 10 * SECOND) {
    return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  }
  if (ms < MINUTE) {
    return `${Math.floor(ms / SECOND)} s`;
  }
  if (ms < HOUR) {
    return two(ms, MINUTE, "m", SECOND, "s");
  }
  return ms < DAY ? two(ms, HOUR, "h", MINUTE, "m") : two(ms, DAY, "d", HOUR, "h");
}

function two(ms: number, large: number, largeName: string, small: number, smallName: string): string {
  const rest = Math.floor((ms % large) / small);
  const first = `${Math.floor(ms / large)} ${largeName}`;
  return rest === 0 ? first : `${first} ${rest} ${smallName}`;
}

/** Write how long ago a moment was, or in what time it comes. */
export function ago(at: number, now: number): string {
  const past = now - at;
  if (Math.abs(past) < 5 * SECOND) {
    return "now";
  }
  const rounded = Math.abs(past) < MINUTE ? Math.round(Math.abs(past) / SECOND) * SECOND : Math.abs(past);
  const text = span(rounded).split(" ").slice(0, 2).join(" ");
  return past > 0 ? `${text} ago` : `in ${text}`;
}

const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const NUMBER = new Intl.NumberFormat("en-US");

export function moment(at: number): string {
  return MOMENT.format(at);
}

export function clock(at: number): string {
  return CLOCK.format(at);
}

export function number(value: number): string {
  return NUMBER.format(value);
}

/** Write a size in bytes. */
export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** Shorten an id to the part that people compare. */
export function shortId(id: string): string {
  return id.slice(-7);
}

/** Write dimensions: `os=Linux, gpu=h100|a100`. */
export function dimensions(found: Record<string, string[]>): string {
  return Object.entries(found)
    .map(([key, values]) => `${key}=${values.join("|")}`)
    .join(", ");
}

/** Escape characters that would change the direction of the text around them, or that nobody sees. */
export function visible(text: string): string {
   
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (found) => {
    const code = found.codePointAt(0) ?? 0;
    return `\\u${code.toString(16).padStart(4, "0")}`;
  });
}
