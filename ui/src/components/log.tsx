/** The output of an attempt, as it comes: only lines in view are in the document, so that a million of them can be read. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { fetchRaw } from "../api/client";
import { pieces } from "../lib/ansi";
import { bytes, number } from "../lib/format";
import { LogBuffer } from "../lib/log";
import { Button, Problem, SearchField } from "./basics";
import { Icon } from "./icons";

const LINE_HEIGHT = 18;
/** How often new lines are drawn while they come. */
const DRAW_MS = 100;
/** How many lines one turn of a search looks at, so that the page stays responsive. */
const SEARCH_STEP = 50_000;
const HITS_MAX = 1_000;
const RETRY_MS = 1_500;

type Reading = "reading" | "following" | "ended" | "down";

/** Read an output from its beginning, follow it to its end, and go on after an outage. */
function useOutput(task: string, attempt: number, isLive: boolean) {
  const buffer = useMemo(() => new LogBuffer(), []);
  const [shown, setShown] = useState({ lines: 0, size: 0 });
  const [reading, setReading] = useState<Reading>("reading");
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = () => {
      timer = undefined;
      setShown({ lines: buffer.lines, size: buffer.length });
    };
    const read = async () => {
      const query = new URLSearchParams({ attempt: String(attempt), start: String(buffer.length), follow: String(isLive) });
      const response = await fetchRaw(`/api/v1/tasks/${task}/output?${query}`, { signal: controller.signal });
      setReading(isLive ? "following" : "reading");
      const reader = response.body?.getReader();
      for (let piece = await reader?.read(); piece !== undefined && !piece.done; piece = await reader?.read()) {
        buffer.add(piece.value);
        if (shouldDrawAtOnce(buffer)) {
          clearTimeout(timer);
          draw();
        } else {
          timer ??= setTimeout(draw, DRAW_MS);
        }
      }
      draw();
      setReading("ended");
    };
    const run = async () => {
      while (!controller.signal.aborted) {
        try {
          await read();
          return;
        } catch (fault) {
          if (controller.signal.aborted) {
            return;
          }
          if (fault instanceof Error && "status" in fault && Number(fault.status) > 0) {
            setError(fault);
            return;
          }
          setReading("down");
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        }
      }
    };
    void run();
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [buffer, task, attempt, isLive]);
  return { buffer, ...shown, reading, error };
}

let drawnOnce = new WeakSet<LogBuffer>();

/** The first lines are shown as soon as they are there. */
function shouldDrawAtOnce(buffer: LogBuffer): boolean {
  if (drawnOnce.has(buffer)) {
    return false;
  }
  drawnOnce = drawnOnce.add(buffer);
  return true;
}

interface LogProps {
  task: string;
  attempt: number;
  isLive: boolean;
  /** The line that the address names, from 1. */
  line: number | null;
  onLine: (line: number) => void;
}

