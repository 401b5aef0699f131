/** What is known of the task that was chosen in a drawing, a table or a timeline. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { taskQuery, whyQuery } from "../api/queries";
import { Ago, Button, Card, Fact, Facts, Loading, Problem, Said, State, Took } from "../components/basics";
import { TaskActions } from "../components/task-actions";
import { visible } from "../lib/format";
import { isHeld, reasonText } from "../lib/states";

export function TaskPanel({ id, onClose }: { id: string; onClose: () => void }) {
  const found = useQuery(taskQuery(id));
  const task = found.data;
  const why = useQuery({ ...whyQuery(id), enabled: task !== undefined && isHeld(task.state) });
  return (
    <aside aria-label="The chosen task">
      <Card
        title={task === undefined ? "Task" : <Said>{task.label}</Said>}
        actions={<Button kind="ghost small icon" icon="close" aria-label="Close" onClick={onClose} />}
      >
        {task === undefined ? (
          found.error === null ? <Loading /> : <Problem error={found.error} />
        ) : (
          <div className="stack">
            <State state={task.state} badge detail={task.reason === "" ? "" : reasonText(task.reason)} />
            {why.data === undefined ? null : (
              <p className="small break">
                <Said>{why.data.sentence}</Said>
              </p>
            )}
            <Facts>
              <Fact name="Kind">{task.kind}</Fact>
              <Fact name="Attempt">{task.attempt === 0 ? "none yet" : task.attempt}</Fact>
              {task.bot === null ? null : (
                <Fact name="Bot">
                  <Link className="link" href={`/fleet/bots/${encodeURIComponent(task.bot)}`}>
                    {visible(task.bot)}
                  </Link>
                </Fact>
              )}
              {task.started_ms === null ? null : (
                <Fact name="Took">
                  <Took from={task.started_ms} to={task.ended_ms} />
                </Fact>
              )}
              {task.exit_code === null ? null : <Fact name="Exit code">{task.exit_code}</Fact>}
              {task.progress === null ? null : <Fact name="Progress"><Said>{task.progress}</Said></Fact>}
              <Fact name="Changed">
                <Ago at={task.moved_ms} />
              </Fact>
              <Fact name="Requires">
                {task.requires.length === 0 ? "nothing" : task.requires.map((edge) => (
                  <Link key={edge.task} className="chip" href={`?task=${edge.task}`}>
                    {visible(edge.label)}
                  </Link>
                ))}
              </Fact>
            </Facts>
            <div className="row wrap">
              <Link className="button primary" href={`/tasks/${id}`}>
                Open
              </Link>
              <Link className="button" href={`/tasks/${id}/log`}>
                Log
              </Link>
              <TaskActions task={task} />
            </div>
          </div>
        )}
      </Card>
    </aside>
  );
}
