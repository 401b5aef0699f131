/** Home: what runs, what is held and why, what failed lately, the use of each pool, and how all that goes over time. */

import { useInfiniteQuery, useQueries, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { approvalsQuery, botsQuery, graphsQuery, graphWhyQuery, poolsQuery, statsQuery, taskCountQuery, tasksQuery } from "../api/queries";
import { Ago, Card, Empty, Loading, PageHead, Problem, Said, State, Tile } from "../components/basics";
import { Chart } from "../components/chart";
import { StateIcon } from "../components/icons";
import { type Columns, Table } from "../components/table";
import { number, plural, shortId, span, visible } from "../lib/format";
import { reasonText } from "../lib/states";
import { GRAPH_COLUMNS } from "./graphs";

const SPANS = { "1 h": 3_600_000, "6 h": 21_600_000, "1 d": 86_400_000, "7 d": 604_800_000 } as const;
const MOVING = ["running", "stopping", "waiting", "pending", "blocked"];
const WRONG = ["failed", "error"];
/** Of how many graphs is it asked what holds them up. */
const HELD_GRAPHS = 6;

export function OverviewPage() {
  const counts = useQuery(taskCountQuery({ state: MOVING }));
  const approvals = useQuery(approvalsQuery);
  const now = counts.data?.states ?? {};
  const count = (state: string) => (counts.data === undefined ? "–" : number(now[state] ?? 0));
  return (
    <main className="page" id="content">
      <PageHead title="Overview" />
      {counts.error === null ? null : <Problem error={counts.error} />}
      <div className="grid">
        <div className="col-3"><Tile label="Running" icon="running" value={count("running")} href="/tasks?state=running" /></div>
        <div className="col-3"><Tile label="Waiting for a bot" icon="waiting" value={count("waiting")} href="/tasks?state=waiting" /></div>
        <div className="col-3"><Tile label="Held" icon="pending" value={count("pending")} href="/tasks?state=pending" note={(now.blocked ?? 0) > 0 ? `${number(now.blocked ?? 0)} more blocked by failures` : undefined} /></div>
        <div className="col-3">
          <Tile label="Approvals" icon="blocked" value={approvals.data === undefined ? "–" : `${number(approvals.data.items.length)}${approvals.data.next === null ? "" : "+"}`} note={approvals.data?.items[0] === undefined ? "nobody is asked" : "wait for a person"} />
        </div>
      </div>
      <OverTime />
      <div className="grid">
        <div className="col-7 stack">
          <RunningGraphs />
          <FailedLately />
        </div>
        <div className="col-5 stack">
          <Approvals />
          <HeldUp />
          <PoolUse />
        </div>
      </div>
    </main>
  );
}

function OverTime() {
  const [name, setName] = useState<keyof typeof SPANS>("1 h");
  const found = useQuery(statsQuery(SPANS[name]));
  const sums = useMemo(() => {
    const data = found.data;
    if (data === undefined) {
      return null;
    }
    const { at_ms: at, pools } = data;
    const add = (pick: (pool: (typeof pools)[number]) => number[]) => at.map((_, place) => pools.reduce((sum, pool) => sum + (pick(pool)[place] ?? 0), 0));
    return {
      at: data.at_ms,
      good: add((pool) => pool.ended.successful ?? []),
      bad: add((pool) => (pool.ended.failed ?? []).map((failed, place) => failed + (pool.ended.error?.[place] ?? 0))),
      other: add((pool) => (pool.ended.canceled ?? []).map((canceled, place) => canceled + (pool.ended.skipped?.[place] ?? 0))),
      oldest: data.at_ms.map((_, place) => Math.max(0, ...data.pools.map((pool) => pool.oldest_ms[place] ?? 0))),
      submitted: add((pool) => pool.submitted),
    };
  }, [found.data]);
  const spans = (
    <div className="segments" role="group" aria-label="How far back">
      {(Object.keys(SPANS) as (keyof typeof SPANS)[]).map((one) => (
        <button key={one} type="button" aria-pressed={one === name} onClick={() => setName(one)}>
          {one}
        </button>
      ))}
    </div>
  );
  const step = found.data === undefined ? "" : ` per ${span(found.data.step_ms)}`;
  return (
    <div className="grid">
      <div className="col-8">
        <Card title={`Tasks that ended${step}`} actions={spans}>
          {sums === null ? <Loading /> : (
            <Chart
              at={sums.at}
              kind="bars"
              label="Tasks that ended"
              least={10}
              write={(value) => number(Math.round(value))}
              series={[
                { name: "successful", tone: "good", values: sums.good },
                { name: "failed", tone: "bad", values: sums.bad },
                { name: "canceled or skipped", tone: "quiet", values: sums.other },
              ]}
            />
          )}
        </Card>
      </div>
      <div className="col-4">
        <Card title="Age of the oldest waiting task">
          {sums === null ? <Loading /> : <Chart at={sums.at} kind="curves" label="Queue age" write={span} least={10_000} series={[{ name: "oldest", tone: "wait", values: sums.oldest }]} />}
        </Card>
      </div>
    </div>
  );
}

function RunningGraphs() {
  const found = useInfiniteQuery(graphsQuery({ state: "running" as never }, 8));
  const graphs = found.data?.pages[0]?.items ?? [];
  return (
    <Card title="Running graphs" flush actions={<Link className="link small" href="/graphs?state=running">all</Link>}>
      {found.isPending ? <Loading /> : <Table rows={graphs} columns={GRAPH_COLUMNS.filter((one) => one.id !== "state" && one.id !== "took")} label="Running graphs" href={(graph) => `/graphs/${graph.id}`} rowId={(graph) => graph.id} empty={<Empty title="Nothing runs" />} />}
    </Card>
  );
}

type FailedTask = NonNullable<ReturnType<typeof useFailed>["data"]>["pages"][number]["items"][number];

function useFailed() {
  return useInfiniteQuery(tasksQuery({ state: WRONG }, 8));
}

const FAILED_COLUMNS: Columns<FailedTask> = [
  { id: "label", header: "Task", meta: { className: "title" }, accessorFn: (task) => task.label, cell: ({ row: { original } }) => <Link href={`/tasks/${original.id}`} className="ellipsis" title={visible(original.label)}><Said>{original.label}</Said></Link> },
  { id: "state", header: "State", accessorFn: (task) => task.state, cell: ({ row: { original } }) => <State state={original.state} detail={original.exit_code !== null && original.state === "failed" ? `exit code ${original.exit_code}` : reasonText(original.reason)} /> },
  { id: "bot", header: "Bot", meta: { className: "wide" }, accessorFn: (task) => task.bot ?? "–", cell: ({ getValue }) => visible(getValue<string>()) },
  { id: "when", header: "When", accessorFn: (task) => task.moved_ms, cell: ({ row: { original } }) => <Ago at={original.moved_ms} /> },
];

function FailedLately() {
  const found = useFailed();
  return (
    <Card title="Failed lately" flush actions={<Link className="link small" href="/tasks?state=failed&state=error">all</Link>}>
      {found.isPending ? <Loading /> : <Table rows={found.data?.pages[0]?.items ?? []} columns={FAILED_COLUMNS} label="Failed tasks" href={(task) => `/tasks/${task.id}`} rowId={(task) => task.id} empty={<Empty title="Nothing failed" />} />}
    </Card>
  );
}

function Approvals() {
  const found = useQuery(approvalsQuery);
  const items = found.data?.items ?? [];
  return items.length === 0 ? null : (
    <Card title="Waiting for a person">
      <ul className="stack tight">
        {items.slice(0, 5).map((one) => (
          <li key={one.task} className="row between">
            <span className="grow break">
              <Link className="link" href={`/tasks/${one.task}`}>
                <Said>{one.label}</Said>
              </Link>
              <span className="soft"> · <Said>{one.message}</Said></span>
            </span>
            <span className="small faint"><Ago at={one.since_ms} /></span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** Held tasks grouped by what holds them: the root causes of the newest graphs that wait for something. */
function HeldUp() {
  const running = useInfiniteQuery(graphsQuery({ state: "running" as never }, 30));
  const blocked = useInfiniteQuery(graphsQuery({ state: "blocked" as never }, 10));
  const graphs = [...(running.data?.pages[0]?.items ?? []), ...(blocked.data?.pages[0]?.items ?? [])]
    .filter((graph) => (graph.counts.pending ?? 0) + (graph.counts.waiting ?? 0) + (graph.counts.blocked ?? 0) > 0)
    .slice(0, HELD_GRAPHS);
  const whys = useQueries({ queries: graphs.map((graph) => graphWhyQuery(graph.id)) });
  const groups = new Map<string, { state: string; reason: string; count: number; sentence: string; graphs: Map<string, string> }>();
  for (const why of whys) {
    for (const group of why.data?.groups ?? []) {
      if (group.state === "running") {
        continue;
      }
      const name = `${group.state} ${group.reason} ${group.example.name ?? ""}`;
      const known = groups.get(name) ?? { state: group.state, reason: group.reason, count: 0, sentence: group.sentence, graphs: new Map() };
      known.count += group.count;
      known.graphs.set(why.data?.graph_id ?? "", why.data?.name ?? "");
      groups.set(name, known);
    }
  }
  return (
    <Card title="What is held, and why">
      {groups.size === 0 ? (
        <span className="faint">Nothing is held.</span>
      ) : (
        <ul className="stack tight">
          {[...groups].map(([name, group]) => (
            <li key={name} className="notice">
              <div className="row between">
                <State state={group.state} detail={reasonText(group.reason)} />
                <span className="count">{number(group.count)}</span>
              </div>
              <span className="small break"><Said>{group.sentence}</Said></span>
              <span className="row wrap">
                {[...group.graphs].map(([id, title]) => (
                  <Link key={id} className="chip" href={`/graphs/${id}/why`}>{visible(title || shortId(id))}</Link>
                ))}
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function PoolUse() {
  const pools = useQuery(poolsQuery);
  const bots = useInfiniteQuery(botsQuery({}));
  const all = bots.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Card title="Pools" actions={<Link className="link small" href="/fleet">fleet</Link>}>
      {pools.isPending ? <Loading /> : (
        <ul className="stack tight">
          {pools.data?.items.map((pool) => {
            const mine = all.filter((bot) => bot.pool === pool.name && bot.alive);
            const busy = mine.reduce((sum, bot) => sum + bot.busy, 0);
            return (
              <li key={pool.name} className="stack tight" style={{ gap: 3 }}>
                <div className="row between">
                  <strong><Said>{pool.name}</Said></strong>
                  <span className="small soft numbers">{busy} of {plural(pool.slots, "slot")} · {plural(pool.bots, "bot")}</span>
                </div>
                <div className="meter" role="img" aria-label={`${busy} of ${pool.slots} slots are busy`}>
                  <i style={{ width: `${pool.slots === 0 ? 0 : Math.min(100, (busy / pool.slots) * 100)}%` }} />
                </div>
              </li>
            );
          })}
        </ul>
      )}
      {all.some((bot) => !bot.alive) ? (
        <p className="small soft row" style={{ marginTop: 10 }}><StateIcon state="error" size={13} />{plural(all.filter((bot) => !bot.alive).length, "bot")} not seen lately</p>
      ) : null}
    </Card>
  );
}
