/** Tasks of all graphs, by state, tag, bot, pool and user; or the one whose id ends in some digits. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { idsQuery, tasksQuery } from "../api/queries";
import { Ago, Button, Card, Empty, Loading, PageHead, Problem, Said, SearchField, State, Took } from "../components/basics";
import { type Columns, Table } from "../components/table";
import { shortId, visible } from "../lib/format";
import { useDebounced, useParams } from "../lib/params";
import { reasonText, type Task, TASK_STATES } from "../lib/states";
import { TagField } from "./graphs";

const COLUMNS: Columns<Task> = [
  { id: "label", header: "Task", meta: { className: "title" }, accessorFn: (task) => task.label, cell: ({ row: { original } }) => (
    <span className="row">
      <Link href={`/tasks/${original.id}`} className="ellipsis" title={visible(original.label)}><Said>{original.label}</Said></Link>
      <Link href={`/graphs/${original.graph_id}`} className="faint small mono">{shortId(original.graph_id)}</Link>
    </span>
  ) },
  { id: "state", header: "State", accessorFn: (task) => task.state, cell: ({ row: { original } }) => <State state={original.state} detail={reasonText(original.reason)} /> },
  { id: "bot", header: "Bot", meta: { className: "wide" }, accessorFn: (task) => task.bot ?? "–", cell: ({ getValue }) => visible(getValue<string>()) },
  { id: "user", header: "For", meta: { className: "wide" }, accessorFn: (task) => task.user, cell: ({ getValue }) => visible(getValue<string>()) },
  { id: "took", header: "Took", meta: { className: "wide" }, accessorFn: (task) => task.duration_ms ?? -1, cell: ({ row: { original } }) => (original.started_ms === null ? "–" : <Took from={original.started_ms} to={original.ended_ms} />) },
  { id: "created", header: "Created", accessorFn: (task) => task.created_ms, cell: ({ row: { original } }) => <Ago at={original.created_ms} /> },
];

const FILTERS = ["bot", "pool", "user"] as const;

export function TasksPage() {
  const [params, setParams] = useParams();
  const states = params.getAll("state");
  const tags = params.getAll("tag");
  const given = Object.fromEntries(FILTERS.map((name) => [name, params.get(name)] as const).filter(([, value]) => value !== null && value !== ""));
  const found = useInfiniteQuery(tasksQuery({ ...(states.length === 0 ? {} : { state: states }), ...(tags.length === 0 ? {} : { tag: tags }), ...given }));
  const tasks = found.data?.pages.flatMap((page) => page.items) ?? [];
  const ending = useDebounced((params.get("id") ?? "").toLowerCase());
  const ids = useQuery({ ...idsQuery(ending), enabled: /^[0-9a-f]{4,16}$/.test(ending) });
  return (
    <main className="page" id="content">
      <PageHead title="Tasks"><p className="soft">Of all graphs, the newest first.</p></PageHead>
      <div className="stack tight">
        <div className="toolbar">
          <SearchField value={params.get("id") ?? ""} onChange={(value) => setParams({ id: value })} placeholder="Last digits of an id" />
          <label className="row small soft">
            State
            <select className="input" style={{ width: 140 }} value={states.length === 1 ? states[0] : ""} onChange={(event) => setParams({ state: event.target.value })}>
              <option value="">{states.length > 1 ? states.join(", ") : "all"}</option>
              {TASK_STATES.map((one) => <option key={one}>{one}</option>)}
            </select>
          </label>
          {FILTERS.map((name) => (
            <input key={name} className="input" style={{ width: 120 }} placeholder={name} aria-label={`Only of this ${name}`} maxLength={200} defaultValue={params.get(name) ?? ""} onKeyDown={(event) => event.key === "Enter" && setParams({ [name]: event.currentTarget.value })} onBlur={(event) => setParams({ [name]: event.currentTarget.value })} />
          ))}
          <TagField onAdd={(tag) => setParams({ tag: [...tags, tag] })} />
        </div>
        {tags.length === 0 ? null : (
          <div className="toolbar">
            {tags.map((tag) => <button key={tag} type="button" className="chip" title="Remove this tag" onClick={() => setParams({ tag: tags.filter((one) => one !== tag) })}>{visible(tag)} ×</button>)}
          </div>
        )}
        {ids.data === undefined || ending === "" ? null : (
          <Card title={`Ids that end in ${ending}`}>
            {ids.data.items.length === 0 ? <span className="faint">There is none.</span> : (
              <ul className="stack tight">
                {ids.data.items.map((one) => <li key={one.id}><Link className="link" href={`/${one.kind}s/${one.id}`}><Said>{one.name || one.id}</Said></Link> <span className="faint small">{one.kind} {one.id}</span></li>)}
              </ul>
            )}
          </Card>
        )}
      </div>
      {found.error !== null && tasks.length === 0 ? <Problem error={found.error} /> : null}
      <Card flush>
        {found.isPending ? <Loading /> : <Table rows={tasks} columns={COLUMNS} label="Tasks" href={(task) => `/tasks/${task.id}`} rowId={(task) => task.id} empty={<Empty title="No task matches" />} />}
      </Card>
      {found.hasNextPage ? <div><Button onClick={() => void found.fetchNextPage()} disabled={found.isFetchingNextPage}>Show more</Button></div> : null}
    </main>
  );
}
