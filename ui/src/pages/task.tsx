/** One task: what it is doing and why, its story, its attempts side by side, its log, and what it left. */

import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { artifactsQuery, attemptsQuery, filesQuery, graphQuery, storyQuery, taskQuery, whyQuery } from "../api/queries";
import { Ago, Card, Empty, Fact, Facts, Json, Loading, PageHead, Problem, Said, State, Took } from "../components/basics";
import { StateIcon } from "../components/icons";
import { Log } from "../components/log";
import { TaskActions } from "../components/task-actions";
import { WhyCard } from "../components/why";
import { bytes, clock, dimensions, moment, shortId, span, visible } from "../lib/format";
import { useParams } from "../lib/params";
import { isHeld, reasonText, type Task } from "../lib/states";

const TABS = { overview: "Overview", log: "Log", attempts: "Attempts", files: "Files", definition: "Definition" } as const;

export function TaskPage({ id, tab }: { id: string; tab: string }) {
  const found = useQuery(taskQuery(id));
  const task = found.data;
  const graph = useQuery({ ...graphQuery(task?.graph_id ?? ""), enabled: task !== undefined });
  useEffect(() => {
    document.title = `${task === undefined ? shortId(id) : visible(task.label)} · Taskyard`;
  }, [task, id]);
  if (task === undefined) {
    return (
      <main className="page" id="content">
        {found.error === null ? <Loading /> : <Problem error={found.error} again={() => void found.refetch()} />}
      </main>
    );
  }
  const name = graph.data?.name ?? "";
  return (
    <main className="page" id="content">
      <PageHead
        title={<Said>{task.label}</Said>}
        crumbs={[
          { href: "/graphs", text: "Graphs" },
          { href: `/graphs/${task.graph_id}?task=${id}`, text: name === "" ? shortId(task.graph_id) : name },
        ]}
        actions={<TaskActions task={task} whole />}
      >
        <div className="row wrap" style={{ marginTop: 6 }}>
          <State state={task.state} badge detail={task.reason === "" ? "" : reasonText(task.reason)} />
          <span className="soft small">
            {task.kind} · {task.attempt === 0 ? "not tried yet" : `attempt ${task.attempt}`}
            {task.bot === null ? null : (
              <>
                {" on "}
                <Link className="link" href={`/fleet/bots/${encodeURIComponent(task.bot)}`}>
                  {visible(task.bot)}
                </Link>
              </>
            )}
            {task.started_ms === null ? null : (
              <>
                {" · "}
                <Took from={task.started_ms} to={task.ended_ms} />
              </>
            )}
          </span>
          <code className="faint">{task.id}</code>
        </div>
      </PageHead>
      <nav className="tabs" aria-label="Parts">
        {Object.entries(TABS).map(([key, title]) => (
          <Link key={key} href={`/tasks/${id}${key === "overview" ? "" : `/${key}`}`} aria-current={tab === key ? "page" : undefined}>
            {title}
          </Link>
        ))}
      </nav>
      {tab === "overview" ? <Overview task={task} /> : null}
      {tab === "log" ? <LogTab task={task} /> : null}
      {tab === "attempts" ? <AttemptsTab task={task} /> : null}
      {tab === "files" ? <FilesTab task={task} /> : null}
      {tab === "definition" ? <Json value={task.definition} label="Definition" /> : null}
    </main>
  );
}

