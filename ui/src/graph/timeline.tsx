/** The timeline of a graph: one bar for the last attempt of each task, in rows of bots or of tasks, on a canvas. */

import { useQuery } from "@tanstack/react-query";
import { type PointerEvent as ReactPointerEvent, useEffect, useMemo, useRef, useState } from "react";
import { layoutQuery, pathQuery, timesQuery } from "../api/queries";
import { Button, Card, Empty, Loading, Problem } from "../components/basics";
import { palette } from "../lib/colours";
import { span, visible } from "../lib/format";
import { useNow } from "../lib/now";
import type { Graph } from "../lib/states";
import { type Bar, barAt, barsOf, drawBars, type View } from "./bars";

/** With more tasks, rows are bots: nobody reads a thousand rows. */
const TASK_ROWS_MAX = 60;
const ZOOM = 1.25;

export function Timeline({ graph, onChoose }: { graph: Graph; onChoose: (task: string) => void }) {
  const layout = useQuery(layoutQuery(graph.id, "tasks"));
  const times = useQuery(timesQuery(graph.id));
  const path = useQuery(pathQuery(graph.id));
  const [rows, setRows] = useState<"auto" | "tasks" | "bots">("auto");
  const byBot = rows === "auto" ? (layout.data?.size ?? 0) > TASK_ROWS_MAX : rows === "bots";
  const critical = useMemo(() => new Set(path.data?.path.map((one) => one.task)), [path.data]);
  const found = useMemo(
    () => (layout.data === undefined || times.data === undefined ? null : barsOf(layout.data, times.data, byBot, critical)),
    [layout.data, times.data, byBot, critical],
  );
  const error = layout.error ?? times.error;
  if (error !== null && found === null) {
    return <Problem error={error} />;
  }
  return (
    <Card
      title="When tasks ran"
      actions={
        <div className="segments" role="group" aria-label="Rows">
          {(["tasks", "bots"] as const).map((one) => (
            <button key={one} type="button" aria-pressed={byBot === (one === "bots")} onClick={() => setRows(one)}>
              by {one.slice(0, -1)}
            </button>
          ))}
        </div>
      }
    >
      {found === null ? <Loading /> : found.bars.length === 0 ? <Empty title="No task has begun yet" /> : <Bars key={String(byBot)} {...found} begin={graph.created_ms} isMoving={!graph.settled} onChoose={onChoose} />}
    </Card>
  );
}

interface BarsProps {
  names: string[];
  bars: Bar[];
  begin: number;
  isMoving: boolean;
  onChoose: (task: string) => void;
}

/** The wheel zooms, dragging moves, a click chooses. */
function Bars({ names, bars, begin, isMoving, onChoose }: BarsProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const second = useNow();
  const now = isMoving ? second : 0;
  const end = useMemo(() => Math.max(...bars.map((bar) => bar.to || now), begin + 1), [bars, now, begin]);
  const [zoomed, setZoomed] = useState<{ from: number; to: number; row: number } | null>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [theme, setTheme] = useState(0);
  const [tip, setTip] = useState<{ bar: Bar; x: number; y: number } | null>(null);
  const drag = useRef<{ x: number; y: number; view: View; moved: boolean } | null>(null);
  const view = useMemo<View>(
    () => ({ from: zoomed?.from ?? begin, to: zoomed?.to ?? end, row: zoomed?.row ?? 0, begin, now, ...size }),
    [zoomed, begin, end, now, size],
  );

  useEffect(() => {
    const element = canvas.current;
    const frame = element?.parentElement;
    if (element === null || frame === null || frame === undefined) {
      return undefined;
    }
    const sized = new ResizeObserver(() => setSize({ width: frame.clientWidth, height: frame.clientHeight }));
    sized.observe(frame);
    const themed = new MutationObserver(() => setTheme((count) => count + 1));
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      sized.disconnect();
      themed.disconnect();
    };
  }, []);
  useEffect(() => {
    const element = canvas.current;
    if (element !== null && size.width > 0) {
      drawBars(element, names, bars, view, palette(element.parentElement ?? element));
    }
  }, [names, bars, view, size, theme]);
  useEffect(() => {
    const element = canvas.current;
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      const at = view.from + (event.offsetX / Math.max(1, size.width)) * (view.to - view.from);
      if (event.ctrlKey || Math.abs(event.deltaY) >= Math.abs(event.deltaX)) {
        const factor = event.deltaY > 0 ? ZOOM : 1 / ZOOM;
        setZoomed({ from: at - (at - view.from) * factor, to: at + (view.to - at) * factor, row: view.row });
      }
    };
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, [view, size]);

  const onMove = (event: ReactPointerEvent) => {
    const { offsetX: x, offsetY: y } = event.nativeEvent;
    const held = drag.current;
    if (held === null) {
      const bar = barAt(names, bars, view, x, y);
      setTip(bar === null ? null : { bar, x: Math.min(x + 12, size.width - 200), y: y + 14 });
      return;
    }
    held.moved ||= Math.abs(event.clientX - held.x) + Math.abs(event.clientY - held.y) > 4;
    if (held.moved) {
      const shift = ((held.x - event.clientX) / Math.max(1, size.width)) * (held.view.to - held.view.from);
      const row = Math.max(0, Math.min(names.length - 1, held.view.row + (held.y - event.clientY) / 20));
      setZoomed({ from: held.view.from + shift, to: held.view.to + shift, row });
    }
  };
  const onUp = (event: ReactPointerEvent) => {
    const wasMoved = drag.current?.moved ?? true;
    drag.current = null;
    const bar = wasMoved ? null : barAt(names, bars, view, event.nativeEvent.offsetX, event.nativeEvent.offsetY);
    if (bar !== null) {
      onChoose(bar.id);
    }
  };
  return (
    <div className="stack tight">
      <div className="row between">
        <span className="small faint">The wheel zooms, dragging moves. A bar with a frame is on the critical path; a striped one failed.</span>
        <Button kind="small" disabled={zoomed === null} onClick={() => setZoomed(null)}>
          Show all
        </Button>
      </div>
      <div className="gantt">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Timeline of ${bars.length} tasks; the table has the same times`}
          onPointerMove={onMove}
          onPointerLeave={() => setTip(null)}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            drag.current = { x: event.clientX, y: event.clientY, view, moved: false };
          }}
          onPointerUp={onUp}
        />
        {tip === null ? null : (
          <div className="tip" style={{ left: tip.x, top: tip.y }}>
            <strong>{visible(tip.bar.label)}</strong>
            <div>
              {tip.bar.state}, {span((tip.bar.to || now) - tip.bar.from)}
            </div>
            <div className="faint">after {span(tip.bar.from - begin)}</div>
          </div>
        )}
      </div>
    </div>
  );
}

