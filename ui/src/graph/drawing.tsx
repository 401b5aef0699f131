/** The drawing of a graph: every task of a small one, groups of a large one, and on request all tasks of it. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useCallback, useEffect, useMemo, useState } from "react";
import { layoutQuery, pathQuery, statesQuery } from "../api/queries";
import { Empty, Loading, Problem } from "../components/basics";
import { useToast } from "../components/dialog";
import { number, plural } from "../lib/format";
import { FlowDrawing } from "./flow";
import { BOXES_MAX, drawGroups, drawTasks, EXPANDED_MAX } from "./model";

const CanvasDrawing = lazy(() => import("./canvas").then((found) => ({ default: found.CanvasDrawing })));

interface DrawingProps {
  id: string;
  chosen: string | null;
  onChoose: (task: string | null) => void;
}

export function GraphDrawing({ id, chosen, onChoose }: DrawingProps) {
  const [showsAll, setShowsAll] = useState(false);
  const [expanded, setExpanded] = useState<ReadonlySet<number>>(new Set());
  const queries = useQueryClient();
  const tell = useToast();
  const first = useQuery(layoutQuery(id, "auto"));
  const isGrouped = first.data?.view === "groups";
  const tasks = useQuery({ ...layoutQuery(id, "tasks"), enabled: isGrouped && (showsAll || expanded.size > 0) });
  const states = useQuery(statesQuery(id));
  const path = useQuery(pathQuery(id));
  const critical = useMemo(() => new Set(path.data?.path.map((one) => one.task)), [path.data]);

  const size = first.data?.size;
  const count = states.data?.tasks.length;
  useEffect(() => {
    // The graph was extended since it was laid out.
    if (size !== undefined && count !== undefined && count > size) {
      void queries.invalidateQueries({ queryKey: ["layout", id] });
    }
  }, [size, count, queries, id]);

  const drawing = useMemo(() => {
    if (first.data === undefined) {
      return null;
    }
    return isGrouped ? drawGroups(first.data, tasks.data, states.data, expanded) : drawTasks(first.data, states.data);
  }, [first.data, isGrouped, tasks.data, states.data, expanded]);

  const toggle = useCallback(
    (group: number, members: number) => {
      if (members > EXPANDED_MAX) {
        tell("quiet", `A group of ${number(members)} tasks is not expanded here: show all tasks, or use the table.`);
        return;
      }
      setExpanded((before) => {
        const next = new Set(before);
        if (!next.delete(group)) {
          next.add(group);
        }
        return next;
      });
    },
    [tell],
  );

  if (first.error !== null && first.data === undefined) {
    return <Problem error={first.error} again={() => void first.refetch()} />;
  }
  if (first.data === undefined || drawing === null) {
    return <Loading />;
  }
  if (first.data.size === 0) {
    return <Empty title="This graph has no tasks" />;
  }
  const all = isGrouped && showsAll ? tasks.data : undefined;
  return (
    <div className="stack tight">
      {isGrouped ? (
        <div className="toolbar">
          <div className="segments" role="group" aria-label="What is drawn">
            <button type="button" aria-pressed={!showsAll} onClick={() => setShowsAll(false)}>
              Groups
            </button>
            <button type="button" aria-pressed={showsAll} onClick={() => setShowsAll(true)}>
              All tasks
            </button>
          </div>
          <span className="small faint">
            {plural(first.data.size, "task")} in {plural(first.data.names.length, "group")}; a click on a group shows its tasks.
          </span>
        </div>
      ) : null}
      <div className="drawing" data-drawn={drawing.boxes.length}>
        {showsAll && isGrouped ? (
          all === undefined ? (
            <Loading />
          ) : all.size <= BOXES_MAX ? (
            <FlowDrawing drawing={drawTasks(all, states.data)} critical={critical} chosen={chosen} onChoose={onChoose} />
          ) : (
            <Suspense fallback={<Loading />}>
              <CanvasDrawing layout={all} states={states.data} critical={critical} chosen={chosen} onChoose={onChoose} />
            </Suspense>
          )
        ) : (
          <FlowDrawing drawing={drawing} critical={critical} chosen={chosen} onChoose={onChoose} onToggle={toggle} />
        )}
      </div>
    </div>
  );
}
