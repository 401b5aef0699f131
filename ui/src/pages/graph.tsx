/** One graph: as a drawing, a table or a timeline, with why it does not go on, and what can be done with it. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useMemo } from "react";
import { Link } from "wouter";
import { cancelGraph, graphQuery, graphTasksQuery, graphWhyQuery, pathQuery, rerunGraph } from "../api/queries";
import { useSession } from "../api/session";
import { Ago, Button, Card, CountBar, Counts, Empty, Loading, PageHead, Problem, Said, SearchField, State, Took } from "../components/basics";
import { useAct } from "../components/dialog";
import { type Columns, Table } from "../components/table";
import { GraphDrawing } from "../graph/drawing";
import { TaskPanel } from "../graph/panel";
import { plural, shortId, span, visible } from "../lib/format";
import { useDebounced, useParams } from "../lib/params";
import { type Graph, hasEnded, reasonText, type Task, TASK_STATES } from "../lib/states";

const Timeline = lazy(() => import("../graph/timeline").then((found) => ({ default: found.Timeline })));

const VIEWS = { drawing: "Drawing", table: "Table", timeline: "Timeline", why: "Why" } as const;

export function GraphPage({ id, view }: { id: string; view: string }) {
  const found = useQuery(graphQuery(id));
  const [params, setParams] = useParams();
  const chosen = params.get("task");
  const graph = found.data;
  useEffect(() => {
    document.title = `${graph === undefined || graph.name === "" ? shortId(id) : visible(graph.name)} · Taskyard`;
  }, [graph, id]);
  if (graph === undefined) {
    return (
      <main className="page" id="content">
        {found.error === null ? <Loading /> : <Problem error={found.error} again={() => void found.refetch()} />}
      </main>
    );
  }
  const choose = (task: string | null) => setParams({ task });
  return (
    <main className="page full" id="content">
      <GraphHead graph={graph} />
      <nav className="tabs" aria-label="Views">
        {Object.entries(VIEWS).map(([name, title]) => (
          <Link key={name} href={`/graphs/${id}${name === "drawing" ? "" : `/${name}`}`} aria-current={view === name ? "page" : undefined}>
            {title}
          </Link>
        ))}
      </nav>
      <div className={chosen === null ? "" : "with-panel"}>
        <div className="grow">
          {view === "drawing" ? <GraphDrawing id={id} chosen={chosen} onChoose={choose} /> : null}
          {view === "table" ? <TaskTable id={id} chosen={chosen} onChoose={choose} /> : null}
          {view === "timeline" ? (
            <Suspense fallback={<Loading />}>
              <Timeline graph={graph} onChoose={choose} />
            </Suspense>
          ) : null}
          {view === "why" ? <GraphWhy id={id} /> : null}
        </div>
        {chosen === null ? null : <TaskPanel id={chosen} onClose={() => choose(null)} />}
      </div>
    </main>
  );
}

function GraphHead({ graph }: { graph: Graph }) {
  const total = Object.values(graph.counts).reduce((sum, one) => sum + one, 0);
  const crumbs = [{ href: "/graphs", text: "Graphs" }];
  return (
    <>
      <PageHead
        title={graph.name === "" ? `Graph ${shortId(graph.id)}` : <Said>{graph.name}</Said>}
        crumbs={graph.parent === null ? crumbs : [...crumbs, { href: `/graphs/${graph.parent.graph}`, text: "outer graph" }]}
        actions={<GraphActions graph={graph} />}
      >
        <div className="row wrap" style={{ marginTop: 6 }}>
          <State state={graph.state} badge />
          <span className="soft small">
            {plural(total, "task")} · created <Ago at={graph.created_ms} /> · {graph.settled ? "took" : "running for"}{" "}
            <Took from={graph.created_ms} to={graph.settled ? graph.moved_ms : null} />
          </span>
          <code className="faint">{graph.id}</code>
          {Object.entries(graph.tags).map(([name, value]) => (
            <Link key={name} href={`/graphs?tag=${encodeURIComponent(`${name}:${value}`)}`} className="chip">
              {visible(`${name}:${value}`)}
            </Link>
          ))}
        </div>
        {graph.description === "" ? null : <p className="soft break"><Said>{graph.description}</Said></p>}
        {graph.rerun_of === null ? null : (
          <p className="soft small">
            Runs again what was <Link className="link" href={`/graphs/${graph.rerun_of}`}>graph {shortId(graph.rerun_of)}</Link>; {plural(graph.reused, "task")} reused.
          </p>
        )}
        {graph.launch === null ? null : (
          <p className="soft small">
            Launched from{" "}
            <Link className="link" href={`/catalogue/${graph.launch.kind}/${encodeURIComponent(graph.launch.name)}`}>
              {visible(graph.launch.name)}
            </Link>{" "}
            (version {graph.launch.version}).
          </p>
        )}
      </PageHead>
      {graph.deadlock === null ? null : (
        <div className="notice tone-bad" role="alert">
          <strong>Workflows wait for each other</strong>
          <Said>{graph.deadlock.sentence}</Said>
        </div>
      )}
      <div className="stack tight">
        <CountBar counts={graph.counts} />
        <Counts counts={graph.counts} />
      </div>
    </>
  );
}

function GraphActions({ graph }: { graph: Graph }) {
  const act = useAct();
  const { session } = useSession();
  const counts = graph.counts;
  const left = Object.entries(counts).reduce((sum, [state, count]) => sum + (hasEnded(state) ? 0 : count), 0);
  const gone = (counts.failed ?? 0) + (counts.error ?? 0) + (counts.canceled ?? 0);
  if (session.scopes.length === 0) {
    return null;
  }
  return (
    <>
      <Button
        icon="again"
        disabled={gone === 0}
        onClick={() =>
          act({
            title: "Rerun everything that failed?",
            effect: <p>{plural(gone, "task")} that failed, ended in an error or were canceled run again, and {plural(counts.blocked ?? 0, "task")} they blocked can go on. What succeeded stays as it is.</p>,
            verb: "Rerun",
            run: async () => {
              const done = await rerunGraph(graph.id, { failed: true });
              return done.echo ? "There was nothing to rerun." : `${plural(done.moved, "task")} will run again.`;
            },
          })
        }
      >
        Rerun failed
      </Button>
      <Button
        icon="stop"
        kind="danger"
        disabled={left === 0}
        onClick={() =>
          act({
            title: "Cancel this graph?",
            effect: (
              <p>
                {plural(left, "task")} that {left === 1 ? "has" : "have"} not ended will be canceled; {plural(counts.running ?? 0, "running task")} will be stopped. Clean-up tasks still run.
              </p>
            ),
            verb: "Cancel the graph",
            destroys: true,
            run: async () => {
              const done = await cancelGraph(graph.id);
              return done.echo ? "It was canceled before." : `${plural(done.moved, "task")} canceled${done.promised ? "; the others follow" : ""}.`;
            },
          })
        }
      >
        Cancel
      </Button>
    </>
  );
}

function taskColumns(critical: Set<string>): Columns<Task> {
  return [
    {
      id: "label",
      header: "Task",
      accessorFn: (task) => task.label,
      meta: { className: "title" },
      cell: ({ row: { original } }) => (
        <span className="row">
          <Link href={`/tasks/${original.id}`} className="ellipsis" title={visible(original.label)}>
            <Said>{original.label}</Said>
          </Link>
          {critical.has(original.id) ? <span className="chip">critical</span> : null}
        </span>
      ),
    },
    {
      id: "state",
      header: "State",
      accessorFn: (task) => TASK_STATES.indexOf(task.state as never),
      cell: ({ row: { original } }) => <State state={original.state} detail={original.reason === "" ? "" : reasonText(original.reason)} />,
    },
    { id: "bot", header: "Bot", meta: { className: "wide" }, accessorFn: (task) => task.bot ?? "", cell: ({ row: { original } }) => original.bot === null ? <span className="faint">–</span> : <Link className="link" href={`/fleet/bots/${encodeURIComponent(original.bot)}`}>{visible(original.bot)}</Link> },
    { id: "attempt", header: "Attempt", meta: { className: "wide right" }, accessorFn: (task) => task.attempt },
    { id: "took", header: "Took", meta: { className: "right" }, accessorFn: (task) => task.duration_ms ?? -1, cell: ({ row: { original } }) => (original.started_ms === null ? <span className="faint">–</span> : <Took from={original.started_ms} to={original.ended_ms} />) },
  ];
}

function TaskTable({ id, chosen, onChoose }: { id: string; chosen: string | null; onChoose: (task: string) => void }) {
  const [params, setParams] = useParams();
  const state = params.get("state") ?? "";
  const label = useDebounced(params.get("label") ?? "");
  const found = useInfiniteQuery(graphTasksQuery(id, { ...(state === "" ? {} : { state: state as never }), ...(label === "" ? {} : { label }) }));
  const path = useQuery(pathQuery(id));
  const columns = useMemo(() => taskColumns(new Set(path.data?.path.map((one) => one.task))), [path.data]);
  const tasks = found.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className="stack">
      <div className="toolbar">
        <SearchField value={params.get("label") ?? ""} onChange={(value) => setParams({ label: value })} placeholder="Label of a task" />
        <label className="row small soft">
          State
          <select className="input" style={{ width: 150 }} value={state} onChange={(event) => setParams({ state: event.target.value })}>
            <option value="">all</option>
            {TASK_STATES.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
      </div>
      {found.error !== null && tasks.length === 0 ? <Problem error={found.error} /> : null}
      <Card flush>
        {found.isPending ? (
          <Loading />
        ) : (
          <Table rows={tasks} columns={columns} label="Tasks of the graph" rowId={(task) => task.id} onOpen={(task) => onChoose(task.id)} chosen={(task) => task.id === chosen} empty={<Empty title="No task matches" />} />
        )}
      </Card>
      {found.hasNextPage ? (
        <div>
          <Button onClick={() => void found.fetchNextPage()} disabled={found.isFetchingNextPage}>
            Show more
          </Button>
        </div>
      ) : null}
    </div>
  );
}

/** What holds a graph up: its root causes, the most pressing first; and the chain of tasks that determines its end. */
function GraphWhy({ id }: { id: string }) {
  const why = useQuery(graphWhyQuery(id));
  const path = useQuery(pathQuery(id));
  return (
    <div className="grid">
      <div className="col-7 stack">
        {why.error === null ? null : <Problem error={why.error} />}
        {why.data === undefined ? null : (
          <Card title="What holds it up">
            <div className="stack">
              <p>
                <Said>{why.data.sentence}</Said>
              </p>
              {why.data.groups.map((group, place) => (
                <div key={place} className="notice">
                  <div className="row wrap between">
                    <State state={group.state} detail={group.reason === "" ? "" : reasonText(group.reason)} />
                    <span className="count">{group.count}</span>
                  </div>
                  <Said>{group.sentence}</Said>
                  <div className="row wrap">
                    {Object.entries(group.tasks).map(([label, task]) => (
                      <Link key={task} href={`/tasks/${task}`} className="chip">
                        {visible(label)}
                      </Link>
                    ))}
                  </div>
                </div>
              ))}
            </div>
          </Card>
        )}
      </div>
      <div className="col-5">
        {path.data === undefined ? null : (
          <Card title="Critical path">
            <p className="soft small">
              {path.data.settled ? "These tasks determined how long it took." : "These tasks determine when it ends."}
              {path.data.expected_end_ms === null ? "" : ` Its end is expected ${span(path.data.expected_end_ms - path.data.at_ms)} from now.`}
            </p>
            <ol className="timeline">
              {path.data.path.map((one) => (
                <li key={one.task}>
                  <State state={one.state} />
                  <Link href={`/tasks/${one.task}`} className="link ellipsis" style={{ marginLeft: 76 }}>
                    <Said>{one.label}</Said>
                  </Link>
                  <span className="numbers small soft">{one.ran_ms !== null ? span(one.ran_ms) : one.expected_ms !== null ? `≈ ${span(one.expected_ms)}` : ""}</span>
                </li>
              ))}
            </ol>
          </Card>
        )}
      </div>
    </div>
  );
}
