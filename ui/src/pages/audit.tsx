/** Who asked for what: the audit. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { auditQuery } from "../api/queries";
import { Ago, Button, Card, Empty, Loading, PageHead, Problem, Said, SearchField } from "../components/basics";
import { type Columns, Table } from "../components/table";
import { shortId, visible } from "../lib/format";
import { useDebounced, useParams } from "../lib/params";
import { reasonText } from "../lib/states";

const COLUMNS: Columns<Schemas["AuditView"]> = [
  { id: "at", header: "When", accessorFn: (one) => one.at_ms, cell: ({ row: { original } }) => <Ago at={original.at_ms} /> },
  { id: "actor", header: "Who", accessorFn: (one) => one.actor, cell: ({ getValue }) => <span className="ellipsis" title={visible(getValue<string>())}><Said>{getValue<string>().replace(/ \([^)]*\)$/, "")}</Said></span> },
  { id: "action", header: "Did", accessorFn: (one) => one.action, cell: ({ getValue }) => <span className={`state tone-${getValue<string>() === "denied" ? "bad" : "quiet"}`}>{reasonText(getValue<string>())}</span> },
  { id: "subject", header: "With", accessorFn: (one) => one.subject ?? "", cell: ({ row: { original } }) => (original.subject === null ? <span className="faint">–</span> : <Link className="link mono small" href={`/tasks?id=${original.subject}`}>{shortId(original.subject)}</Link>) },
  { id: "note", header: "Note", meta: { className: "wide" }, accessorFn: (one) => one.note, cell: ({ getValue }) => <span className="small soft break"><Said>{getValue<string>()}</Said></span> },
];

export function AuditPage() {
  const [params, setParams] = useParams();
  const action = useDebounced(params.get("action") ?? "");
  const found = useInfiniteQuery(auditQuery(action === "" ? {} : { action }));
  const rows = found.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <main className="page" id="content">
      <PageHead title="Audit"><p className="soft">Who asked for what, and what was denied, the newest first.</p></PageHead>
      <div className="toolbar"><SearchField value={params.get("action") ?? ""} onChange={(value) => setParams({ action: value })} placeholder="Action, such as cancel or denied" /></div>
      {found.error !== null && rows.length === 0 ? <Problem error={found.error} /> : null}
      <Card flush>{found.isPending ? <Loading /> : <Table rows={rows} columns={COLUMNS} label="Audit" rowId={(one) => one.id} empty={<Empty title="Nothing matches" />} />}</Card>
      {found.hasNextPage ? <div><Button onClick={() => void found.fetchNextPage()}>Show more</Button></div> : null}
    </main>
  );
}
