/** Small parts of all pages: states, counts, times, cards, problems. */

import type { ReactNode } from "react";
import { Link } from "wouter";
import { ApiProblem } from "../api/client";
import { ago, moment, number, span, visible } from "../lib/format";
import { useNow } from "../lib/now";
import { lookOf, TASK_STATES, type Tone } from "../lib/states";
import { Icon, type IconName, StateIcon } from "./icons";

export function State({ state, badge = false, detail = "" }: { state: string; badge?: boolean; detail?: string }) {
  return (
    <span className={`state tone-${lookOf(state).tone} ${badge ? "badge" : ""}`}>
      <StateIcon state={state} />
      {state}
      {detail === "" ? null : <span className="soft small"> {detail}</span>}
    </span>
  );
}

/** Text that a task, a bot or a person wrote: nothing in it is invisible, and it is never markup. */
export function Said({ children }: { children: string }) {
  return <bdi>{visible(children)}</bdi>;
}

const STRIPED = new Set(["failed", "blocked"]);
const DOTTED = new Set(["error", "pending", "skipped"]);

/** How many tasks are in each state, as a bar; patterns tell apart what has one colour. */
export function CountBar({ counts, label }: { counts: Record<string, number>; label?: string }) {
  const shown = [...TASK_STATES].reverse().filter((state) => (counts[state] ?? 0) > 0);
  const text = shown.map((state) => `${counts[state]} ${state}`).join(", ");
  return (
    <div className="countbar" role="img" aria-label={label ?? (text || "no tasks")} title={text}>
      {shown.map((state) => (
        <i
          key={state}
          className={`tone-${lookOf(state).tone} ${STRIPED.has(state) ? "striped" : ""} ${DOTTED.has(state) ? "dotted" : ""}`}
          style={{ flexGrow: counts[state] }}
        />
      ))}
    </div>
  );
}

export function Counts({ counts }: { counts: Record<string, number> }) {
  return (
    <ul className="counts">
      {TASK_STATES.filter((state) => (counts[state] ?? 0) > 0).map((state) => (
        <li key={state} className={`state tone-${lookOf(state).tone} small`}>
          <StateIcon state={state} size={13} />
          <span className="numbers">{number(counts[state] ?? 0)}</span> {state}
        </li>
      ))}
    </ul>
  );
}

/** How long ago a moment was; the moment itself is its title. */
export function Ago({ at }: { at: number }) {
  const now = useNow();
  return (
    <time className="nowrap" dateTime={new Date(at).toISOString()} title={moment(at)}>
      {ago(at, now)}
    </time>
  );
}

/** How long something took, or has taken so far. */
export function Took({ from, to }: { from: number; to: number | null }) {
  return to === null ? <Running from={from} /> : <span className="numbers nowrap">{span(to - from)}</span>;
}

function Running({ from }: { from: number }) {
  return <span className="numbers nowrap">{span(useNow() - from)}</span>;
}

export function Card({ title, actions, children, flush = false, className = "" }: {
  title?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  flush?: boolean;
  className?: string;
}) {
  return (
    <section className={`card ${className}`}>
      {title === undefined ? null : (
        <div className="card-head">
          <h2>{title}</h2>
          {actions}
        </div>
      )}
      <div className={`card-body ${flush ? "flush" : ""}`}>{children}</div>
    </section>
  );
}

export function PageHead({ title, crumbs, actions, children }: {
  title: ReactNode;
  crumbs?: { href: string; text: string }[];
  actions?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <header className="page-head">
      <div>
        {crumbs === undefined ? null : (
          <nav className="crumbs" aria-label="Above">
            {crumbs.map((one) => (
              <span key={one.href} className="row">
                <Link href={one.href} className="ellipsis">
                  {visible(one.text)}
                </Link>
                <span aria-hidden="true">/</span>
              </span>
            ))}
          </nav>
        )}
        <h1 className="break">{title}</h1>
        {children}
      </div>
      {actions === undefined ? null : <div className="toolbar">{actions}</div>}
    </header>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

/** Why something cannot be shown or was refused, with every fault. */
export function Problem({ error, again }: { error: unknown; again?: () => void }) {
  const problem = error instanceof ApiProblem ? error : null;
  return (
    <div className="notice tone-bad" role="alert">
      <strong>
        <Said>{error instanceof Error ? error.message : "Something went wrong."}</Said>
      </strong>
      {problem === null || problem.faults.length === 0 ? null : (
        <ul className="stack tight">
          {problem.faults.map((fault, place) => (
            <li key={place} className="small break">
              {fault.path === "" ? null : <code>{visible(fault.path)}</code>} {visible(fault.message)}
            </li>
          ))}
        </ul>
      )}
      {again === undefined ? null : (
        <div>
          <button className="button small" onClick={again}>
            Try again
          </button>
        </div>
      )}
    </div>
  );
}

export function Loading({ rows = 4 }: { rows?: number }) {
  return (
    <div className="stack tight card-body" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, place) => (
        <div key={place} className="skeleton" style={{ width: `${90 - place * 12}%` }} />
      ))}
    </div>
  );
}

export function Tile({ label, value, tone, icon, href, note }: {
  label: string;
  value: ReactNode;
  tone?: Tone;
  icon?: string;
  href?: string;
  note?: ReactNode;
}) {
  const inside = (
    <>
      <span className="label">
        {icon === undefined ? null : <StateIcon state={icon} size={14} />}
        {label}
      </span>
      <span className={`value ${tone === undefined ? "" : `tone-${tone}`}`}>{value}</span>
      {note === undefined ? null : <span className="small faint">{note}</span>}
    </>
  );
  return href === undefined ? <div className="card tile">{inside}</div> : <Link href={href} className="card tile">{inside}</Link>;
}

export function SearchField({ value, onChange, placeholder }: {
  value: string;
  onChange: (value: string) => void;
  placeholder: string;
}) {
  return (
    <div className="search">
      <Icon name="search" size={15} />
      <input
        className="input"
        type="search"
        data-search
        value={value}
        placeholder={placeholder}
        aria-label={placeholder}
        maxLength={200}
        onChange={(event) => onChange(event.target.value)}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}

export function Button({ icon, children, kind = "", ...rest }: {
  icon?: IconName;
  children?: ReactNode;
  kind?: string;
} & React.ButtonHTMLAttributes<HTMLButtonElement>) {
  return (
    <button type="button" className={`button ${kind}`} {...rest}>
      {icon === undefined ? null : <Icon name={icon} size={15} />}
      {children}
    </button>
  );
}

export function Facts({ children }: { children: ReactNode }) {
  return <dl className="facts">{children}</dl>;
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

export function Json({ value, label }: { value: unknown; label: string }) {
  return (
    <pre className="code" tabIndex={0} role="region" aria-label={label}>
      {visible(JSON.stringify(value, null, 2) ?? "null")}
    </pre>
  );
}
