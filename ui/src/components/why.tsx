/** Why a task does not run: the sentence, who holds it, the bot that comes nearest, and the root causes. */

import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { ago, moment, span, visible } from "../lib/format";
import { useNow } from "../lib/now";
import { Card, Fact, Facts, Said, State } from "./basics";

type Reasoned = Schemas["Reasoned"];

export function WhyCard({ why }: { why: Schemas["WhyView"] }) {
  const causes = why.causes.filter((cause) => cause.root);
  return (
    <Card title="Why it is not running">
      <div className="stack">
        <p className="break">
          <Said>{why.sentence}</Said>
        </p>
        <Details why={why.why} />
        {why.deadlock === null ? null : (
          <div className="notice tone-bad">
            <Said>{why.deadlock.sentence}</Said>
          </div>
        )}
        {causes.length === 0 ? null : (
          <div className="stack tight">
            <h3>Root causes</h3>
            {causes.map((cause) => (
              <div key={cause.why.task} className="notice">
                <div className="row wrap between">
                  <Link className="link" href={`/tasks/${cause.why.task}`}>
                    <Said>{cause.why.label}</Said>
                  </Link>
                  <State state={cause.why.state} />
                </div>
                <span className="small">
                  <Said>{cause.why.sentence}</Said>
                </span>
              </div>
            ))}
          </div>
        )}
      </div>
    </Card>
  );
}

function Details({ why }: { why: Reasoned }) {
  const now = useNow();
  const nearest = why.bots?.nearest ?? null;
  return (
    <Facts>
      {why.guard === null ? null : <Fact name="Held by">{why.guard}</Fact>}
      {why.name === null ? null : (
        <Fact name="Of">
          <Said>{why.name}</Said>
        </Fact>
      )}
      {why.other === null ? null : (
        <Fact name="Holder">
          {why.other.task === null ? "a task that you may not see" : (
            <Link className="link" href={`/tasks/${why.other.task}`}>
              <Said>{why.other.label}</Said>
            </Link>
          )}{" "}
          <State state={why.other.state} />
          {why.other_since_ms === null ? "" : `, ${ago(why.other_since_ms, now)}`}
        </Fact>
      )}
      {why.used === null || why.total === null ? null : (
        <Fact name="In use">
          {why.used} of {why.total}
          {why.need === null ? "" : `; it needs ${why.need}`}
        </Fact>
      )}
      {why.place === null ? null : <Fact name="Place in line">{why.place}</Fact>}
      {why.ahead === null ? null : (
        <Fact name="Ahead of it">
          {why.ahead}
          {why.ahead_whole ? "" : " or more"}
        </Fact>
      )}
      {why.since_ms === null ? null : <Fact name="Since">{`${moment(why.since_ms)} (${span(now - why.since_ms)})`}</Fact>}
      {why.until_ms === null ? null : <Fact name="Until">{moment(why.until_ms)}</Fact>}
      {why.stakes_ms === null ? null : <Fact name="Nobody passes it from">{moment(why.stakes_ms)}</Fact>}
      {why.bots === null ? null : (
        <Fact name="Bots that match">
          {why.bots.matching} of {why.bots.known}
          {why.bots.named.map((bot) => (
            <div key={bot.bot} className="small">
              <Link className="link" href={`/fleet/bots/${encodeURIComponent(bot.bot)}`}>
                {visible(bot.bot)}
              </Link>{" "}
              is {bot.standing} <Said>{bot.note}</Said>
            </div>
          ))}
        </Fact>
      )}
      {nearest === null ? null : (
        <Fact name="Nearest bot">
          <Link className="link" href={`/fleet/bots/${encodeURIComponent(nearest.bot)}`}>
            {visible(nearest.bot)}
          </Link>
          {nearest.differs.map((one) => (
            <div key={one.key} className="small">
              <code>{visible(one.key)}</code> should be {visible(one.wanted.join(" or "))}, and is {one.has.length === 0 ? "not there" : visible(one.has.join(", "))}
            </div>
          ))}
        </Fact>
      )}
      {Object.entries(why.bots?.meant ?? {}).map(([key, meant]) => (
        <Fact key={key} name="Perhaps meant">
          <code>{visible(meant)}</code> instead of <code>{visible(key)}</code>
        </Fact>
      ))}
    </Facts>
  );
}
