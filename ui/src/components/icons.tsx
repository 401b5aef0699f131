/** Icons: a few strokes each. Marks of states have different shapes, so that they are told apart without colour. */

import type { ReactNode } from "react";
import { lookOf } from "../lib/states";

const STROKE = { fill: "none", stroke: "currentColor", strokeWidth: 1.6, strokeLinecap: "round", strokeLinejoin: "round" } as const;

const ICONS = {
  home: <path d="M2.5 7.5 8 2.8l5.5 4.7M4 6.5v6.7h8V6.5M6.6 13v-3.6h2.8V13" />,
  graph: <path d="M5.4 3.8h5.2M5.4 4.4l5.2 6.8M5.4 12.2h5.2M2.2 3.8a1.6 1.6 0 1 0 3.2 0 1.6 1.6 0 1 0-3.2 0M2.2 12.2a1.6 1.6 0 1 0 3.2 0 1.6 1.6 0 1 0-3.2 0M10.6 12.2a1.6 1.6 0 1 0 3.2 0 1.6 1.6 0 1 0-3.2 0M10.6 3.8a1.6 1.6 0 1 0 3.2 0 1.6 1.6 0 1 0-3.2 0" />,
  fleet: <path d="M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01M8 5h3M8 11h3" />,
  submit: <path d="M8 10.5V2.8M5 5.5l3-3 3 3M2.8 10.5v2.7h10.4v-2.7" />,
  events: <path d="M1.8 8h2.7l1.8-4.6 3 9.2L11.2 8h3" />,
  catalogue: <path d="M3 3h4v4H3zM9 3h4v4H9zM3 9h4v4H3zM9 9h4v4H9z" />,
  audit: <path d="M4 2.5h6l2.5 2.5v8.5H4zM6.2 7.5h4M6.2 10.2h4" />,
  key: <path d="M9.2 6.8 14 2M11.6 4.4l1.6 1.6M9.8 9a3.3 3.3 0 1 1-6.6 0 3.3 3.3 0 0 1 6.6 0z" />,
  lock: <path d="M3.5 7.3h9v6h-9zM5.3 7.3V5.2a2.7 2.7 0 0 1 5.4 0v2.1" />,
  search: <path d="m10.3 10.3 3.2 3.2M11.6 7.1a4.5 4.5 0 1 1-9 0 4.5 4.5 0 0 1 9 0z" />,
  menu: <path d="M2.5 4h11M2.5 8h11M2.5 12h11" />,
  close: <path d="m4 4 8 8M12 4l-8 8" />,
  down: <path d="m4 6 4 4 4-4" />,
  external: <path d="M9.5 3H13v3.5M13 3 7.5 8.5M11 9.5V13H3V5h3.5" />,
  download: <path d="M8 2.5v7.7M5 7.5l3 3 3-3M2.8 13.2h10.4" />,
  stop: <path d="M4 4h8v8H4z" />,
  again: <path d="M13 8a5 5 0 1 1-1.6-3.7M13 2.3v2.9h-2.9" />,
  limits: <path d="M2.5 12.5a5.6 5.6 0 1 1 11 0M8 11.5l2.4-3.6" />,
  sun: <path d="M8 1.8v1.4M8 12.8v1.4M1.8 8h1.4M12.8 8h1.4M3.6 3.6l1 1M11.4 11.4l1 1M12.4 3.6l-1 1M4.6 11.4l-1 1M10.8 8a2.8 2.8 0 1 1-5.6 0 2.8 2.8 0 0 1 5.6 0z" />,
  moon: <path d="M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z" />,
  out: <path d="M6.5 13.2H3V2.8h3.5M10 11l3-3-3-3M13 8H6.5" />,
  question: <path d="M5.8 6a2.3 2.3 0 1 1 3.4 2c-.8.5-1.2.9-1.2 1.7M8 12.3v.01" />,
} satisfies Record<string, ReactNode>;

export type IconName = keyof typeof ICONS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" {...STROKE}>
      {ICONS[name]}
    </svg>
  );
}

const DISC = <circle cx="8" cy="8" r="7" fill="currentColor" stroke="none" />;
const INSIDE = { stroke: "var(--bg-raised)", strokeWidth: 1.9 };

const MARKS: Record<string, ReactNode> = {
  check: <>{DISC}<path {...INSIDE} d="m4.9 8.2 2.2 2.2 4.1-4.6" /></>,
  cross: <>{DISC}<path {...INSIDE} d="m5.6 5.6 4.8 4.8M10.4 5.6l-4.8 4.8" /></>,
  bang: <><path d="M8 1.2 15 14H1z" fill="currentColor" stroke="currentColor" strokeWidth="1" /><path {...INSIDE} d="M8 6v3.4M8 11.6v.01" /></>,
  spin: <><g className="turn"><circle cx="8" cy="8" r="6.2" opacity="0.3" strokeWidth="2" /><path d="M8 1.8a6.2 6.2 0 0 1 6.2 6.2" strokeWidth="2" /></g><circle cx="8" cy="8" r="2" fill="currentColor" stroke="none" /></>,
  clock: <><circle cx="8" cy="8" r="6.2" /><path d="M8 4.6V8l2.3 1.6" /></>,
  hold: <><circle cx="8" cy="8" r="6.2" strokeDasharray="2.6 2.2" /><path d="M6.5 5.8v4.4M9.5 5.8v4.4" /></>,
  dots: <><circle cx="8" cy="8" r="6.2" strokeDasharray="1 2.6" /><path d="M5.2 8h.01M8 8h.01M10.8 8h.01" strokeWidth="2" /></>,
  bar: <><path d="M5.2 1.4h5.6l3.8 3.8v5.6l-3.8 3.8H5.2l-3.8-3.8V5.2z" fill="currentColor" stroke="none" /><path {...INSIDE} d="M4.8 8h6.4" /></>,
  stop: <><circle cx="8" cy="8" r="6.2" /><path d="M6 6h4v4H6z" fill="currentColor" /></>,
  slash: <><circle cx="8" cy="8" r="6.2" /><path d="m3.8 12.2 8.4-8.4" /></>,
  skip: <path d="M3 4.2 7.2 8 3 11.8M8.2 4.2 12.4 8l-4.2 3.8" />,
};

/** The mark of a state. */
export function StateIcon({ state, size = 16 }: { state: string; size?: number }) {
  const look = lookOf(state);
  return (
    <svg className={`state-icon tone-${look.tone}`} width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" {...STROKE}>
      {MARKS[look.mark]}
    </svg>
  );
}
