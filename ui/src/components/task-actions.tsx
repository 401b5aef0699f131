/** What can be done with a task: each action says what it will do before it does it. */

import { useLocation } from "wouter";
import { approveTask, cancelGraph, cancelTask, rerunGraph, rerunTask } from "../api/queries";
import { plural, shortId, visible } from "../lib/format";
import { hasEnded, type Task } from "../lib/states";
import { Button } from "./basics";
import { useAct } from "./dialog";

const COULD_RERUN = new Set(["failed", "error", "canceled"]);

export function TaskActions({ task, whole = false }: { task: Task; whole?: boolean }) {
  const act = useAct();
  const [, navigate] = useLocation();
  const label = visible(task.label);
  const isApproval = task.kind === "approval" && task.state === "running";
  const decide = (approved: boolean) =>
    act({
      title: approved ? `Approve ${label}?` : `Deny ${label}?`,
      effect: <p>{approved ? "The task succeeds, and what waits for it goes on." : "The task fails, and what requires its success is blocked."} Your name and your comment are in its story.</p>,
      verb: approved ? "Approve" : "Deny",
      destroys: !approved,
      comment: "Comment (may be left out)",
      run: async (comment) => {
        await approveTask(task.id, approved, comment);
        return approved ? `${label} is approved.` : `${label} is denied.`;
      },
    });
  return (
    <>
      {isApproval ? (
        <>
          <Button kind="primary" onClick={() => decide(true)}>
            Approve
          </Button>
          <Button kind="danger" onClick={() => decide(false)}>
            Deny
          </Button>
        </>
      ) : null}
      {COULD_RERUN.has(task.state) ? (
        <Button
          icon="again"
          onClick={() =>
            act({
              title: `Rerun ${label}?`,
              effect: <p>The task runs again, with a fresh budget of reruns and retries. What it blocked can go on when it succeeds. Its past attempts are kept.</p>,
              verb: "Rerun",
              run: async () => {
                const done = await rerunTask(task.id);
                return done.echo ? "It runs again already." : `${label} will run again.`;
              },
            })
          }
        >
          Rerun
        </Button>
      ) : null}
      {whole && hasEnded(task.state) ? (
        <Button
          onClick={() =>
            act({
              title: `Run again from ${label}?`,
              effect: <p>A new graph is made: it runs {label} and everything behind it again, and reuses the results of the rest. This graph stays as it is.</p>,
              verb: "Make the new graph",
              run: async () => {
                const done = await rerunGraph(task.graph_id, { from: [task.label] });
                navigate(`/graphs/${done.subject}`);
                return `Graph ${shortId(done.subject)} runs again from ${label}; ${plural(done.reused, "task")} reused.`;
              },
            })
          }
        >
          Run from here
        </Button>
      ) : null}
      {hasEnded(task.state) ? null : (
        <Button
          icon="stop"
          kind="danger"
          onClick={() =>
            act({
              title: `Cancel ${label}?`,
              effect: <p>{task.state === "running" ? `Its process on ${visible(task.bot ?? "its bot")} is stopped. ` : "It will not run. "}For the tasks behind it, that counts as a failure.</p>,
              verb: "Cancel the task",
              destroys: true,
              run: async () => {
                const done = await cancelTask(task.id, false);
                return done.echo ? "It was canceled before." : `${label} is being canceled.`;
              },
            })
          }
        >
          Cancel
        </Button>
      )}
      {whole && !hasEnded(task.state) ? (
        <Button
          kind="danger"
          onClick={() =>
            act({
              title: `Cancel ${label} and everything behind it?`,
              effect: <p>The task and all tasks that depend on it, directly or not, are canceled.</p>,
              verb: "Cancel them all",
              destroys: true,
              run: async () => {
                const done = await cancelGraph(task.graph_id, [task.label]);
                return `${plural(done.moved, "task")} canceled.`;
              },
            })
          }
        >
          Cancel with dependents
        </Button>
      ) : null}
    </>
  );
}
