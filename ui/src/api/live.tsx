/** Keeps what is shown up to date: events mark what has changed, and it is read again, at most twice a second. */

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useState } from "react";
import { type Event, EventStream, type StreamState } from "./stream";

const FLUSH_MS = 500;
/** How long a tab that is not seen keeps its connection: browsers open only six to one server. */
const HIDDEN_MS = 20_000;

const LiveContext = createContext<StreamState>("connecting");
const listeners = new Set<(event: Event) => void>();

export function useStreamState(): StreamState {
  return useContext(LiveContext);
}

/** Call `act` for each event while the component is shown. */
export function useEvents(act: (event: Event) => void): void {
  useEffect(() => {
    listeners.add(act);
    return () => void listeners.delete(act);
  }, [act]);
}

/** Collects what events change, and has it read again. */
export class Changes {
  private readonly graphs = new Set<string>();
  private readonly tasks = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly queries: QueryClient) {}

  note(event: Event): void {
    this.graphs.add(event.graph_id);
    if (event.task !== null) {
      this.tasks.add(event.task);
    }
    this.timer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  all(): void {
    void this.queries.invalidateQueries();
  }

  private flush(): void {
    this.timer = undefined;
    const { graphs, tasks } = this;
    const touched = (key: readonly unknown[]) =>
      key[0] === "live" ||
      (key[0] === "graph" && graphs.has(String(key[1]))) ||
      (key[0] === "task" && (tasks.has(String(key[1])) || key[2] === "why"));
    // What is still being read is not read twice at once: a slow server is not asked more often than it answers.
    void this.queries.invalidateQueries(
      { predicate: (query) => touched(query.queryKey) && query.state.fetchStatus === "idle" },
      { cancelRefetch: false },
    );
    this.graphs.clear();
    this.tasks.clear();
  }
}

export function LiveProvider({ onRefused, children }: { onRefused: () => void; children: ReactNode }) {
  const queries = useQueryClient();
  const [state, setState] = useState<StreamState>("connecting");
  useEffect(() => {
    const changes = new Changes(queries);
    let stream: EventStream | null = null;
    let hidden: ReturnType<typeof setTimeout> | undefined;
    let wasDown = false;
    const open = () => {
      stream = new EventStream("/api/v1/events", {
        event: (event) => {
          changes.note(event);
          listeners.forEach((tell) => tell(event));
        },
        reset: () => changes.all(),
        state: (next) => {
          if (next === "live" && wasDown) {
            changes.all();
          }
          wasDown = next === "down" || (wasDown && next !== "live");
          setState(next);
        },
        refused: onRefused,
      });
      stream.start();
    };
    const onVisibility = () => {
      clearTimeout(hidden);
      if (document.hidden) {
        hidden = setTimeout(() => {
          stream?.close();
          stream = null;
        }, HIDDEN_MS);
      } else if (stream === null) {
        open();
        changes.all();
      }
    };
    open();
    document.addEventListener("visibilitychange", onVisibility);
    return () => {
      clearTimeout(hidden);
      document.removeEventListener("visibilitychange", onVisibility);
      stream?.close();
    };
  }, [queries, onRefused]);
  return <LiveContext value={state}>{children}</LiveContext>;
}
