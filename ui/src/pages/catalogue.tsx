/** The catalogue: templates, projects, inventories and schedules, with what each last did, and launching. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { catalogueQuery, launchesQuery, schedulesQuery } from "../api/queries";
import { mayDo, useSession } from "../api/session";
import { Ago, Button, Card, Empty, Loading, PageHead, Problem, Said, State } from "../components/basics";
import { LaunchDialog } from "../components/launch";
import { type Columns, Table } from "../components/table";
import { moment, visible } from "../lib/format";

export type Document = Schemas["DocumentView"];

export const KINDS: Record<string, string> = {
  job_template: "Job templates",
  workflow_template: "Workflows",
  project: "Projects",
  inventory: "Inventories",
  system_job_template: "System jobs",
  schedule: "Schedules",
  launches: "Launches",
};

/** Kinds that are refreshed, not launched. */
export const UPDATED = new Set(["project", "inventory"]);
const NOT_LAUNCHED = new Set(["schedule", "pool", "limit"]);

export function canLaunch(kind: string): boolean {
  return !NOT_LAUNCHED.has(kind);
}

export function CataloguePage({ kind }: { kind: string }) {
  return (
    <main className="page" id="content">
      <PageHead title="Catalogue"><p className="soft">What is stored to be launched, and what it needs. <code>taskyard apply -f</code> changes it.</p></PageHead>
      <nav className="tabs" aria-label="Kinds">
        {Object.entries(KINDS).map(([name, title]) => <Link key={name} href={`/catalogue/${name}`} aria-current={kind === name ? "page" : undefined}>{title}</Link>)}
      </nav>
      {kind === "launches" ? <Launches /> : kind === "schedule" ? <Schedules /> : <Documents kind={kind} />}
    </main>
  );
}

function Documents({ kind }: { kind: string }) {
  const found = useQuery(catalogueQuery(kind));
  const [launched, setLaunched] = useState<Document | null>(null);
  const { session } = useSession();
  const columns: Columns<Document> = [
    { id: "name", header: "Name", meta: { className: "title" }, accessorFn: (one) => one.name, cell: ({ row: { original } }) => <Link href={`/catalogue/${kind}/${encodeURIComponent(original.name)}`}><Said>{original.name}</Said></Link> },
    { id: "pool", header: "Pool", meta: { className: "wide" }, accessorFn: (one) => one.pool, cell: ({ getValue }) => visible(getValue<string>()) },
    { id: "last", header: UPDATED.has(kind) ? "Last update" : "Last launch", enableSorting: false, cell: ({ row: { original } }) => {
      const last = original.launches[0];
      return last === undefined ? <span className="faint">never</span> : <Link href={`/graphs/${last.graph_id}`} className="row"><State state={last.status} /><span className="small faint"><Ago at={last.created_ms} /></span></Link>;
    } },
    { id: "changed", header: "Changed", meta: { className: "wide" }, accessorFn: (one) => one.changed_ms ?? 0, cell: ({ row: { original } }) => (original.changed_ms === null ? "–" : <span className="small soft">version {original.version}, <Ago at={original.changed_ms} /></span>) },
    { id: "launch", header: "", enableSorting: false, meta: { className: "right" }, cell: ({ row: { original } }) => (mayDo(session.scopes, "submit", original.pool) ? <Button kind="small" onClick={() => setLaunched(original)}>{UPDATED.has(kind) ? "Update now" : "Launch"}</Button> : null) },
  ];
  return (
    <>
      {found.error === null ? null : <Problem error={found.error} />}
      <Card flush>
        {found.isPending ? <Loading /> : <Table rows={found.data?.items ?? []} columns={columns} label={KINDS[kind] ?? kind} href={(one) => `/catalogue/${kind}/${encodeURIComponent(one.name)}`} rowId={(one) => one.name} empty={<Empty title="There is none"><code>taskyard apply -f catalogue.yaml</code></Empty>} />}
      </Card>
      {launched === null ? null : <LaunchDialog document={launched} onClose={() => setLaunched(null)} />}
    </>
  );
}

type Launch = Schemas["LaunchView"];

const LAUNCH_COLUMNS: Columns<Launch> = [
  { id: "name", header: "Launched", meta: { className: "title" }, accessorFn: (one) => one.name, cell: ({ row: { original } }) => <span className="row"><Link href={`/graphs/${original.graph_id}`}><Said>{original.name}</Said></Link><span className="small faint">{original.kind.replaceAll("_", " ")}</span></span> },
  { id: "status", header: "Status", accessorFn: (one) => one.status, cell: ({ row: { original } }) => <State state={original.status} /> },
  { id: "type", header: "How", meta: { className: "wide" }, accessorFn: (one) => one.launch_type },
  { id: "actor", header: "By", meta: { className: "wide" }, accessorFn: (one) => one.actor, cell: ({ getValue }) => <span className="small ellipsis">{visible(getValue<string>())}</span> },
  { id: "when", header: "When", accessorFn: (one) => one.created_ms, cell: ({ row: { original } }) => <Ago at={original.created_ms} /> },
];

export function LaunchTable({ wanted }: { wanted: { kind?: string; name?: string } }) {
  const found = useQuery(launchesQuery(wanted));
  return found.isPending ? <Loading /> : found.error !== null ? <Problem error={found.error} /> : <Table rows={found.data.items} columns={LAUNCH_COLUMNS} label="Launches" href={(one) => `/graphs/${one.graph_id}`} rowId={(one) => one.graph_id} empty={<Empty title="Nothing was launched yet" />} />;
}

function Launches() {
  return <Card flush><LaunchTable wanted={{}} /></Card>;
}

type Schedule = Schemas["ScheduleView"];

const SCHEDULE_COLUMNS: Columns<Schedule> = [
  { id: "name", header: "Schedule", meta: { className: "title" }, accessorFn: (one) => one.name, cell: ({ row: { original } }) => <Link href={`/catalogue/schedule/${encodeURIComponent(original.name)}`}><Said>{original.name}</Said></Link> },
  { id: "template", header: "Launches", accessorFn: (one) => one.template, cell: ({ getValue }) => visible(getValue<string>()) },
  { id: "rule", header: "When", meta: { className: "wide" }, accessorFn: (one) => one.cron ?? one.rrule ?? "", cell: ({ row: { original } }) => <span><code>{visible(original.cron ?? original.rrule ?? "")}</code> <span className="small faint">{visible(original.timezone)}</span></span> },
  { id: "next", header: "Next run", accessorFn: (one) => one.next_ms ?? 0, cell: ({ row: { original } }) => (!original.enabled ? <span className="faint">off</span> : original.next_ms === null ? "–" : <span title={moment(original.next_ms)}><Ago at={original.next_ms} /></span>) },
  { id: "last", header: "Last", meta: { className: "wide" }, accessorFn: (one) => one.last_ms ?? 0, cell: ({ row: { original } }) => (original.last_ms === null ? <span className="faint">never</span> : original.last_graph_id === null ? <Said>{original.note ?? ""}</Said> : <Link className="link" href={`/graphs/${original.last_graph_id}`}><Ago at={original.last_ms} /></Link>) },
];

function Schedules() {
  const found = useQuery(schedulesQuery);
  return (
    <Card flush>
      {found.isPending ? <Loading /> : found.error !== null ? <Problem error={found.error} /> : <Table rows={found.data.items} columns={SCHEDULE_COLUMNS} label="Schedules" href={(one) => `/catalogue/schedule/${encodeURIComponent(one.name)}`} rowId={(one) => one.name} empty={<Empty title="There is none" />} />}
    </Card>
  );
}
