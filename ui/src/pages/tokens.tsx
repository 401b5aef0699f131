/** Tokens: who may do what. The text of a token is shown once, when it is made. */

import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import type { Schemas } from "../api/client";
import { newToken, revokeToken, tokensQuery } from "../api/queries";
import { Ago, Button, Card, Empty, Loading, PageHead, Problem, Said } from "../components/basics";
import { Dialog, useAct } from "../components/dialog";
import { StateIcon } from "../components/icons";
import { type Columns, Table } from "../components/table";
import { visible } from "../lib/format";
import { serverNow } from "../lib/now";

type Token = Schemas["TokenView"];

export function TokensPage() {
  const found = useInfiniteQuery(tokensQuery);
  const queries = useQueryClient();
  const act = useAct();
  const [makes, setMakes] = useState(false);
  const rows = found.data?.pages.flatMap((page) => page.items) ?? [];
  const over = (token: Token) => token.revoked_ms !== null || (token.expires_ms !== null && token.expires_ms <= serverNow());
  const columns: Columns<Token> = [
    { id: "name", header: "Name", meta: { className: "title" }, accessorFn: (one) => one.name, cell: ({ row: { original } }) => <span className="row"><StateIcon state={over(original) ? "canceled" : "successful"} size={13} /><Said>{original.name}</Said></span> },
    { id: "kind", header: "Kind", accessorFn: (one) => one.kind },
    { id: "may", header: "May", enableSorting: false, cell: ({ row: { original } }) => <span className="row wrap">{original.pool === null ? original.scopes.map((one) => <span key={one} className="chip">{visible(one)}</span>) : <span className="chip">bots of {visible(original.pool)}</span>}</span> },
    { id: "created", header: "Created", meta: { className: "wide" }, accessorFn: (one) => one.created_ms, cell: ({ row: { original } }) => <Ago at={original.created_ms} /> },
    { id: "ends", header: "Ends", meta: { className: "wide" }, accessorFn: (one) => one.revoked_ms ?? one.expires_ms ?? 0, cell: ({ row: { original } }) => (original.revoked_ms !== null ? <>revoked <Ago at={original.revoked_ms} /></> : original.expires_ms === null ? <span className="faint">never</span> : <Ago at={original.expires_ms} />) },
    { id: "revoke", header: "", enableSorting: false, meta: { className: "right" }, cell: ({ row: { original } }) => (over(original) ? null : (
      <Button kind="small danger" onClick={() => act({ title: `Revoke ${visible(original.name)}?`, effect: <p>Everything that uses this token is refused at once, and its sessions of this page end. That cannot be undone.</p>, verb: "Revoke", destroys: true, run: async () => {
        await revokeToken(original.id);
        await queries.invalidateQueries({ queryKey: ["access"] });
        return `${original.name} is revoked.`;
      } })}>Revoke</Button>
    )) },
  ];
  return (
    <main className="page" id="content">
      <PageHead title="Tokens" actions={<Button kind="primary" onClick={() => setMakes(true)}>New token</Button>} />
      {found.error !== null && rows.length === 0 ? <Problem error={found.error} /> : null}
      <Card flush>{found.isPending ? <Loading /> : <Table rows={rows} columns={columns} label="Tokens" rowId={(one) => one.id} empty={<Empty title="There is none" />} />}</Card>
      {makes ? <NewToken onClose={() => setMakes(false)} /> : null}
    </main>
  );
}

const DAY = 86_400_000;

function NewToken({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const [kind, setKind] = useState("user");
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState("pool:default:read");
  const [pool, setPool] = useState("default");
  const [days, setDays] = useState("");
  const [made, setMade] = useState("");
  const [error, setError] = useState<unknown>(null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const rights = kind === "user" ? { scopes: scopes.split(/\s+/).filter((one) => one !== "") } : { pool };
    try {
      const found = await newToken({ kind, name, ...rights, ...(days === "" ? {} : { expires_in_ms: Number(days) * DAY }) });
      setMade(found.token);
      await queries.invalidateQueries({ queryKey: ["access"] });
    } catch (refused) {
      setError(refused);
    }
  };
  if (made !== "") {
    return (
      <Dialog title="The new token" onClose={onClose} foot={<Button kind="primary" onClick={onClose}>Done</Button>}>
        <p className="soft">Copy it now: it is not shown again, and the server does not have it either.</p>
        <input className="input mono" readOnly value={made} aria-label="Token" onFocus={(event) => event.target.select()} />
      </Dialog>
    );
  }
  return (
    <Dialog title="New token" onClose={onClose} foot={<><Button onClick={onClose}>Go back</Button><button type="submit" form="token" className="button primary">Make it</button></>}>
      <form id="token" className="stack" onSubmit={(event) => void submit(event)}>
        <label className="field"><span className="label">For</span>
          <select className="input" value={kind} onChange={(event) => setKind(event.target.value)}><option value="user">a person or a program</option><option value="bot">bots</option><option value="enrolment">the enrolment of one bot</option></select>
        </label>
        <label className="field"><span className="label">Name</span><input className="input" required maxLength={128} value={name} onChange={(event) => setName(event.target.value)} /></label>
        {kind === "user" ? (
          <label className="field"><span className="label">Scopes</span><textarea className="input mono" rows={3} value={scopes} onChange={(event) => setScopes(event.target.value)} /><span className="hint"><code>admin</code>, or <code>pool:NAME:RIGHT</code> with read, submit, cancel, approve, secrets, catalogue or admin</span></label>
        ) : (
          <label className="field"><span className="label">Pool</span><input className="input" required value={pool} onChange={(event) => setPool(event.target.value)} /></label>
        )}
        <label className="field"><span className="label">Ends after days</span><input className="input" type="number" min={1} max={3660} placeholder="never" value={days} onChange={(event) => setDays(event.target.value)} /></label>
      </form>
      {error === null ? null : <Problem error={error} />}
    </Dialog>
  );
}
