/** Mutexes with their holders and who waits, and named limits with how much of each is in use. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { limitsQuery, mutexesQuery } from "../api/queries";
import { Ago, Card, Empty, Loading, PageHead, Problem, Said, SearchField, State } from "../components/basics";
import { number, span, visible } from "../lib/format";
import { useParams } from "../lib/params";

export function LimitsPage() {
  const limits = useQuery(limitsQuery);
  const mutexes = useQuery(mutexesQuery);
  const [params, setParams] = useParams();
  const text = (params.get("key") ?? "").toLowerCase();
  const shown = (mutexes.data?.items ?? []).filter((one) => one.key.toLowerCase().includes(text));
  return (
    <main className="page" id="content">
      <PageHead title="Mutexes and limits"><p className="soft">What keeps tasks from running together: who holds it, and who waits.</p></PageHead>
      {limits.error === null ? null : <Problem error={limits.error} />}
      {(limits.data?.items.length ?? 0) === 0 ? null : (
        <Card title="Limits">
          <ul className="stack tight">
            {limits.data?.items.map((one) => (
              <li key={one.name} className="stack tight" style={{ gap: 3 }}>
                <div className="row between"><strong><Said>{one.name}</Said></strong><span className="small soft numbers">{number(one.used)} of {number(one.total)} in use</span></div>
                <div className="meter" role="img" aria-label={`${one.used} of ${one.total}`}><i style={{ width: `${one.total === 0 ? 0 : Math.min(100, (one.used / one.total) * 100)}%` }} /></div>
              </li>
            ))}
          </ul>
        </Card>
      )}
      <div className="toolbar"><SearchField value={params.get("key") ?? ""} onChange={(value) => setParams({ key: value })} placeholder="Key of a mutex" /></div>
      {mutexes.error === null ? null : <Problem error={mutexes.error} />}
      {mutexes.isPending ? <Loading /> : shown.length === 0 ? <Card><Empty title="No mutex is in use" /></Card> : shown.map((one) => <Mutex key={one.key} mutex={one} />)}
    </main>
  );
}

function Mutex({ mutex }: { mutex: Schemas["MutexView"] }) {
  return (
    <Card title={<code>{visible(mutex.key)}</code>} actions={<span className="small faint">{mutex.stake_after_ms === null ? "younger tasks may always pass" : `after ${span(mutex.stake_after_ms)}, no younger task passes`}</span>}>
      <div className="grid">
        <div className="col-6"><MutexTasks title="Held by" tasks={mutex.holders} count={mutex.holder_count} /></div>
        <div className="col-6"><MutexTasks title="Waiting" tasks={mutex.waiting} count={mutex.waiting_count} /></div>
      </div>
    </Card>
  );
}

function MutexTasks({ title, tasks, count }: { title: string; tasks: Schemas["MutexTask"][]; count: number }) {
  return (
    <div className="stack tight">
      <h3>{title} <span className="count">{number(count)}</span></h3>
      {tasks.length === 0 ? <span className="faint small">nobody</span> : (
        <ul className="stack tight">
          {tasks.map((one, place) => (
            <li key={one.task ?? place} className="row between">
              <span className="row grow">
                {one.task === null ? <span className="soft">a task that you may not see</span> : <Link className="link ellipsis" href={`/tasks/${one.task}`}><Said>{one.label}</Said></Link>}
                <State state={one.state} />
                {one.party === null ? null : <span className="chip">{visible(one.party)}</span>}
              </span>
              {one.since_ms === null ? null : <span className="small faint"><Ago at={one.since_ms} /></span>}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