function Overview({ task }: { task: Task }) {
  const why = useQuery({ ...whyQuery(task.id), enabled: isHeld(task.state) });
  return (
    <div className="grid">
      <div className="col-7 stack">
        {isHeld(task.state) && why.data !== undefined ? <WhyCard why={why.data} /> : null}
        {task.note === null ? null : (
          <div className="notice tone-bad">
            <Said>{task.note}</Said>
          </div>
        )}
        {task.progress === null ? null : (
          <Card title="Progress">
            <Said>{task.progress}</Said>
          </Card>
        )}
        <StoryCard id={task.id} />
        {task.result === null ? null : (
          <Card title="Result">
            <Json value={task.result} label="Result" />
          </Card>
        )}
      </div>
      <div className="col-5 stack">
        <Card title="About">
          <Facts>
            <Fact name="Priority">{task.priority}</Fact>
            <Fact name="Reruns left">
              {task.rerunsLeft} of {task.rerunsAllowed}
            </Fact>
            <Fact name="Retries left">{task.retries_left}</Fact>
            {task.exit_code === null ? null : <Fact name="Exit code">{task.exit_code}</Fact>}
            {task.deadline_ms === null ? null : <Fact name="Deadline">{moment(task.deadline_ms)}</Fact>}
            {task.not_before_ms === null ? null : <Fact name="Not before">{moment(task.not_before_ms)}</Fact>}
            <Fact name="For">
              <Said>{task.user}</Said>
            </Fact>
            <Fact name="Created">
              <Ago at={task.created_ms} />
            </Fact>
            <Fact name="Routing">
              <code className="break">{visible(task.routing)}</code>
            </Fact>
            {task.inner_graph === null ? null : (
              <Fact name="Graph inside">
                <Link className="link" href={`/graphs/${task.inner_graph}`}>
                  {shortId(task.inner_graph)}
                </Link>
              </Fact>
            )}
            {task.reused === null ? null : (
              <Fact name="Reuses">
                <Link className="link" href={`/tasks/${task.reused.task}`}>
                  attempt {task.reused.attempt} of task {shortId(task.reused.task)}
                </Link>
                {task.reused.saved_ms === null ? "" : `, which saved ${span(task.reused.saved_ms)}`}
              </Fact>
            )}
            <Fact name="Tags">
              <span className="row wrap">
                {task.tags.map((tag) => (
                  <Link key={tag} className="chip" href={`/tasks?tag=${encodeURIComponent(tag)}`}>
                    {visible(tag)}
                  </Link>
                ))}
              </span>
            </Fact>
          </Facts>
        </Card>
        <Card title="Requires">
          {task.requires.length === 0 ? (
            <span className="faint">nothing</span>
          ) : (
            <ul className="stack tight">
              {task.requires.map((edge) => (
                <li key={edge.task} className="row between">
                  <Link className="link ellipsis" href={`/tasks/${edge.task}`}>
                    <Said>{edge.label}</Said>
                  </Link>
                  <span className="small faint">on {edge.on}</span>
                </li>
              ))}
            </ul>
          )}
        </Card>
        <Dependents ids={task.dependents} />
      </div>
    </div>
  );
}

const DEPENDENTS_SHOWN = 12;

function Dependents({ ids }: { ids: string[] }) {
  const tasks = ids.filter((id) => id !== "task-graph");
  return tasks.length === 0 ? null : (
    <Card title={<>Dependents <span className="count">{tasks.length}</span></>}>
      <div className="row wrap">
        {tasks.slice(0, DEPENDENTS_SHOWN).map((id) => (
          <Dependent key={id} id={id} />
        ))}
        {tasks.length > DEPENDENTS_SHOWN ? <span className="faint small">and {tasks.length - DEPENDENTS_SHOWN} more</span> : null}
      </div>
    </Card>
  );
}

function Dependent({ id }: { id: string }) {
  const found = useQuery({ ...taskQuery(id), staleTime: 30_000 });
  return (
    <Link href={`/tasks/${id}`} className="chip">
      {found.data === undefined ? shortId(id) : (
        <>
          <StateIcon state={found.data.state} size={12} />
          {visible(found.data.label)}
        </>
      )}
    </Link>
  );
}

