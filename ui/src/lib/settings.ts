/** What the browser remembers between visits: how the page looks, and saved searches. Never a secret. */

import { useCallback, useState } from "react";

const PREFIX = "taskyard.";
/** More than anybody saves; a text that is longer was not written by the page. */
const LENGTH_MAX = 20_000;

export function readSetting<T>(name: string, fallback: T, fits: (value: unknown) => value is T): T {
  try {
    // eslint-disable-next-line no-restricted-globals
    const text = localStorage.getItem(PREFIX + name);
    const found: unknown = text === null || text.length > LENGTH_MAX ? null : JSON.parse(text);
    return fits(found) ? found : fallback;
  } catch {
    return fallback;
  }
}

export function writeSetting(name: string, value: unknown): void {
  try {
    // eslint-disable-next-line no-restricted-globals
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // A browser that keeps nothing is no reason to fail.
  }
}

export function useSetting<T>(name: string, fallback: T, fits: (value: unknown) => value is T) {
  const [value, setValue] = useState<T>(() => readSetting(name, fallback, fits));
  const change = useCallback(
    (next: T) => {
      setValue(next);
      writeSetting(name, next);
    },
    [name],
  );
  return [value, change] as const;
}

export type Theme = "system" | "light" | "dark";

export function isTheme(value: unknown): value is Theme {
  return value === "system" || value === "light" || value === "dark";
}

export function applyTheme(theme: Theme): void {
  if (theme === "system") {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = theme;
  }
}
