/** All graphs: filters that are in the address, searches that the browser remembers, and more as one scrolls. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { type GraphWanted, graphsQuery } from "../api/queries";
import { mayDo, useSession } from "../api/session";
import { Ago, Button, Card, CountBar, Empty, Loading, PageHead, Problem, Said, SearchField, State, Took } from "../components/basics";
import { type Columns, Table } from "../components/table";
import { plural, shortId, visible } from "../lib/format";
import { useDebounced, useParams } from "../lib/params";
import { useSetting } from "../lib/settings";
import { type Graph, GRAPH_STATES } from "../lib/states";

interface Saved {
  name: string;
  search: string;
}

const SAVED_MAX = 20;

function areSaved(value: unknown): value is Saved[] {
  return Array.isArray(value) && value.length <= SAVED_MAX && value.every((one) => typeof one?.name === "string" && typeof one?.search === "string");
}

export const GRAPH_COLUMNS: Columns<Graph> = [
  {
    id: "name",
    header: "Graph",
    accessorFn: (graph) => graph.name,
    meta: { className: "title" },
    cell: ({ row: { original } }) => (
      <div className="stack tight" style={{ gap: 0 }}>
        <Link href={`/graphs/${original.id}`} className="ellipsis" title={visible(original.name)}>
          {original.name === "" ? <span className="soft">unnamed</span> : <Said>{original.name}</Said>}
        </Link>
        <span className="faint small ellipsis">
          <code>{shortId(original.id)}</code> {original.description === "" ? "" : `· ${visible(original.description)}`}
        </span>
      </div>
    ),
  },
  { id: "state", header: "State", accessorFn: (graph) => graph.state, cell: ({ row: { original } }) => <State state={original.state} /> },
  {
    id: "tasks",
    header: "Tasks",
    meta: { className: "wide" },
    accessorFn: (graph) => Object.values(graph.counts).reduce((sum, one) => sum + one, 0),
    cell: ({ row: { original }, getValue }) => (
      <div style={{ width: 190 }} className="row">
        <span className="grow">
          <CountBar counts={original.counts} />
        </span>
        <span className="numbers small soft right" style={{ width: 44 }}>
          {getValue<number>()}
        </span>
      </div>
    ),
  },
  {
    id: "took",
    header: "Took",
    meta: { className: "wide" },
    accessorFn: (graph) => graph.moved_ms - graph.created_ms,
    cell: ({ row: { original } }) => <Took from={original.created_ms} to={original.settled ? original.moved_ms : null} />,
  },
  { id: "created", header: "Created", accessorFn: (graph) => graph.created_ms, cell: ({ row: { original } }) => <Ago at={original.created_ms} /> },
];

export function GraphsPage() {
  const [params, setParams] = useParams();
  const [saved, setSaved] = useSetting<Saved[]>("graph-searches", [], areSaved);
  const state = params.get("state") ?? "";
  const name = useDebounced(params.get("name") ?? "");
  const tags = params.getAll("tag");
  const wanted = { ...(state === "" ? {} : { state }), ...(name === "" ? {} : { name }), ...(tags.length === 0 ? {} : { tag: tags }) } as GraphWanted;
  const found = useInfiniteQuery(graphsQuery(wanted));
  const graphs = found.data?.pages.flatMap((page) => page.items) ?? [];
  const { session } = useSession();
  const search = params.toString();
  return (
    <main className="page" id="content">
      <PageHead
        title="Graphs"
        actions={
          mayDo(session.scopes, "submit") ? (
            <Link href="/submit" className="button primary">
              Submit a graph
            </Link>
          ) : undefined
        }
      >
        <p className="soft">Tasks that were submitted together, the newest first.</p>
      </PageHead>
      <div className="stack tight">
        <div className="toolbar">
          <SearchField value={params.get("name") ?? ""} onChange={(value) => setParams({ name: value })} placeholder="Exact name of a graph" />
          <div className="segments" role="group" aria-label="State">
            {["", ...GRAPH_STATES].map((one) => (
              <button key={one} type="button" aria-pressed={state === one} onClick={() => setParams({ state: one })}>
                {one === "" ? "all" : one}
              </button>
            ))}
          </div>
          <TagField onAdd={(tag) => setParams({ tag: [...tags, tag] })} />
          {search === "" ? null : <SaveSearch onSave={(title) => setSaved([...saved.filter((one) => one.name !== title), { name: title, search }].slice(-SAVED_MAX))} />}
        </div>
        {tags.length + saved.length === 0 ? null : (
          <div className="toolbar">
            {tags.map((tag) => (
              <button key={tag} type="button" className="chip" title="Remove this tag" onClick={() => setParams({ tag: tags.filter((one) => one !== tag) })}>
                {visible(tag)} ×
              </button>
            ))}
            {saved.map((one) => (
              <span key={one.name} className="chip">
                <Link href={`/graphs?${one.search}`} className="link">
                  {visible(one.name)}
                </Link>
                <button type="button" className="chip" aria-label={`Forget the search ${one.name}`} onClick={() => setSaved(saved.filter((other) => other !== one))}>
                  ×
                </button>
              </span>
            ))}
          </div>
        )}
      </div>
      {found.error !== null && graphs.length === 0 ? <Problem error={found.error} again={() => void found.refetch()} /> : null}
      <Card flush>
        {found.isPending ? (
          <Loading />
        ) : (
          <Table
            rows={graphs}
            columns={GRAPH_COLUMNS}
            label="Graphs"
            href={(graph) => `/graphs/${graph.id}`}
            rowId={(graph) => graph.id}
            empty={
              <Empty title={search === "" ? "No graphs yet" : "No graph matches"}>
                {search === "" ? <code>taskyard submit nightly.yaml</code> : <span>Change or remove the filters above.</span>}
              </Empty>
            }
          />
        )}
      </Card>
      {found.hasNextPage ? (
        <div className="row between">
          <span className="small faint">{plural(graphs.length, "graph")} shown</span>
          <Button onClick={() => void found.fetchNextPage()} disabled={found.isFetchingNextPage}>
            Show more
          </Button>
        </div>
      ) : null}
    </main>
  );
}

export function TagField({ onAdd, placeholder = "tag key:value" }: { onAdd: (tag: string) => void; placeholder?: string }) {
  const [text, setText] = useState("");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (text.includes(":")) {
          onAdd(text.trim());
          setText("");
        }
      }}
    >
      <input className="input" style={{ width: 160 }} value={text} maxLength={300} placeholder={placeholder} aria-label={`Add a ${placeholder}`} onChange={(event) => setText(event.target.value)} />
    </form>
  );
}

function SaveSearch({ onSave }: { onSave: (name: string) => void }) {
  const [name, setName] = useState<string | null>(null);
  if (name === null) {
    return (
      <Button kind="ghost" onClick={() => setName("")}>
        Save this search
      </Button>
    );
  }
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim() !== "") {
          onSave(name.trim());
        }
        setName(null);
      }}
    >
      <input className="input" style={{ width: 150 }} autoFocus value={name} maxLength={40} placeholder="its name" aria-label="Name of the search" onChange={(event) => setName(event.target.value)} />
    </form>
  );
}
