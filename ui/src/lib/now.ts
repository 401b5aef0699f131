/** The time of the server, once a second for everything that shows a span. */

import { useSyncExternalStore } from "react";

let offsetMs = 0;
let shown = Date.now();
const watchers = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** Follow the clock of the server: spans do not depend on the clock of this machine. */
export function setServerTime(nowMs: number): void {
  offsetMs = nowMs - Date.now();
}

export function serverNow(): number {
  return Date.now() + offsetMs;
}

function watch(tell: () => void): () => void {
  watchers.add(tell);
  timer ??= setInterval(() => {
    shown = Date.now();
    watchers.forEach((one) => one());
  }, 1_000);
  return () => {
    watchers.delete(tell);
    if (watchers.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

export function useNow(): number {
  return useSyncExternalStore(watch, () => shown) + offsetMs;
}
