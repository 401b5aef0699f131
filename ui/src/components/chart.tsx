/** Charts over time: curves or stacked bars as SVG, with the numbers of the moment under the pointer. */

import { type PointerEvent, useEffect, useRef, useState } from "react";
import { clock } from "../lib/format";
import type { Tone } from "../lib/states";

export interface Series {
  name: string;
  tone: Tone;
  values: number[];
}

interface ChartProps {
  /** The moment of each value. */
  at: number[];
  series: Series[];
  kind: "curves" | "bars";
  label: string;
  write: (value: number) => string;
  /** The top of the scale is at least this. */
  least: number;
}

const HEIGHT = 170;
const LEFT = 44;
const BOTTOM = 20;
const TOP = 8;

export function Chart({ at, series, kind, label, write, least }: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  const [over, setOver] = useState<number | null>(null);
  useEffect(() => {
    const found = frame.current;
    if (found === null) {
      return undefined;
    }
    const watch = new ResizeObserver(() => setWidth(found.clientWidth));
    watch.observe(found);
    return () => watch.disconnect();
  }, []);
  const inner = Math.max(50, width - LEFT - 8);
  const step = inner / Math.max(1, at.length);
  const sums = at.map((_, place) => series.reduce((sum, one) => (kind === "bars" ? sum + (one.values[place] ?? 0) : Math.max(sum, one.values[place] ?? 0)), 0));
  const top = roundUp(Math.max(least, ...sums));
  const x = (place: number) => LEFT + (place + 0.5) * step;
  const y = (value: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const onMove = (event: PointerEvent) => {
    const place = Math.floor((event.clientX - event.currentTarget.getBoundingClientRect().left - LEFT) / step);
    setOver(place >= 0 && place < at.length ? place : null);
  };
  const shown = over ?? at.length - 1;
  return (
    <div ref={frame} className="stack tight">
      <svg className="chart" width={width} height={HEIGHT} role="img" aria-label={`${label}: ${series.map((one) => `${one.name} ${write(one.values.at(-1) ?? 0)}`).join(", ")}`} onPointerMove={onMove} onPointerLeave={() => setOver(null)}>
        {[0, 0.5, 1].map((part) => (
          <g key={part}>
            <line className="axis" x1={LEFT} x2={width - 8} y1={y(top * part)} y2={y(top * part)} />
            <text x={LEFT - 6} y={y(top * part) + 4} textAnchor="end">
              {write(top * part)}
            </text>
          </g>
        ))}
        {[0, 0.5, 1].map((part) => {
          const place = Math.round((at.length - 1) * part);
          const moment = at[place];
          return moment === undefined ? null : (
            <text key={part} x={x(place)} y={HEIGHT - 5} textAnchor={part === 0 ? "start" : part === 1 ? "end" : "middle"}>
              {clock(moment).replace(/:\d\d(?= |$)/, "")}
            </text>
          );
        })}
        {kind === "curves" ? series.map((one) => <Curve key={one.name} series={one} x={x} y={y} />) : <Bars series={series} x={x} y={y} width={Math.max(1, step * 0.78)} count={at.length} />}
        {over === null ? null : <line className="cursor" x1={x(over)} x2={x(over)} y1={TOP} y2={HEIGHT - BOTTOM} />}
      </svg>
      <div className="legend" aria-hidden="true">
        {series.map((one) => (
          <span key={one.name} className={`tone-${one.tone} numbers`}>
            <i />
            {one.name} {write(one.values[shown] ?? 0)}
          </span>
        ))}
        {over === null || at[over] === undefined ? null : <span className="faint">{clock(at[over])}</span>}
      </div>
    </div>
  );
}

function Curve({ series, x, y }: { series: Series; x: (place: number) => number; y: (value: number) => number }) {
  const points = series.values.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
  if (points.length === 0) {
    return null;
  }
  return (
    <g className={`tone-${series.tone}`}>
      <path className="area" d={`M${x(0)},${y(0)}L${points.join("L")}L${x(points.length - 1)},${y(0)}Z`} />
      <path className="curve" d={`M${points.join("L")}`} />
    </g>
  );
}

interface BarsProps {
  series: Series[];
  x: (place: number) => number;
  y: (value: number) => number;
  width: number;
  count: number;
}

function Bars({ series, x, y, width, count }: BarsProps) {
  const base = Array.from({ length: count }, () => 0);
  return series.map((one) => (
    <path
      key={one.name}
      className={`bar tone-${one.tone}`}
      d={one.values
        .map((value, place) => {
          const low = base[place] ?? 0;
          base[place] = low + value;
          return value === 0 ? "" : `M${(x(place) - width / 2).toFixed(1)},${y(low).toFixed(1)}V${y(low + value).toFixed(1)}h${width.toFixed(1)}V${y(low).toFixed(1)}Z`;
        })
        .join("")}
    />
  ));
}

/** The next number that reads well: 1, 2 or 5 times a power of ten. */
export function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((one) => one * power >= value) ?? 10) * power;
}
