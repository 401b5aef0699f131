/** Bots and pools: who is there, what they have and run, and how much each pool can take. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { botsQuery, demandQuery, dimensionsQuery, poolsQuery } from "../api/queries";
import { Ago, Button, Card, Empty, Loading, PageHead, Problem, Said, SearchField } from "../components/basics";
import { StateIcon } from "../components/icons";
import { type Columns, Table } from "../components/table";
import { dimensions, number, plural, visible } from "../lib/format";
import { useParams } from "../lib/params";
import { TagField } from "./graphs";

export type Bot = Schemas["BotView"];

/** What a bot is like, in one word, and the state whose mark says the same. */
export function conditionOf(bot: Bot): { word: string; mark: string } {
  if (bot.terminated) {
    return { word: "gone", mark: "skipped" };
  }
  if (!bot.alive) {
    return { word: "dead", mark: "error" };
  }
  if (bot.quarantined !== null) {
    return { word: "quarantined", mark: "blocked" };
  }
  if (bot.maintenance !== null) {
    return { word: "maintenance", mark: "stopping" };
  }
  if (bot.draining || bot.ending) {
    return { word: bot.ending ? "ending" : "draining", mark: "canceled" };
  }
  return bot.busy > 0 ? { word: "busy", mark: "running" } : { word: "idle", mark: "successful" };
}

const COLUMNS: Columns<Bot> = [
  { id: "name", header: "Bot", meta: { className: "title" }, accessorFn: (bot) => bot.id, cell: ({ row: { original } }) => <Link href={`/fleet/bots/${encodeURIComponent(original.id)}`} className="ellipsis"><Said>{original.id}</Said></Link> },
  { id: "condition", header: "Condition", accessorFn: (bot) => conditionOf(bot).word, cell: ({ row: { original } }) => {
    const { word, mark } = conditionOf(original);
    return <span className="row"><StateIcon state={mark} />{word}<span className="faint small ellipsis">{visible(original.quarantined ?? original.maintenance ?? "")}</span></span>;
  } },
  { id: "pool", header: "Pool", meta: { className: "wide" }, accessorFn: (bot) => bot.pool, cell: ({ getValue }) => visible(getValue<string>()) },
  { id: "slots", header: "In use", accessorFn: (bot) => bot.busy / Math.max(1, bot.slots), cell: ({ row: { original } }) => (
    <span className="row" style={{ width: 120 }}>
      <span className="meter grow" role="img" aria-label={`${original.busy} of ${original.slots} slots`}><i style={{ width: `${Math.min(100, (original.busy / Math.max(1, original.slots)) * 100)}%` }} /></span>
      <span className="small numbers">{original.busy}/{original.slots}</span>
    </span>
  ) },
  { id: "tasks", header: "Runs", meta: { className: "wide" }, enableSorting: false, cell: ({ row: { original } }) => original.tasks.slice(0, 2).map((task) => <Link key={task} className="chip" href={`/tasks/${task}`}>{task.slice(-6)}</Link>) },
  { id: "dimensions", header: "Dimensions", meta: { className: "wide" }, enableSorting: false, cell: ({ row: { original } }) => <span className="small soft ellipsis" style={{ display: "block", maxWidth: 320 }} title={visible(dimensions(original.dimensions))}>{visible(dimensions(Object.fromEntries(Object.entries(original.dimensions).filter(([key]) => key !== "id" && key !== "pool"))))}</span> },
  { id: "seen", header: "Last seen", accessorFn: (bot) => bot.last_seen_ms, cell: ({ row: { original } }) => <Ago at={original.last_seen_ms} /> },
];

const CONDITIONS = ["busy", "idle", "quarantined", "maintenance", "dead"];

