/** One document of the catalogue: what it says, its launches, its versions, and launching it. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { documentQuery, scheduleQuery, versionsQuery } from "../api/queries";
import { mayDo, useSession } from "../api/session";
import { Ago, Button, Card, Fact, Facts, Json, Loading, PageHead, Problem, Said } from "../components/basics";
import { LaunchDialog } from "../components/launch";
import { moment, visible } from "../lib/format";
import { canLaunch, KINDS, LaunchTable, UPDATED } from "./catalogue";

export function DocumentPage({ kind, name }: { kind: string; name: string }) {
  const found = useQuery(documentQuery(kind, name));
  const versions = useQuery(versionsQuery(kind, name));
  const [launches, setLaunches] = useState(false);
  const [shown, setShown] = useState<number | null>(null);
  const { session } = useSession();
  useEffect(() => {
    document.title = `${visible(name)} · Taskyard`;
  }, [name]);
  const one = found.data;
  if (one === undefined) {
    return <main className="page" id="content">{found.error === null ? <Loading /> : <Problem error={found.error} />}</main>;
  }
  const version = versions.data?.items.find((other) => other.version === shown);
  return (
    <main className="page" id="content">
      <PageHead
        title={<Said>{one.name}</Said>}
        crumbs={[{ href: "/catalogue", text: "Catalogue" }, { href: `/catalogue/${kind}`, text: KINDS[kind] ?? kind }]}
        actions={canLaunch(kind) && mayDo(session.scopes, "submit", one.pool) ? <Button kind="primary" onClick={() => setLaunches(true)}>{UPDATED.has(kind) ? "Update now" : "Launch"}</Button> : undefined}
      >
        <p className="soft small">pool <Said>{one.pool}</Said> · version {one.version}{one.changed_by === null || one.changed_ms === null ? null : <> · changed <Ago at={one.changed_ms} /> by <Said>{one.changed_by}</Said></>}</p>
      </PageHead>
      <div className="grid">
        <div className="col-7 stack">
          {canLaunch(kind) ? <Card title={UPDATED.has(kind) ? "Updates" : "Launches"} flush><LaunchTable wanted={{ kind, name }} /></Card> : null}
          {kind === "schedule" ? <NextRuns name={name} /> : null}
          <Card title={version === undefined ? "Document" : `Version ${version.version}`}><Json value={version === undefined ? one.document : version.document} label="Document" /></Card>
        </div>
        <div className="col-5">
          <Card title="History">
            {versions.isPending ? <Loading /> : (
              <ul className="stack tight">
                {versions.data?.items.map((other) => (
                  <li key={other.version} className="row between">
                    <button type="button" className="chip" aria-pressed={shown === other.version} onClick={() => setShown(other.version)}>version {other.version}{other.document === null ? ", deleted" : ""}</button>
                    <span className="small soft ellipsis"><Ago at={other.changed_ms} /> by <Said>{other.changed_by}</Said></span>
                  </li>
                ))}
              </ul>
            )}
          </Card>
        </div>
      </div>
      {launches ? <LaunchDialog document={one} onClose={() => setLaunches(false)} /> : null}
    </main>
  );
}

function NextRuns({ name }: { name: string }) {
  const found = useQuery(scheduleQuery(name));
  return found.data === undefined ? null : (
    <Card title="Next runs">
      {found.data.runs.length === 0 ? <span className="faint">none</span> : (
        <Facts>{found.data.runs.map((at) => <Fact key={at} name={moment(at)}><Ago at={at} /></Fact>)}</Facts>
      )}
    </Card>
  );
}
