/** One bot: what it is, what it runs, what happened to it, and what an admin can do with it. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link } from "wouter";
import { botEventsQuery, botQuery, setBot } from "../api/queries";
import { mayDo, useSession } from "../api/session";
import { Ago, Button, Card, Empty, Fact, Facts, Loading, PageHead, Problem, Said } from "../components/basics";
import { type Action, useAct } from "../components/dialog";
import { StateIcon } from "../components/icons";
import { moment, plural, shortId, span, visible } from "../lib/format";
import { useNow } from "../lib/now";
import { reasonText } from "../lib/states";
import { type Bot, conditionOf } from "./fleet";

const HOUR = 3_600_000;

export function BotPage({ id }: { id: string }) {
  const found = useQuery(botQuery(id));
  const events = useQuery(botEventsQuery(id));
  const now = useNow();
  useEffect(() => {
    document.title = `${visible(id)} · Taskyard`;
  }, [id]);
  const bot = found.data;
  if (bot === undefined) {
    return <main className="page" id="content">{found.error === null ? <Loading /> : <Problem error={found.error} again={() => void found.refetch()} />}</main>;
  }
  const { word, mark } = conditionOf(bot);
  return (
    <main className="page" id="content">
      <PageHead title={<Said>{bot.id}</Said>} crumbs={[{ href: "/fleet", text: "Bots and pools" }]} actions={<BotActions bot={bot} />}>
        <div className="row wrap" style={{ marginTop: 6 }}>
          <span className="row"><StateIcon state={mark} />{word}</span>
          <span className="soft small">pool <Said>{bot.pool}</Said> · {bot.busy} of {plural(bot.slots, "slot")} busy · last seen <Ago at={bot.last_seen_ms} /></span>
        </div>
      </PageHead>
      {bot.quarantined === null ? null : <div className="notice tone-warn"><strong>Quarantined</strong><Said>{bot.quarantined}</Said></div>}
      {bot.maintenance === null ? null : <div className="notice tone-warn"><strong>In maintenance</strong><Said>{bot.maintenance}</Said></div>}
      <div className="grid">
        <div className="col-7 stack">
          <Card title="Now">
            {bot.tasks.length === 0 ? <span className="faint">It runs nothing.</span> : <div className="row wrap">{bot.tasks.map((task) => <Link key={task} className="chip" href={`/tasks/${task}`}>task {shortId(task)}</Link>)}</div>}
          </Card>
          <Card title="Events" actions={events.data === undefined ? null : <span className="small faint numbers">busy {Math.round(utilisation(events.data.items, now, bot.slots) * 100)} % of the last hour</span>}>
            {events.isPending ? <Loading /> : events.data?.items.length === 0 ? <Empty title="Nothing happened yet" /> : (
              <ol className="timeline">
                {events.data?.items.map((event) => (
                  <li key={event.id}>
                    <StateIcon state={MARKS[event.kind] ?? "unscheduled"} />
                    <span className="break">
                      {reasonText(event.kind)} {event.task === null ? null : <Link className="link" href={`/tasks/${event.task}`}>task {shortId(event.task)}{event.attempt === null ? "" : `, attempt ${event.attempt}`}</Link>}
                      {event.note === "" ? null : <span className="faint"> · <Said>{event.note}</Said></span>}
                    </span>
                    <span className="small faint nowrap" title={moment(event.at_ms)}><Ago at={event.at_ms} /></span>
                  </li>
                ))}
              </ol>
            )}
          </Card>
        </div>
        <div className="col-5">
          <Card title="About">
            <Facts>
              <Fact name="Version">{visible(bot.version ?? "unknown")}{bot.outdated ? ", older than the server" : ""}</Fact>
              <Fact name="First seen">{moment(bot.first_seen_ms)}</Fact>
              <Fact name="Up for">{span(now - bot.first_seen_ms)}</Fact>
              <Fact name="Lost in a row">{bot.failures}</Fact>
              {bot.caches.length === 0 ? null : <Fact name="Caches">{visible(bot.caches.join(", "))}</Fact>}
              {Object.entries(bot.dimensions).map(([key, values]) => <Fact key={key} name={visible(key)}><Said>{values.join(", ")}</Said></Fact>)}
            </Facts>
          </Card>
        </div>
      </div>
    </main>
  );
}

const MARKS: Record<string, string> = { task_started: "running", task_ended: "successful", started: "running", ended: "successful", connected: "successful", missing: "error", error: "error", quarantined: "blocked" };

interface BotEvent {
  at_ms: number;
  kind: string;
  task: string | null;
  attempt: number | null;
}

/** Which part of the last hour the slots of a bot were in use, as far as its newest events tell. */
export function utilisation(events: BotEvent[], now: number, slots: number): number {
  const ends = new Map<string, number>();
  let busy = 0;
  // The newest come first: an end is seen before its start.
  for (const event of events) {
    const name = `${event.task}-${event.attempt}`;
    if (event.kind.includes("ended")) {
      ends.set(name, event.at_ms);
    } else if (event.kind.includes("started")) {
      const from = Math.max(event.at_ms, now - HOUR);
      busy += Math.max(0, (ends.get(name) ?? now) - from);
    }
  }
  return Math.min(1, busy / (HOUR * Math.max(1, slots)));
}

function BotActions({ bot }: { bot: Bot }) {
  const act = useAct();
  const queries = useQueryClient();
  const { session } = useSession();
  if (!mayDo(session.scopes, "admin", bot.pool)) {
    return null;
  }
  const name = visible(bot.id);
  const change = (body: (comment: string) => Record<string, unknown>, done: string): Action["run"] => async (comment) => {
    await setBot(bot.id, body(comment));
    await queries.invalidateQueries({ queryKey: ["fleet"] });
    return done;
  };
  return (
    <>
      {bot.quarantined === null ? (
        <Button onClick={() => act({ title: `Quarantine ${name}?`, effect: <p>It gets no new tasks until the quarantine is lifted. What it runs goes on.</p>, verb: "Quarantine", comment: "Why", run: change((why) => ({ quarantined: why || "by hand" }), `${name} is quarantined.`) })}>Quarantine</Button>
      ) : (
        <Button onClick={() => act({ title: `Lift the quarantine of ${name}?`, effect: <p>It gets tasks again.</p>, verb: "Lift it", run: change(() => ({ quarantined: null }), `${name} gets tasks again.`) })}>Lift quarantine</Button>
      )}
      {bot.draining ? (
        <Button onClick={() => act({ title: `Let ${name} work again?`, effect: <p>It gets new tasks again.</p>, verb: "Stop draining", run: change(() => ({ draining: false }), `${name} gets tasks again.`) })}>Stop draining</Button>
      ) : (
        <Button onClick={() => act({ title: `Drain ${name}?`, effect: <p>It finishes what it runs ({plural(bot.busy, "task")}) and gets nothing new.</p>, verb: "Drain", run: change(() => ({ draining: true }), `${name} is draining.`) })}>Drain</Button>
      )}
      <Button kind="danger" disabled={bot.ending || bot.terminated} onClick={() => act({ title: `Terminate ${name}?`, effect: <p>Its process finishes what it runs ({plural(bot.busy, "task")}) and then ends. Somebody has to start it again on its machine.</p>, verb: "Terminate", destroys: true, run: change(() => ({ terminated: true }), `${name} will end.`) })}>Terminate</Button>
    </>
  );
}