export function Log({ task, attempt, isLive, line, onLine }: LogProps) {
  const { buffer, lines, size, reading, error } = useOutput(task, attempt, isLive);
  const [follows, setFollows] = useState(isLive && line === null);
  const [wanted, setWanted] = useState("");
  const [hit, setHit] = useState(0);
  const hits = useSearch(buffer, lines, wanted);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: lines, getScrollElement: () => scroller.current, estimateSize: () => LINE_HEIGHT, overscan: 30 });
  const jumped = useRef(false);

  useEffect(() => {
    if (follows && lines > 0) {
      virtual.scrollToIndex(lines - 1, { align: "end" });
    }
  }, [follows, lines, virtual]);
  useEffect(() => {
    if (line !== null && !jumped.current && lines >= line) {
      jumped.current = true;
      virtual.scrollToIndex(line - 1, { align: "center" });
    }
  }, [line, lines, virtual]);
  const current = hits.found[hit];
  useEffect(() => {
    if (current !== undefined) {
      virtual.scrollToIndex(current, { align: "center" });
    }
  }, [current, virtual]);
  const search = useCallback((text: string) => {
    setWanted(text);
    setHit(0);
    setFollows(false);
  }, []);
  const marked = useMemo(() => new Set(hits.found), [hits]);

  return (
    <section className="card" aria-label="Log">
      <div className="card-head">
        <div className="row grow wrap">
          <SearchField value={wanted} onChange={search} placeholder="Search the log" />
          {wanted === "" ? null : (
            <span className="row small soft numbers">
              {hits.found.length === 0 ? (hits.done ? "nothing found" : "searching") : `${hit + 1} of ${number(hits.found.length)}${hits.done && hits.found.length < HITS_MAX ? "" : "+"}`}
              <Button kind="small" disabled={hits.found.length === 0} onClick={() => setHit((hit + hits.found.length - 1) % hits.found.length)}>
                Before
              </Button>
              <Button kind="small" disabled={hits.found.length === 0} onClick={() => setHit((hit + 1) % hits.found.length)}>
                Next
              </Button>
            </span>
          )}
        </div>
        <div className="row">
          <span className="small faint numbers nowrap wide" data-lines={lines} data-reading={reading}>
            {number(lines)} lines · {bytes(size)}
          </span>
          <Button kind="small" aria-pressed={follows} onClick={() => setFollows(!follows)}>
            Follow
          </Button>
          <a className="button small icon" href={`/api/v1/tasks/${task}/output?attempt=${attempt}`} download={`${task}-${attempt}.log`} aria-label="Download the log" title="Download">
            <Icon name="download" size={15} />
          </a>
        </div>
      </div>
      {error === null ? null : <Problem error={error} />}
      {reading === "down" ? (
        <div className="notice tone-warn" role="status">
          The connection was lost; the log goes on when it is back.
        </div>
      ) : null}
      <div
        ref={scroller}
        className="log"
        tabIndex={0}
        role="region"
        aria-label="Lines of the log"
        onWheel={() => setFollows(false)}
      >
        <div className="log-inner" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const isTarget = item.index + 1 === line || item.index === current;
            return (
              <div
                key={item.index}
                className={`log-line ${isTarget ? "target" : marked.has(item.index) ? "hit" : ""}`}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <a
                  href={`?attempt=${attempt}&line=${item.index + 1}`}
                  aria-label={`Line ${item.index + 1}`}
                  onClick={(event) => {
                    event.preventDefault();
                    onLine(item.index + 1);
                  }}
                >
                  {item.index + 1}
                </a>
                <Line text={buffer.line(item.index)} />
              </div>
            );
          })}
        </div>
        {lines === 0 && reading === "ended" ? <div className="empty">It printed nothing.</div> : null}
        {lines === 0 && reading === "following" ? <div className="empty">Nothing printed yet.</div> : null}
      </div>
    </section>
  );
}

function Line({ text }: { text: string }) {
  return (
    <span>
      {pieces(text).map((piece, place) =>
        piece.className === "" ? piece.text : (
          <span key={place} className={piece.className}>
            {piece.text}
          </span>
        ),
      )}
    </span>
  );
}

/** Search a log step by step, and what comes after that when it comes. */
function useSearch(buffer: LogBuffer, lines: number, wanted: string) {
  const [state, setState] = useState<{ wanted: string; found: number[]; next: number }>({ wanted: "", found: [], next: 0 });
  const known = state.wanted === wanted ? state : { wanted, found: [], next: 0 };
  const isDone = wanted === "" || known.next >= lines || known.found.length >= HITS_MAX;
  useEffect(() => {
    if (isDone) {
      return undefined;
    }
    const timer = setTimeout(() => {
      const step = buffer.search(wanted, known.next, HITS_MAX - known.found.length, SEARCH_STEP);
      setState({ wanted, found: [...known.found, ...step.found], next: step.next });
    });
    return () => clearTimeout(timer);
  });
  return { found: wanted === "" ? [] : known.found, done: isDone };
}