function StoryCard({ id }: { id: string }) {
  const found = useQuery(storyQuery(id));
  const items = found.data?.items ?? [];
  return (
    <Card title="Story">
      {found.isPending ? (
        <Loading />
      ) : found.error !== null ? (
        <Problem error={found.error} />
      ) : (
        <ol className="timeline">
          {items.map((item, place) => (
            <li key={place}>
              <StateIcon state={item.target ?? "unscheduled"} />
              <span className="break">
                <strong>{item.target ?? (item.action === null ? "" : reasonText(item.action))}</strong>
                {item.cause === "" ? null : (
                  <span className="soft">
                    {" "}
                    · <Said>{item.cause}</Said>
                  </span>
                )}
                {item.cause_task === null ? null : (
                  <>
                    {" "}
                    <Link className="link" href={`/tasks/${item.cause_task}`}>
                      {visible(item.cause_label ?? "that task")}
                    </Link>
                  </>
                )}
                {item.note === null || item.note === "" ? null : (
                  <span className="faint">
                    {" "}
                    “<Said>{item.note}</Said>”
                  </span>
                )}
              </span>
              <span className="small faint nowrap numbers right" title={moment(item.at_ms)}>
                {clock(item.at_ms)}
                {item.after_ms >= 10 ? ` (+${span(item.after_ms)})` : ""}
              </span>
            </li>
          ))}
        </ol>
      )}
      {found.data?.whole === false ? <p className="faint small">The oldest part is not shown.</p> : null}
    </Card>
  );
}

function useAttempt(task: Task): [number, (attempt: number) => void] {
  const [params, setParams] = useParams();
  const asked = Number(params.get("attempt"));
  const attempt = Number.isInteger(asked) && asked >= 1 && asked <= task.attempt ? asked : task.attempt;
  return [attempt, (next) => setParams({ attempt: String(next), line: null })];
}

function AttemptPicker({ task, attempt, onPick }: { task: Task; attempt: number; onPick: (attempt: number) => void }) {
  if (task.attempt < 2) {
    return null;
  }
  return (
    <label className="row small soft">
      Attempt
      <select className="input" style={{ width: 90 }} value={attempt} onChange={(event) => onPick(Number(event.target.value))}>
        {Array.from({ length: task.attempt }, (_, place) => (
          <option key={place + 1}>{place + 1}</option>
        ))}
      </select>
    </label>
  );
}

function LogTab({ task }: { task: Task }) {
  const [attempt, setAttempt] = useAttempt(task);
  const [params, setParams] = useParams();
  if (task.attempt === 0 && task.reused === null) {
    return <Empty title="There is no output yet">The task has not begun.</Empty>;
  }
  const line = Number(params.get("line"));
  const isLive = attempt === task.attempt && (task.state === "running" || task.state === "stopping");
  return (
    <div className="stack tight">
      <AttemptPicker task={task} attempt={attempt} onPick={setAttempt} />
      <Log
        key={attempt}
        task={task.id}
        attempt={Math.max(1, attempt)}
        isLive={isLive}
        line={Number.isInteger(line) && line > 0 ? line : null}
        onLine={(next) => setParams({ attempt: String(attempt), line: String(next) })}
      />
    </div>
  );
}

type Attempt = Schemas["AttemptView"];

const STATS: [string, (attempt: Attempt) => string][] = [
  ["Waited for a bot", (one) => optional(one.stats?.queued_ms, span)],
  ["Prepared", (one) => optional(one.stats?.prepared_ms, span)],
  ["Caches in place", (one) => optional(one.stats?.cached_ms, span)],
  ["Files downloaded", (one) => optional(one.stats?.downloaded_ms, span)],
  ["Ran", (one) => optional(one.stats?.ran_ms, span)],
  ["Output sent", (one) => optional(one.stats?.uploaded_ms, span)],
  ["Cleaned up", (one) => optional(one.stats?.cleaned_ms, span)],
  ["Processor time", (one) => optional(one.stats?.cpu_s, (seconds) => span(seconds * 1_000))],
  ["Memory", (one) => optional(one.stats?.memory_bytes, bytes)],
  ["Read", (one) => optional(one.stats?.read_bytes, bytes)],
  ["Written", (one) => optional(one.stats?.written_bytes, bytes)],
  ["Output", (one) => `${bytes(one.output_bytes)}${one.truncated ? ", cut" : ""}`],
];

function optional(value: number | null | undefined, write: (value: number) => string): string {
  return value === null || value === undefined ? "–" : write(value);
}

/** How an attempt ended, in the word of a state. */
function endOf(attempt: Attempt): string {
  const ends: Record<string, string> = { succeed: "successful", fail: "failed", cancel: "canceled" };
  return attempt.signal === null ? "running" : (ends[attempt.signal] ?? "error");
}

