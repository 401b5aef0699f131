/** Signing in with a token. The token goes to the server once, and is kept nowhere. */

import { type FormEvent, useState } from "react";
import type { Session } from "../api/session";
import { signIn } from "../api/queries";
import { Problem } from "../components/basics";

export function SignInPage({ notice, onSignedIn }: { notice: string; onSignedIn: (session: Session) => void }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      onSignedIn(await signIn({ token: token.trim() }));
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  return (
    <main className="sign-in">
      <form className="card" onSubmit={(event) => void submit(event)}>
        <div className="brand">
          <img src="/favicon.svg" alt="" />
          <h1>Sign in to Taskyard</h1>
        </div>
        {notice === "" ? null : <div className="notice tone-warn">{notice}</div>}
        <label className="field">
          <span className="label">Token</span>
          <input
            className="input mono"
            type="password"
            name="token"
            autoComplete="off"
            spellCheck={false}
            autoFocus
            required
            maxLength={256}
            placeholder="ty_user_…"
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        {error === null ? null : <Problem error={error} />}
        <button className="button primary" disabled={busy || token.trim() === ""}>
          Sign in
        </button>
        <p className="small faint">
          <code>taskyard up</code> prints a link that signs in. An administrator makes tokens with <code>taskyard token create</code>.
        </p>
      </form>
    </main>
  );
}
