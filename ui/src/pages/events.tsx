/** The stream of events, as they happen. */

import { useCallback, useRef, useState } from "react";
import { Link } from "wouter";
import { useEvents, useStreamState } from "../api/live";
import type { Event } from "../api/stream";
import { Button, Card, Empty, PageHead, Said, SearchField } from "../components/basics";
import { StateIcon } from "../components/icons";
import { type Columns, Table } from "../components/table";
import { clock, shortId, visible } from "../lib/format";
import { useParams } from "../lib/params";
import { reasonText } from "../lib/states";

/** Older ones are in the history of their graph. */
const KEPT_MAX = 1_000;
const DRAW_MS = 250;

const COLUMNS: Columns<Event> = [
  { id: "at", header: "When", accessorFn: (event) => event.at_ms, cell: ({ getValue }) => <span className="numbers small nowrap">{clock(getValue<number>())}</span> },
  { id: "what", header: "What", accessorFn: (event) => event.kind, cell: ({ row: { original } }) => <span className="row"><StateIcon state={original.target} />{original.kind}</span> },
  { id: "subject", header: "Of", meta: { className: "title" }, accessorFn: (event) => event.label ?? "", cell: ({ row: { original } }) => (
    <span className="row">
      {original.task === null ? <Link href={`/graphs/${original.graph_id}`}>graph {shortId(original.graph_id)}</Link> : <Link href={`/tasks/${original.task}`} className="ellipsis"><Said>{original.label ?? ""}</Said></Link>}
      {original.task === null ? null : <Link className="faint small mono" href={`/graphs/${original.graph_id}`}>{shortId(original.graph_id)}</Link>}
    </span>
  ) },
  { id: "from", header: "Before", meta: { className: "wide" }, accessorFn: (event) => event.source ?? "–" },
  { id: "why", header: "Why", meta: { className: "wide" }, accessorFn: (event) => [event.signal, event.reason].filter(Boolean).join(", "), cell: ({ getValue }) => reasonText(getValue<string>()) },
  { id: "bot", header: "Bot", meta: { className: "wide" }, accessorFn: (event) => event.bot ?? "", cell: ({ getValue }) => visible(getValue<string>()) },
];

export function EventsPage() {
  const [events, setEvents] = useState<Event[]>([]);
  const [paused, setPaused] = useState(false);
  const waiting = useRef<Event[]>([]);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const [params, setParams] = useParams();
  const stream = useStreamState();
  const text = (params.get("text") ?? "").toLowerCase();
  const take = useCallback((event: Event) => {
    waiting.current.push(event);
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      const news = waiting.current.reverse();
      waiting.current = [];
      setEvents((known) => {
        const ids = new Set(news.map((one) => one.id));
        return [...news, ...known.filter((one) => !ids.has(one.id))].slice(0, KEPT_MAX);
      });
    }, DRAW_MS);
  }, []);
  const ignore = useCallback(() => undefined, []);
  useEvents(paused ? ignore : take);
  const shown = events.filter((event) => `${event.kind} ${event.label ?? ""} ${event.bot ?? ""} ${event.graph_id}`.toLowerCase().includes(text));
  return (
    <main className="page" id="content">
      <PageHead title="Events" actions={<Button aria-pressed={paused} onClick={() => setPaused(!paused)}>{paused ? "Go on" : "Pause"}</Button>}>
        <p className="soft">Everything that happens to graphs and tasks from now on, the newest first.</p>
      </PageHead>
      <div className="toolbar"><SearchField value={params.get("text") ?? ""} onChange={(value) => setParams({ text: value })} placeholder="Kind, label, bot or graph" /></div>
      <Card flush>
        <Table rows={shown} columns={COLUMNS} label="Events" rowId={(event) => event.id} empty={<Empty title={stream === "live" ? "Nothing has happened yet" : "Not connected"}>{paused ? "Paused." : "It is shown here when it does."}</Empty>} />
      </Card>
    </main>
  );
}
