/** Submitting: a document is checked as it is typed, with every fault at its line and a preview of its drawing. */

import { useMemo, useRef, useState } from "react";
import { useEffect } from "react";
import { useLocation } from "wouter";
import { parse } from "yaml";
import { ApiProblem, type Schemas } from "../api/client";
import { checkDocument, submitDocument } from "../api/queries";
import { Button, Card, Empty, PageHead, Problem, Said, State } from "../components/basics";
import { FlowDrawing } from "../graph/flow";
import { previewOf } from "../graph/preview";
import { plural, shortId, visible } from "../lib/format";
import { useDebounced } from "../lib/params";
import { linesOf, syntaxFaults } from "../lib/places";
import { useToast } from "../components/dialog";

const EXAMPLE = `name: hello
tasks:
  build:
    task:
      payload: {script: "echo building; sleep 2"}
  test:
    requires: [build]
    task:
      payload: {script: "echo testing"}
`;
/** A file that is dropped may be larger than what one types, and is still checked at once. */
const TEXT_MAX = 2_000_000;
const DRAWN_MAX = 300;
const NOBODY: ReadonlySet<string> = new Set();

interface Check {
  text: string;
  run: Schemas["DryRun"] | null;
  error: unknown;
}

interface Found {
  line: number | null;
  path: string;
  message: string;
}

function faultsOf(text: string, error: unknown): Found[] {
  const broken = syntaxFaults(text).map((one) => ({ ...one, path: "" }));
  if (broken.length > 0 || !(error instanceof ApiProblem)) {
    return broken;
  }
  const line = linesOf(text);
  return error.faults.map((one) => ({ line: line(one.path), path: one.path, message: one.message }));
}

export function SubmitPage() {
  const [text, setText] = useState(EXAMPLE);
  const settled = useDebounced(text, 400);
  const [check, setCheck] = useState<Check>({ text: "", run: null, error: null });
  const [busy, setBusy] = useState(false);
  const [, navigate] = useLocation();
  const tell = useToast();
  useEffect(() => {
    const controller = new AbortController();
    if (settled.trim() !== "") {
      checkDocument(settled, controller.signal)
        .then((run) => setCheck({ text: settled, run, error: null }))
        .catch((error: unknown) => {
          if (!controller.signal.aborted) {
            setCheck({ text: settled, run: null, error });
          }
        });
    }
    return () => controller.abort();
  }, [settled]);
  const isChecked = check.text === text;
  const faults = useMemo(() => (check.text === "" ? [] : faultsOf(check.text, check.error)), [check]);
  const drawing = useMemo(() => {
    try {
      return previewOf(parse(settled), DRAWN_MAX);
    } catch {
      return null;
    }
  }, [settled]);
  const submit = async () => {
    setBusy(true);
    try {
      const made = await submitDocument(text);
      tell("good", `Graph ${shortId(made.graph_id)} was submitted.`);
      navigate(`/graphs/${made.graph_id}`);
    } catch (error) {
      setCheck({ text, run: null, error });
      setBusy(false);
    }
  };
  const read = async (file: File | undefined) => {
    if (file !== undefined && file.size <= TEXT_MAX) {
      setText(await file.text());
    } else if (file !== undefined) {
      tell("bad", "This file is too large for the page: use taskyard submit.");
    }
  };
  return (
    <main className="page full" id="content">
      <PageHead
        title="Submit a graph"
        actions={
          <>
            <label className="button">
              Open a file
              <input type="file" className="hidden-text" accept=".yaml,.yml,.json" onChange={(event) => void read(event.target.files?.[0])} />
            </label>
            <Button kind="primary" disabled={busy || !isChecked || check.run === null} onClick={() => void submit()}>
              Submit
            </Button>
          </>
        }
      >
        <p className="soft">Type, paste or drop a graph document, as YAML or JSON. Nothing is stored before you submit it.</p>
      </PageHead>
      <div className="grid">
        <div className="col-6 stack">
          <Editor text={text} onChange={setText} bad={new Set(faults.map((one) => one.line))} onDrop={(file) => void read(file)} />
          {faults.length === 0 ? null : (
            <div className="notice tone-bad" role="alert">
              <strong>{plural(faults.length, "fault")}</strong>
              <ul className="stack tight">
                {faults.map((one, place) => (
                  <li key={place} className="small break">
                    {one.line === null ? null : <strong>line {one.line}: </strong>}
                    {one.path === "" ? null : <code>{visible(one.path)}</code>} {visible(one.message)}
                  </li>
                ))}
              </ul>
            </div>
          )}
          {faults.length === 0 && check.error !== null && check.error !== undefined ? <Problem error={check.error} /> : null}
        </div>
        <div className="col-6 stack">
          <div className="drawing" style={{ height: 340, minHeight: 0 }}>
            {drawing === null || drawing.boxes.length === 0 ? <Empty title="No drawing yet">It is shown when the document can be read and is not too large.</Empty> : <FlowDrawing key={drawing.boxes.length} drawing={drawing} critical={NOBODY} chosen={null} onChoose={() => undefined} />}
          </div>
          {check.run === null ? null : (
            <Card title="What would happen now">
              <div className="stack tight">
                <p><Said>{check.run.sentence}</Said></p>
                <ul className="stack tight">
                  {check.run.items.filter((one) => one.verdict !== "after").slice(0, 20).map((one) => (
                    <li key={one.label} className="row" style={{ alignItems: "flex-start" }}>
                      <State state={one.verdict === "now" ? "running" : one.verdict === "never" ? "error" : "waiting"} />
                      <span className="small break"><strong><Said>{one.label}</Said></strong> <Said>{one.sentence}</Said></span>
                    </li>
                  ))}
                </ul>
              </div>
            </Card>
          )}
        </div>
      </div>
    </main>
  );
}

function Editor({ text, onChange, bad, onDrop }: { text: string; onChange: (text: string) => void; bad: Set<number | null>; onDrop: (file: File | undefined) => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const lines = text.split("\n").length;
  return (
    <div className="editor">
      <div className="gutter" aria-hidden="true">
        {Array.from({ length: lines }, (_, line) => <span key={line} className={bad.has(line + 1) ? "bad" : ""}>{line + 1}</span>)}
      </div>
      <textarea
        ref={area}
        aria-label="Graph document"
        aria-invalid={bad.size > 0}
        spellCheck={false}
        autoCapitalize="off"
        rows={Math.max(lines + 1, 20)}
        maxLength={TEXT_MAX}
        value={text}
        onChange={(event) => onChange(event.target.value)}
        onDragOver={(event) => event.preventDefault()}
        onDrop={(event) => {
          const file = event.dataTransfer.files[0];
          if (file !== undefined) {
            event.preventDefault();
            onDrop(file);
          }
        }}
      />
    </div>
  );
}
