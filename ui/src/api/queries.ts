/** What the page reads and does: one function for each, over the typed client. */

import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { answer, client, fetchRaw, type Schemas } from "./client";

/** Fleets, pools and limits are in no event: they are read again every so often. */
const FLEET_MS = 5_000;
const SLOW_MS = 30_000;

function key(): { header: { "Idempotency-Key": string } } {
  return { header: { "Idempotency-Key": crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` } };
}

// Graphs.

export interface GraphWanted {
  state?: string[];
  name?: string;
  tag?: string[];
}

export function graphsQuery(wanted: GraphWanted, limit = 50) {
  return infiniteQueryOptions({
    queryKey: ["live", "graphs", wanted, limit],
    initialPageParam: null as string | null,
    queryFn: ({ pageParam, signal }) =>
      answer(
        client.GET("/api/v1/graphs", {
          params: { query: { ...(wanted as object), counts: true, limit, cursor: pageParam } },
          signal,
        }),
      ),
    getNextPageParam: (page: Schemas["Graphs"]) => page.next,
  });
}

export const graphQuery = (id: string) =>
  queryOptions({
    queryKey: ["graph", id, "view"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/graphs/{graph_id}", { params: { path: { graph_id: id }, query: { counts: true } }, signal })),
  });

export const layoutQuery = (id: string, view: "auto" | "tasks" | "groups") =>
  queryOptions({
    queryKey: ["layout", id, view],
    staleTime: Infinity,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/graphs/{graph_id}/layout", { params: { path: { graph_id: id }, query: { view } }, signal })),
  });

export const statesQuery = (id: string) =>
  queryOptions({
    queryKey: ["graph", id, "states"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/graphs/{graph_id}/states", { params: { path: { graph_id: id } }, signal })),
  });

export const timesQuery = (id: string) =>
  queryOptions({
    queryKey: ["graph", id, "times"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/graphs/{graph_id}/states", { params: { path: { graph_id: id }, query: { times: true } }, signal })),
  });

export const pathQuery = (id: string) =>
  queryOptions({
    queryKey: ["graph", id, "path"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/graphs/{graph_id}/critical-path", { params: { path: { graph_id: id } }, signal })),
  });

export const graphWhyQuery = (id: string) =>
  queryOptions({
    queryKey: ["graph", id, "why"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/graphs/{graph_id}/why", { params: { path: { graph_id: id } }, signal })),
  });

export function graphTasksQuery(id: string, wanted: { state?: string[]; label?: string }) {
  return infiniteQueryOptions({
    queryKey: ["graph", id, "tasks", wanted],
    initialPageParam: null as string | null,
    queryFn: ({ pageParam, signal }) =>
      answer(
        client.GET("/api/v1/graphs/{graph_id}/tasks", {
          params: { path: { graph_id: id }, query: { ...(wanted as object), limit: 200, cursor: pageParam } },
          signal,
        }),
      ),
    getNextPageParam: (page: Schemas["Tasks"]) => page.next,
  });
}

export const cancelGraph = (id: string, from?: string[]) =>
  answer(client.POST("/api/v1/graphs/{graph_id}/cancel", { params: { path: { graph_id: id }, ...key() }, body: from === undefined ? {} : { from } }));

export const rerunGraph = (id: string, body: { failed?: boolean; from?: string[] }) =>
  answer(client.POST("/api/v1/graphs/{graph_id}/rerun", { params: { path: { graph_id: id }, ...key() }, body }));

// Tasks.

export const taskQuery = (id: string) =>
  queryOptions({
    queryKey: ["task", id, "view"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/tasks/{task_id}", { params: { path: { task_id: id } }, signal })),
  });

export const attemptsQuery = (id: string) =>
  queryOptions({
    queryKey: ["task", id, "attempts"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/tasks/{task_id}/attempts", { params: { path: { task_id: id } }, signal })),
  });

export const storyQuery = (id: string) =>
  queryOptions({
    queryKey: ["task", id, "story"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/tasks/{task_id}/story", { params: { path: { task_id: id } }, signal })),
  });

export const whyQuery = (id: string) =>
  queryOptions({
    queryKey: ["task", id, "why"],
    refetchInterval: FLEET_MS,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/tasks/{task_id}/why", { params: { path: { task_id: id } }, signal })),
  });

export const artifactsQuery = (id: string, attempt?: number) =>
  queryOptions({
    queryKey: ["task", id, "artifacts", attempt],
    queryFn: ({ signal }) =>
      answer(client.GET("/api/v1/tasks/{task_id}/artifacts", { params: { path: { task_id: id }, query: { limit: 200, ...(attempt === undefined ? {} : { attempt }) } }, signal })),
  });

export const filesQuery = (id: string, attempt?: number) =>
  queryOptions({
    queryKey: ["task", id, "files", attempt],
    queryFn: ({ signal }) =>
      answer(client.GET("/api/v1/tasks/{task_id}/files", { params: { path: { task_id: id }, query: { limit: 200, ...(attempt === undefined ? {} : { attempt }) } }, signal })),
  });

export const cancelTask = (id: string, subtree: boolean) =>
  answer(client.POST("/api/v1/tasks/{task_id}/cancel", { params: { path: { task_id: id }, ...key() }, body: { subtree } as never }));

export const rerunTask = (id: string) =>
  answer(client.POST("/api/v1/tasks/{task_id}/rerun", { params: { path: { task_id: id }, ...key() }, body: {} as never }));

export const approveTask = (id: string, approved: boolean, comment: string) =>
  answer(client.POST("/api/v1/tasks/{task_id}/approve", { params: { path: { task_id: id }, ...key() }, body: { approved, comment: comment || null } as never }));

export interface TasksWanted {
  state?: string[];
  tag?: string[];
  bot?: string;
  pool?: string;
  user?: string;
  since_ms?: number;
}

export function tasksQuery(wanted: TasksWanted, limit = 50) {
  return infiniteQueryOptions({
    queryKey: ["live", "tasks", wanted, limit],
    initialPageParam: null as string | null,
    queryFn: ({ pageParam, signal }) =>
      answer(client.GET("/api/v1/tasks", { params: { query: { ...(wanted as object), limit, cursor: pageParam } }, signal })),
    getNextPageParam: (page: Schemas["Tasks"]) => page.next,
  });
}

export const taskCountQuery = (wanted: TasksWanted) =>
  queryOptions({
    queryKey: ["live", "count", wanted],
    queryFn: async ({ signal }) => {
      const total: Record<string, number> = {};
      let cursor: string | null = null;
      // Every answer counts some thousand tasks; what is shown here needs no more than a few of them.
      for (let page = 0; page < 20; page += 1) {
        const found: Schemas["TaskCounts"] = await answer(client.GET("/api/v1/tasks/count", { params: { query: { ...(wanted as object), cursor } }, signal }));
        for (const [state, count] of Object.entries(found.states)) {
          total[state] = (total[state] ?? 0) + count;
        }
        cursor = found.next;
        if (cursor === null) {
          return { states: total, whole: true };
        }
      }
      return { states: total, whole: false };
    },
  });

export const approvalsQuery = queryOptions({
  queryKey: ["live", "approvals"],
  queryFn: ({ signal }) => answer(client.GET("/api/v1/approvals", { params: { query: { limit: 50 } }, signal })),
});

// The fleet.

export interface BotsWanted {
  pool?: string;
  state?: string[];
  dimension?: string[];
}

export function botsQuery(wanted: BotsWanted) {
  return infiniteQueryOptions({
    queryKey: ["fleet", "bots", wanted],
    refetchInterval: FLEET_MS,
    initialPageParam: null as string | null,
    queryFn: ({ pageParam, signal }) =>
      answer(client.GET("/api/v1/bots", { params: { query: { ...(wanted as object), limit: 200, cursor: pageParam } }, signal })),
    getNextPageParam: (page: Schemas["Bots"]) => page.next,
  });
}

export const botQuery = (id: string) =>
  queryOptions({
    queryKey: ["fleet", "bot", id],
    refetchInterval: FLEET_MS,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/bots/{bot_id}", { params: { path: { bot_id: id } }, signal })),
  });

export const botEventsQuery = (id: string) =>
  queryOptions({
    queryKey: ["fleet", "bot-events", id],
    refetchInterval: FLEET_MS,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/bots/{bot_id}/events", { params: { path: { bot_id: id }, query: { limit: 200 } }, signal })),
  });

export const setBot = (id: string, body: Record<string, unknown>) =>
  answer(client.PATCH("/api/v1/bots/{bot_id}", { params: { path: { bot_id: id }, ...key() }, body: body as never }));

export const poolsQuery = queryOptions({
  queryKey: ["fleet", "pools"],
  refetchInterval: FLEET_MS,
  queryFn: ({ signal }) => answer(client.GET("/api/v1/pools", { signal })),
});

export const demandQuery = (pool: string) =>
  queryOptions({
    queryKey: ["fleet", "demand", pool],
    refetchInterval: FLEET_MS,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/pools/{name}/demand", { params: { path: { name: pool } }, signal })),
  });

export const limitsQuery = queryOptions({
  queryKey: ["fleet", "limits"],
  refetchInterval: FLEET_MS,
  queryFn: ({ signal }) => answer(client.GET("/api/v1/limits", { signal })),
});

export const mutexesQuery = queryOptions({
  queryKey: ["fleet", "mutexes"],
  refetchInterval: FLEET_MS,
  queryFn: ({ signal }) => answer(client.GET("/api/v1/mutexes", { params: { query: { limit: 200 } }, signal })),
});

export const dimensionsQuery = queryOptions({
  queryKey: ["fleet", "dimensions"],
  refetchInterval: SLOW_MS,
  queryFn: ({ signal }) => answer(client.GET("/api/v1/dimensions", { signal })),
});

export const statsQuery = (spanMs: number) =>
  queryOptions({
    queryKey: ["fleet", "stats", spanMs],
    refetchInterval: FLEET_MS,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/stats", { params: { query: { span_ms: spanMs } }, signal })),
  });

// The catalogue.

export const catalogueQuery = (kind: string) =>
  queryOptions({
    queryKey: ["catalogue", kind],
    refetchInterval: SLOW_MS,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/catalogue", { params: { query: { kind: [kind] as never, detail: "launches", limit: 200 } }, signal })),
  });

export const documentQuery = (kind: string, name: string) =>
  queryOptions({
    queryKey: ["catalogue", kind, name],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/catalogue/{kind}/{name}", { params: { path: { kind: kind as never, name } }, signal })),
  });

export const versionsQuery = (kind: string, name: string) =>
  queryOptions({
    queryKey: ["catalogue", kind, name, "versions"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/catalogue-versions/{kind}/{name}", { params: { path: { kind: kind as never, name }, query: { limit: 50 } }, signal })),
  });

export const launchesQuery = (wanted: { kind?: string; name?: string }) =>
  queryOptions({
    queryKey: ["live", "launches", wanted],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/launches", { params: { query: { ...(wanted as object), limit: 50 } }, signal })),
  });

export const launch = (body: Record<string, unknown>) => answer(client.POST("/api/v1/launches", { params: key(), body: body as never }));

export const schedulesQuery = queryOptions({
  queryKey: ["catalogue", "schedules"],
  refetchInterval: SLOW_MS,
  queryFn: ({ signal }) => answer(client.GET("/api/v1/schedules", { params: { query: { limit: 200 } }, signal })),
});

export const scheduleQuery = (name: string) =>
  queryOptions({
    queryKey: ["catalogue", "schedules", name],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/schedules/{name}", { params: { path: { name }, query: { count: 10 } }, signal })),
  });

// Submitting: the text is sent as it is, so that faults are found where they were written.

export async function checkDocument(text: string, signal: AbortSignal): Promise<Schemas["DryRun"]> {
  const response = await fetchRaw("/api/v1/graphs/check", { method: "POST", body: text, headers: { "content-type": "application/yaml" }, signal });
  return (await response.json()) as Schemas["DryRun"];
}

export async function submitDocument(text: string): Promise<Schemas["Submitted"]> {
  const headers = { "content-type": "application/yaml", "idempotency-key": key().header["Idempotency-Key"] };
  return (await (await fetchRaw("/api/v1/graphs", { method: "POST", body: text, headers })).json()) as Schemas["Submitted"];
}

// Access.

export const auditQuery = (wanted: { actor?: string; action?: string; subject?: string }) =>
  infiniteQueryOptions({
    queryKey: ["audit", wanted],
    refetchInterval: FLEET_MS,
    initialPageParam: null as string | null,
    queryFn: ({ pageParam, signal }) =>
      answer(client.GET("/api/v1/audit", { params: { query: { ...(wanted as object), limit: 100, cursor: pageParam } }, signal })),
    getNextPageParam: (page: Schemas["Audits"]) => page.next,
  });

export const tokensQuery = infiniteQueryOptions({
  queryKey: ["access", "tokens"],
  initialPageParam: null as string | null,
  queryFn: ({ pageParam, signal }) => answer(client.GET("/api/v1/tokens", { params: { query: { limit: 200, cursor: pageParam } }, signal })),
  getNextPageParam: (page: Schemas["Tokens"]) => page.next,
});

export const newToken = (body: Record<string, unknown>) => answer(client.POST("/api/v1/tokens", { params: key(), body: body as never }));

export const revokeToken = (id: string) => answer(client.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: id }, ...key() } }));

export const secretsQuery = queryOptions({
  queryKey: ["access", "secrets"],
  queryFn: ({ signal }) => answer(client.GET("/api/v1/secrets", { params: { query: { limit: 200 } }, signal })),
});

export const setSecret = (pool: string, name: string, value: string) =>
  answer(client.PUT("/api/v1/secrets/{name}", { params: { path: { name }, query: { pool }, ...key() }, body: { value } as never }));

export const deleteSecret = (pool: string, name: string) =>
  answer(client.DELETE("/api/v1/secrets/{name}", { params: { path: { name }, query: { pool }, ...key() } }));

// The session.

export const readSession = () => answer(client.GET("/api/v1/session"));
export const signIn = (body: { token?: string; code?: string }) => answer(client.POST("/api/v1/session", { body: body as never }));
export const signOut = () => answer(client.DELETE("/api/v1/session"));
export const readAbout = () => answer(client.GET("/api/v1/about"));

export const idsQuery = (ending: string) =>
  queryOptions({
    queryKey: ["ids", ending],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/ids/{ending}", { params: { path: { ending } }, signal })),
  });
