/** A drawing of boxes with React Flow, which keeps only those in view in the document. */

import { Background, Controls, type Edge, Handle, MiniMap, type Node, type NodeProps, Position, ReactFlow } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { createContext, memo, useContext, useMemo } from "react";
import { CountBar } from "../components/basics";
import { StateIcon } from "../components/icons";
import { number, visible } from "../lib/format";
import { lookOf } from "../lib/states";
import type { Drawing, GroupBox, TaskBox } from "./model";

type TaskNode = Node<TaskBox & { critical: boolean; chosen: boolean } & Record<string, unknown>, "task">;
type GroupNode = Node<GroupBox & Record<string, unknown>, "group">;

const ActContext = createContext<{ choose: (task: string) => void; toggle: (group: number, size: number) => void }>({ choose: () => undefined, toggle: () => undefined });

/** With more boxes, only those in view are in the document. */
const WHOLE_MAX = 150;

const TaskShape = memo(function TaskShape({ data }: NodeProps<TaskNode>) {
  const { choose } = useContext(ActContext);
  const label = visible(data.label);
  return (
    <>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <button
        type="button"
        className={`node nodrag nopan tone-${lookOf(data.state).tone} ${data.critical ? "critical" : ""} ${data.chosen ? "chosen" : ""}`}
        title={`${label}: ${data.state}`}
        onClick={() => choose(data.id)}
      >
        <StateIcon state={data.state} />
        <span className="grow">
          <span className="name ellipsis" style={{ display: "block" }}>
            {label}
          </span>
          <span className="below">{data.critical ? `${data.state} · critical` : data.state}</span>
        </span>
      </button>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </>
  );
});

const GroupShape = memo(function GroupShape({ data }: NodeProps<GroupNode>) {
  const { toggle } = useContext(ActContext);
  const worst = ["failed", "error", "running", "blocked", "waiting", "pending", "unscheduled", "successful"].find((state) => (data.counts[state] ?? 0) > 0) ?? "skipped";
  const label = visible(data.label);
  return (
    <>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <button
        type="button"
        className={`node group nodrag nopan tone-${lookOf(worst).tone}`}
        title={label}
        onClick={() => toggle(data.group, data.size)}
      >
        <span className="row">
          <StateIcon state={worst} size={14} />
          <span className="name ellipsis grow">{label}</span>
          <span className="count">{number(data.size)}</span>
        </span>
        <CountBar counts={data.counts} />
      </button>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </>
  );
});

const SHAPES = { task: TaskShape, group: GroupShape };

interface FlowProps {
  drawing: Drawing;
  critical: ReadonlySet<string>;
  chosen: string | null;
  onChoose: (task: string) => void;
  onToggle?: (group: number, size: number) => void;
}

export function FlowDrawing({ drawing, critical, chosen, onChoose, onToggle }: FlowProps) {
  const nodes = useMemo(
    () =>
      drawing.boxes.map((box): TaskNode | GroupNode => {
        const common = { id: box.key, position: { x: box.x, y: box.y }, width: 208, height: box.kind === "task" ? 46 : 58 };
        return box.kind === "task"
          ? { ...common, type: "task", data: { ...box, critical: critical.has(box.id), chosen: box.id === chosen } }
          : { ...common, type: "group", data: { ...box } };
      }),
    [drawing, critical, chosen],
  );
  const edges = useMemo(
    () =>
      drawing.lines.map((line): Edge => {
        const isCritical = critical.has(line.from) && critical.has(line.to);
        return { id: line.key, source: line.from, target: line.to, focusable: false, className: `${isCritical ? "critical" : ""} ${line.on === "success" ? "" : "other"}` };
      }),
    [drawing, critical],
  );
  const actions = useMemo(() => ({ choose: onChoose, toggle: onToggle ?? (() => undefined) }), [onChoose, onToggle]);
  return (
    <ActContext value={actions}>
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={SHAPES}
        fitView
        fitViewOptions={{ padding: 0.12, maxZoom: 1.1, minZoom: 0.35 }}
        minZoom={0.03}
        maxZoom={2}
        nodesDraggable={false}
        nodesConnectable={false}
        nodesFocusable={false}
        edgesFocusable={false}
        elementsSelectable={false}
        onlyRenderVisibleElements={nodes.length > WHOLE_MAX}
        aria-label="Drawing of the graph"
      >
        <Background gap={24} />
        <Controls showInteractive={false} />
        {nodes.length > 30 ? <MiniMap pannable zoomable ariaLabel="Small map of the graph" nodeColor="var(--quiet-solid)" maskColor="rgb(127 127 127 / 18%)" /> : null}
      </ReactFlow>
    </ActContext>
  );
}
