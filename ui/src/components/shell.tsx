/** The frame of all pages: where one can go, how the connection is, and keys. */

import { type ReactNode, useEffect, useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { useStreamState } from "../api/live";
import { mayDo, useSession } from "../api/session";
import { focusSearch, type KeyAction, useKeys } from "../lib/keys";
import { applyTheme, isTheme, useSetting } from "../lib/settings";
import { Button } from "./basics";
import { Dialog } from "./dialog";
import { Icon, type IconName } from "./icons";

interface Place {
  href: string;
  name: string;
  icon: IconName;
  keys: string;
  needs?: string;
}

const PLACES: { title: string; places: Place[] }[] = [
  {
    title: "",
    places: [
      { href: "/", name: "Overview", icon: "home", keys: "g o" },
      { href: "/graphs", name: "Graphs", icon: "graph", keys: "g g" },
      { href: "/tasks", name: "Tasks", icon: "search", keys: "g t" },
      { href: "/submit", name: "Submit", icon: "submit", keys: "g s", needs: "submit" },
      { href: "/catalogue", name: "Catalogue", icon: "catalogue", keys: "g c" },
    ],
  },
  {
    title: "Fleet",
    places: [
      { href: "/fleet", name: "Bots and pools", icon: "fleet", keys: "g f" },
      { href: "/limits", name: "Mutexes and limits", icon: "limits", keys: "g l" },
    ],
  },
  {
    title: "Records",
    places: [
      { href: "/events", name: "Events", icon: "events", keys: "g e" },
      { href: "/audit", name: "Audit", icon: "audit", keys: "g a", needs: "everything" },
      { href: "/tokens", name: "Tokens", icon: "key", keys: "g k", needs: "everything" },
      { href: "/secrets", name: "Secrets", icon: "lock", keys: "g x", needs: "secrets" },
    ],
  },
];

export function Shell({ children }: { children: ReactNode }) {
  const [place, navigate] = useLocation();
  // The menu of a phone is open at one place; elsewhere it is closed again.
  const [openAt, setOpenAt] = useState<string | null>(null);
  const isOpen = openAt === place;
  const [showsKeys, setShowsKeys] = useState(false);
  const { session } = useSession();
  const stream = useStreamState();
  const groups = PLACES.map((group) => ({
    ...group,
    places: group.places.filter(({ needs }) => needs === undefined || (needs === "everything" ? session.scopes.includes("admin") : mayDo(session.scopes, needs))),
  }));
  const keys = useMemo<KeyAction[]>(
    () => [
      ...PLACES.flatMap((group) => group.places.map((one) => ({ keys: one.keys, does: `Go to ${one.name.toLowerCase()}`, act: () => navigate(one.href) }))),
      { keys: "/", does: "Search this page", act: focusSearch },
      { keys: "?", does: "Show keys", act: () => setShowsKeys(true) },
    ],
    [navigate],
  );
  useKeys(keys);
  useEffect(() => {
    const name = PLACES.flatMap((group) => group.places).find((one) => one.href === place)?.name;
    if (name !== undefined) {
      document.title = `${name} · Taskyard`;
    }
  }, [place]);
  return (
    <div className="shell">
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <aside className={`side ${isOpen ? "open" : ""}`} id="side">
        <Link href="/" className="brand">
          <img src="/favicon.svg" alt="" />
          Taskyard
        </Link>
        <nav aria-label="Main">
          {groups.map((group) =>
            group.places.length === 0 ? null : (
              <div key={group.title} className="nav">
                {group.title === "" ? null : <div className="nav-title">{group.title}</div>}
                {group.places.map((one) => (
                  <Link key={one.href} href={one.href} aria-current={isAt(place, one.href) ? "page" : undefined}>
                    <Icon name={one.icon} />
                    {one.name}
                  </Link>
                ))}
              </div>
            ),
          )}
        </nav>
        <SideFoot onKeys={() => setShowsKeys(true)} />
      </aside>
      <div className="main">
        <div className="topbar">
          <Button kind="ghost icon" icon="menu" aria-label="Menu" aria-expanded={isOpen} aria-controls="side" onClick={() => setOpenAt(isOpen ? null : place)} />
          <Link href="/" className="brand">
            Taskyard
          </Link>
        </div>
        {stream === "down" ? (
          <div className="banner" role="alert">
            The connection to the server is down. What you see may be old; it will be read again.
          </div>
        ) : null}
        {children}
      </div>
      {showsKeys ? <KeysDialog keys={keys} onClose={() => setShowsKeys(false)} /> : null}
    </div>
  );
}

function isAt(place: string, href: string): boolean {
  return href === "/" ? place === "/" : place === href || place.startsWith(`${href}/`);
}

const STREAM_TEXT = { live: "Live", connecting: "Connecting", down: "Not connected" } as const;

function SideFoot({ onKeys }: { onKeys: () => void }) {
  const stream = useStreamState();
  const { session, leave } = useSession();
  const [theme, setTheme] = useSetting("theme", "system", isTheme);
  const isDark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  const change = () => {
    const next = isDark ? "light" : "dark";
    setTheme(next);
    applyTheme(next);
  };
  return (
    <div className="side-foot">
      <span className={`pulse ${stream}`} role="status">
        <i aria-hidden="true" />
        {STREAM_TEXT[stream]}
      </span>
      <div className="row between">
        <span className="small soft ellipsis" title={session.actor}>
          {session.actor.replace(/ \([^)]*\)$/, "")}
        </span>
        <span className="row">
          <Button kind="ghost small icon" icon={isDark ? "sun" : "moon"} aria-label={isDark ? "Light" : "Dark"} title={isDark ? "Light" : "Dark"} onClick={change} />
          <Button kind="ghost small icon" icon="question" aria-label="Keys" title="Keys (?)" onClick={onKeys} />
          {session.expires_ms === null ? null : <Button kind="ghost small icon" icon="out" aria-label="Sign out" title="Sign out" onClick={leave} />}
        </span>
      </div>
    </div>
  );
}

const TABLE_KEYS = [
  { keys: "j", does: "Next row of a table" },
  { keys: "k", does: "Row before" },
  { keys: "Enter", does: "Open the row" },
  { keys: "Esc", does: "Close a dialog" },
];

function KeysDialog({ keys, onClose }: { keys: KeyAction[]; onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose} foot={<Button onClick={onClose}>Close</Button>}>
      <ul className="stack tight">
        {[...keys, ...TABLE_KEYS].map((one) => (
          <li key={one.keys} className="row between">
            <span>{one.does}</span>
            <span className="row">
              {one.keys.split(" ").map((key, place) => (
                <kbd key={place}>{key}</kbd>
              ))}
            </span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
