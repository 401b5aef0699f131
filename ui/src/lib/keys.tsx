/** Keys: one press, or two in a row such as `g g`; nothing is taken from somebody who writes. */

import { useLayoutEffect } from "react";

export interface KeyAction {
  keys: string;
  does: string;
  act: () => void;
}

const PAUSE_MS = 1_200;

function writes(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Find what a sequence of keys does: an action, the beginning of one, or nothing. */
export function matchKeys(actions: KeyAction[], typed: string[]): { action: KeyAction | null; rest: string[] } {
  for (const sequence of [typed, typed.slice(-1)]) {
    const text = sequence.join(" ");
    const action = actions.find((one) => one.keys === text);
    if (action !== undefined) {
      return { action, rest: [] };
    }
    if (actions.some((one) => one.keys.startsWith(`${text} `))) {
      return { action: null, rest: sequence };
    }
  }
  return { action: null, rest: [] };
}

export function useKeys(actions: KeyAction[]): void {
  // Before anything is painted: whoever sees the page can use the keys.
  useLayoutEffect(() => {
    let typed: string[] = [];
    let at = 0;
    const onKey = (event: globalThis.KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || writes(event.target) || document.querySelector("dialog[open]") !== null) {
        return;
      }
      typed = event.timeStamp - at > PAUSE_MS ? [event.key] : [...typed, event.key];
      at = event.timeStamp;
      const { action, rest } = matchKeys(actions, typed);
      typed = rest;
      if (action !== null) {
        event.preventDefault();
        action.act();
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [actions]);
}

/** Move the focus to the search of the page. */
export function focusSearch(): void {
  document.querySelector<HTMLInputElement>("[data-search]")?.focus();
}
