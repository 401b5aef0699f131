/** Who is signed in: the session is a cookie that no script can read; the page only knows that there is one. */

import { createContext, useContext } from "react";
import type { Schemas } from "./client";

export type Session = Schemas["SessionView"];

export const SessionContext = createContext<{ session: Session; leave: () => void } | null>(null);

export function useSession() {
  const found = useContext(SessionContext);
  if (found === null) {
    throw new Error("a part of the page is shown to somebody who is not signed in");
  }
  return found;
}

/** Whether scopes hold a right in a pool, or in any pool. */
export function mayDo(scopes: string[], right: string, pool?: string): boolean {
  return scopes.some((scope) => {
    if (scope === "admin") {
      return true;
    }
    const found = /^pool:(.+):([a-z]+)$/.exec(scope);
    return found !== null && (found[2] === right || found[2] === "admin") && (pool === undefined || found[1] === "*" || found[1] === pool);
  });
}

/** The code of a link that signs in, which is behind `#`, so that no server and no log gets it. */
export function takeSignInCode(): string | null {
  const found = /^#sign-in=([A-Za-z0-9_-]{20,200})$/.exec(location.hash);
  if (found === null) {
    return null;
  }
  history.replaceState(null, "", location.pathname + location.search);
  return found[1] ?? null;
}
