/** A drawing of thousands of tasks with sigma, which draws on a canvas. It is a part of its own of the page. */

import { DirectedGraph } from "graphology";
import { useEffect, useRef } from "react";
import Sigma from "sigma";
import { visible } from "../lib/format";
import { hex, type Palette, palette } from "../lib/colours";
import { lookOf } from "../lib/states";
import { type Layout, type States, stateOf } from "./model";

/** Marks before labels tell states apart without colour. */
const MARKS: Record<string, string> = { successful: "✓", failed: "✗", error: "!", running: "▶", blocked: "■", canceled: "⊘", skipped: "»", waiting: "◷", pending: "‖" };

interface CanvasProps {
  layout: Layout;
  states: States | undefined;
  critical: ReadonlySet<string>;
  chosen: string | null;
  onChoose: (task: string) => void;
}

/** Sigma takes colours as `#rrggbb`. */
function colours(element: Element): Palette {
  return Object.fromEntries(Object.entries(palette(element)).map(([name, colour]) => [name, hex(colour)])) as Palette;
}

export function CanvasDrawing({ layout, states, critical, chosen, onChoose }: CanvasProps) {
  const element = useRef<HTMLDivElement>(null);
  const drawn = useRef<{ graph: DirectedGraph; sigma: Sigma; look: Palette } | null>(null);
  const choose = useRef(onChoose);
  useEffect(() => {
    choose.current = onChoose;
  });
  useEffect(() => {
    const container = element.current;
    if (container === null) {
      return;
    }
    const look = colours(container);
    const graph = new DirectedGraph();
    layout.ids.forEach((id, task) => graph.addNode(id, { x: layout.x[task], y: -(layout.y[task] ?? 0), size: 3, label: visible(layout.names[task] ?? ""), color: look.quiet }));
    layout.edges.forEach(([from, to]) => graph.mergeEdge(layout.ids[from ?? 0], layout.ids[to ?? 0], { color: look.strong, size: 0.4 }));
    const sigma = new Sigma(graph, container, {
      labelColor: { color: look.text },
      labelRenderedSizeThreshold: 7,
      hideEdgesOnMove: true,
      minCameraRatio: 0.005,
      zIndex: true,
    });
    sigma.on("clickNode", ({ node }) => choose.current(node));
    drawn.current = { graph, sigma, look };
    return () => {
      drawn.current = null;
      sigma.kill();
    };
  }, [layout]);
  useEffect(() => {
    const found = drawn.current;
    if (found === null) {
      return;
    }
    const { graph, sigma, look } = found;
    const places = new Map(layout.ids.map((id, task) => [id, task]));
    // One change of all nodes: sigma would draw after each of thousands.
    graph.updateEachNodeAttributes((id, known) => {
      const task = places.get(id) ?? 0;
      const state = stateOf(states, task);
      const isMarked = critical.has(id) || id === chosen;
      return {
        ...known,
        color: look[lookOf(state).tone],
        label: `${MARKS[state] ?? "·"} ${visible(layout.names[task] ?? "")}`,
        size: isMarked ? 6 : 3,
        zIndex: isMarked ? 1 : 0,
        highlighted: id === chosen,
      };
    });
    sigma.refresh();
  }, [layout, states, critical, chosen]);
  return <div ref={element} style={{ width: "100%", height: "100%" }} role="img" aria-label={`Drawing of ${layout.size} tasks; the table lists them`} />;
}
