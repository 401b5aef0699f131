/** Named secrets of pools. Values are written and never shown: the server does not give them to anybody but attempts. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import type { Schemas } from "../api/client";
import { deleteSecret, secretsQuery, setSecret } from "../api/queries";
import { mayDo, useSession } from "../api/session";
import { Ago, Button, Card, Empty, Loading, PageHead, Problem, Said } from "../components/basics";
import { Dialog, useAct, useToast } from "../components/dialog";
import { type Columns, Table } from "../components/table";
import { plural, visible } from "../lib/format";

type Secret = Schemas["SecretView"];

export function SecretsPage() {
  const found = useQuery(secretsQuery);
  const queries = useQueryClient();
  const act = useAct();
  const { session } = useSession();
  const [edited, setEdited] = useState<{ pool: string; name: string } | null>(null);
  const columns: Columns<Secret> = [
    { id: "name", header: "Secret", meta: { className: "title" }, accessorFn: (one) => one.name, cell: ({ getValue }) => <code><Said>{getValue<string>()}</Said></code> },
    { id: "pool", header: "Pool", accessorFn: (one) => one.pool, cell: ({ getValue }) => visible(getValue<string>()) },
    { id: "version", header: "Version", meta: { className: "wide" }, accessorFn: (one) => one.version },
    { id: "changed", header: "Changed", accessorFn: (one) => one.changed_ms, cell: ({ row: { original } }) => <span className="small"><Ago at={original.changed_ms} /> <span className="soft">by <Said>{original.changed_by.replace(/ \([^)]*\)$/, "")}</Said></span></span> },
    { id: "opens", header: "", enableSorting: false, cell: ({ row: { original } }) => (original.opens ? null : <span className="fault">this server lacks its key</span>) },
    { id: "act", header: "", enableSorting: false, meta: { className: "right" }, cell: ({ row: { original } }) => (!mayDo(session.scopes, "admin", original.pool) ? null : (
      <span className="row" style={{ justifyContent: "flex-end" }}>
        <Button kind="small" onClick={() => setEdited(original)}>New value</Button>
        <Button kind="small danger" onClick={() => act({ title: `Delete ${visible(original.name)} of ${visible(original.pool)}?`, effect: <p>Tasks that name it wait until it is set again. Its value is lost.</p>, verb: "Delete", destroys: true, run: async () => {
          const done = await deleteSecret(original.pool, original.name);
          await queries.invalidateQueries({ queryKey: ["access", "secrets"] });
          return `${original.name} is deleted; ${plural(done.tasks, "task")} wait for it.`;
        } })}>Delete</Button>
      </span>
    )) },
  ];
  return (
    <main className="page" id="content">
      <PageHead title="Secrets" actions={<Button kind="primary" onClick={() => setEdited({ pool: "default", name: "" })}>New secret</Button>}><p className="soft">Values are stored encrypted and given only to attempts that name them. Nobody can read them here.</p></PageHead>
      {found.error === null ? null : <Problem error={found.error} />}
      <Card flush>{found.isPending ? <Loading /> : <Table rows={found.data?.items ?? []} columns={columns} label="Secrets" rowId={(one) => `${one.pool} ${one.name}`} empty={<Empty title="There is none" />} />}</Card>
      {edited === null ? null : <SecretDialog pool={edited.pool} name={edited.name} onClose={() => setEdited(null)} />}
    </main>
  );
}

function SecretDialog({ pool: firstPool, name: firstName, onClose }: { pool: string; name: string; onClose: () => void }) {
  const queries = useQueryClient();
  const tell = useToast();
  const [pool, setPool] = useState(firstPool);
  const [name, setName] = useState(firstName);
  const [value, setValue] = useState("");
  const [error, setError] = useState<unknown>(null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await setSecret(pool, name, value);
      await queries.invalidateQueries({ queryKey: ["access", "secrets"] });
      onClose();
      tell("good", `${name} is set.`);
    } catch (refused) {
      setError(refused);
    }
  };
  return (
    <Dialog title={firstName === "" ? "New secret" : `New value of ${firstName}`} onClose={onClose} foot={<><Button onClick={onClose}>Go back</Button><button type="submit" form="secret" className="button primary">Set it</button></>}>
      <form id="secret" className="stack" onSubmit={(event) => void submit(event)}>
        <label className="field"><span className="label">Pool</span><input className="input" required readOnly={firstName !== ""} value={pool} onChange={(event) => setPool(event.target.value)} /></label>
        <label className="field"><span className="label">Name</span><input className="input mono" required readOnly={firstName !== ""} value={name} onChange={(event) => setName(event.target.value)} /></label>
        <label className="field"><span className="label">Value</span><textarea className="input mono" required rows={4} autoComplete="off" spellCheck={false} value={value} onChange={(event) => setValue(event.target.value)} /></label>
      </form>
      {error === null ? null : <Problem error={error} />}
    </Dialog>
  );
}