/** Attempts side by side: one column each, so that what differs is seen. */
function AttemptsTab({ task }: { task: Task }) {
  const found = useQuery(attemptsQuery(task.id));
  const attempts = found.data?.items ?? [];
  if (found.isPending) {
    return <Loading />;
  }
  if (found.error !== null) {
    return <Problem error={found.error} />;
  }
  if (attempts.length === 0) {
    return <Empty title="The task has not been tried yet" />;
  }
  const rows: [string, (attempt: Attempt) => React.ReactNode][] = [
    ["Outcome", (one) => <State state={endOf(one)} detail={one.reason === null ? "" : reasonText(one.reason)} />],
    ["Bot", (one) => (one.bot === "" ? "the server" : <Link className="link" href={`/fleet/bots/${encodeURIComponent(one.bot)}`}>{visible(one.bot)}</Link>)],
    ["Began", (one) => moment(one.claimed_ms)],
    ["Took", (one) => <Took from={one.claimed_ms} to={one.ended_ms} />],
    ["Exit code", (one) => one.exit_code ?? "–"],
    ["Round", (one) => one.round],
    ["Slice", (one) => one.slice_index + 1],
    ...STATS,
    ["Bot's dimensions", (one) => (one.bot_dimensions === null ? "–" : <span className="small break">{visible(dimensions(one.bot_dimensions))}</span>)],
    ["Result", (one) => (one.result === null ? "–" : <code className="small break">{visible(JSON.stringify(one.result)).slice(0, 300)}</code>)],
    ["Log", (one) => <Link className="link" href={`/tasks/${task.id}/log?attempt=${one.number}`}>open</Link>],
  ];
  return (
    <Card flush>
      <div className="table-wrap" role="region" aria-label="Attempts" tabIndex={0}>
        <table className="table">
          <thead>
            <tr>
              <th scope="col">
                <span className="hidden-text">What</span>
              </th>
              {attempts.map((one) => (
                <th key={one.number} scope="col">
                  Attempt {one.number}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, write]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {attempts.map((one) => (
                  <td key={one.number} className="numbers">
                    {write(one)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function FilesTab({ task }: { task: Task }) {
  const [attempt, setAttempt] = useAttempt(task);
  const has = task.attempt > 0 && task.files !== null;
  const artifacts = useQuery({ ...artifactsQuery(task.id, attempt), enabled: has });
  const files = useQuery({ ...filesQuery(task.id, attempt), enabled: has });
  if (!has) {
    return <Empty title="It left no files" />;
  }
  return (
    <div className="stack">
      <AttemptPicker task={task} attempt={attempt} onPick={setAttempt} />
      {(artifacts.data?.items.length ?? 0) === 0 ? null : (
        <Card title="Artifacts">
          <ul className="stack tight">
            {artifacts.data?.items.map((one) => (
              <li key={one.name} className="row between">
                <a className="link break" href={`/api/v1/tasks/${task.id}/artifacts/${encodeURIComponent(one.name)}?attempt=${attempt}`} download>
                  <Said>{one.name}</Said>
                </a>
                <span className="small faint nowrap">
                  {visible(one.content_type)} · {bytes(one.size)}
                </span>
              </li>
            ))}
          </ul>
        </Card>
      )}
      {files.error === null ? null : <Problem error={files.error} />}
      <Card title="Files">
        <ul className="stack tight">
          {files.data?.items.map((one) => (
            <li key={one.path} className="row between">
              {one.digest === null ? (
                <span className="break soft">
                  <Said>{one.link === null ? `${one.path}/` : `${one.path} → ${one.link}`}</Said>
                </span>
              ) : (
                <a className="link break mono" href={`/api/v1/tasks/${task.id}/files/${one.path.split("/").map(encodeURIComponent).join("/")}?attempt=${attempt}`} download>
                  <Said>{one.path}</Said>
                </a>
              )}
              <span className="small faint nowrap">{bytes(one.size)}</span>
            </li>
          ))}
        </ul>
        {files.data?.next === null ? null : <p className="faint small">Only the first are shown.</p>}
      </Card>
    </div>
  );
}