export function FleetPage() {
  const [params, setParams] = useParams();
  const wanted = params.getAll("dimension");
  const state = params.get("state") ?? "";
  const text = (params.get("name") ?? "").toLowerCase();
  const found = useInfiniteQuery(botsQuery({ ...(wanted.length === 0 ? {} : { dimension: wanted }), ...(params.get("pool") === null ? {} : { pool: params.get("pool") ?? "" }) }));
  const known = useQuery(dimensionsQuery);
  const bots = (found.data?.pages.flatMap((page) => page.items) ?? []).filter((bot) => bot.id.toLowerCase().includes(text) && (state === "" || conditionOf(bot).word === state));
  return (
    <main className="page" id="content">
      <PageHead title="Bots and pools" />
      <Pools />
      <div className="stack tight">
        <div className="toolbar">
          <SearchField value={params.get("name") ?? ""} onChange={(value) => setParams({ name: value })} placeholder="Name of a bot" />
          <div className="segments" role="group" aria-label="Condition">
            {["", ...CONDITIONS].map((one) => <button key={one} type="button" aria-pressed={state === one} onClick={() => setParams({ state: one })}>{one === "" ? "all" : one}</button>)}
          </div>
          <TagField placeholder="dimension key:value" onAdd={(one) => setParams({ dimension: [...wanted, one] })} />
          <label className="row small soft">
            Has
            <select className="input" style={{ width: 190 }} value="" onChange={(event) => setParams({ dimension: [...wanted, event.target.value] })}>
              <option value="">any dimension</option>
              {Object.entries(known.data?.dimensions ?? {}).filter(([key]) => key !== "id").slice(0, 40).map(([key, values]) => (
                <optgroup key={key} label={visible(key)}>
                  {values.slice(0, 40).map((value) => <option key={value} value={`${key}:${value}`}>{visible(`${key}:${value}`)}</option>)}
                </optgroup>
              ))}
            </select>
          </label>
        </div>
        {wanted.length === 0 ? null : (
          <div className="toolbar">{wanted.map((one) => <button key={one} type="button" className="chip" title="Remove this dimension" onClick={() => setParams({ dimension: wanted.filter((other) => other !== one) })}>{visible(one)} ×</button>)}</div>
        )}
      </div>
      {found.error !== null && bots.length === 0 ? <Problem error={found.error} /> : null}
      <Card flush>
        {found.isPending ? <Loading /> : <Table rows={bots} columns={COLUMNS} label="Bots" href={(bot) => `/fleet/bots/${encodeURIComponent(bot.id)}`} rowId={(bot) => bot.id} empty={<Empty title="No bot matches" />} />}
      </Card>
      {found.hasNextPage ? <div><Button onClick={() => void found.fetchNextPage()}>Show more</Button></div> : null}
    </main>
  );
}

function Pools() {
  const found = useQuery(poolsQuery);
  if (found.data === undefined) {
    return found.error === null ? <Loading rows={2} /> : <Problem error={found.error} />;
  }
  return (
    <div className="grid">
      {found.data.items.map((pool) => (
        <div key={pool.name} className="col-4">
          <Card title={<Said>{pool.name}</Said>} actions={<span className="small faint">{pool.total === null ? "no limit" : `capacity ${number(pool.total)}${pool.from_bots ? " from bots" : ""}`}</span>}>
            <PoolDemand name={pool.name} bots={pool.bots} slots={pool.slots} />
          </Card>
        </div>
      ))}
    </div>
  );
}

function PoolDemand({ name, bots, slots }: { name: string; bots: number; slots: number }) {
  const found = useQuery(demandQuery(name));
  const running = found.data?.running ?? 0;
  return (
    <div className="stack tight">
      <div className="row between small soft">
        <span>{plural(bots, "bot")} · {plural(slots, "slot")}</span>
        <span className="numbers">{number(running)} running</span>
      </div>
      <div className="meter" role="img" aria-label={`${running} of ${slots} slots`}><i style={{ width: `${slots === 0 ? 0 : Math.min(100, (running / slots) * 100)}%` }} /></div>
      <div className="row between small">
        <span className="row"><StateIcon state="waiting" size={13} />{number(found.data?.waiting ?? 0)} in line</span>
        {(found.data?.no_bot ?? 0) > 0 ? <span className="row"><StateIcon state="error" size={13} />{number(found.data?.no_bot ?? 0)} without a bot</span> : null}
      </div>
      {found.data?.items.filter((item) => item.waiting + item.no_bot > 0).slice(0, 3).map((item, place) => (
        <div key={place} className="small faint ellipsis" title={visible(dimensions(item.dimensions))}>{number(item.waiting + item.no_bot)} want {visible(dimensions(item.dimensions))}</div>
      ))}
    </div>
  );
}
