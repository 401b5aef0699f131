/** Launching: a form made from the survey of a template, with a preview of what it would make. */

import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import type { Schemas } from "../api/client";
import { launch } from "../api/queries";
import { plural, visible } from "../lib/format";
import { Button, Problem, Said, State } from "./basics";
import { Dialog } from "./dialog";

interface Question {
  name: string;
  type: string;
  description?: string;
  default?: unknown;
  required?: boolean;
  choices?: unknown[];
  min?: number;
  max?: number;
}

const UPDATED = new Set(["project", "inventory"]);

/** Read an answer as the type that its question asks for; what cannot be read is sent as it is, and refused there. */
export function answerOf(question: Question, text: string): unknown {
  if (question.type === "boolean") {
    return text === "true";
  }
  if ((question.type === "integer" || question.type === "number") && text.trim() !== "" && Number.isFinite(Number(text))) {
    return Number(text);
  }
  return question.type === "list" ? text.split("\n").map((one) => one.trim()).filter((one) => one !== "") : text;
}

function textOf(value: unknown): string {
  return value === undefined || value === null ? "" : Array.isArray(value) ? value.join("\n") : String(value);
}

export function LaunchDialog({ document, onClose }: { document: Schemas["DocumentView"]; onClose: () => void }) {
  const [, navigate] = useLocation();
  const survey = (Array.isArray(document.document?.survey) ? document.document.survey : []) as Question[];
  const [answers, setAnswers] = useState<Record<string, string>>(() => Object.fromEntries(survey.map((one) => [one.name, textOf(one.default)])));
  const [error, setError] = useState<unknown>(null);
  const [preview, setPreview] = useState<Schemas["Launched"] | null>(null);
  const [busy, setBusy] = useState(false);
  const isUpdate = UPDATED.has(document.kind);
  const run = async (dryRun: boolean) => {
    setBusy(true);
    setError(null);
    const given = survey.filter((one) => answers[one.name] !== "");
    const variables = Object.fromEntries(given.map((one) => [one.name, answerOf(one, answers[one.name] ?? "")]));
    try {
      const made = await launch({ kind: document.kind, name: document.name, dry_run: dryRun, ...(survey.length === 0 ? {} : { variables }) });
      if (dryRun) {
        setPreview(made);
      } else {
        onClose();
        navigate(`/graphs/${made.graph_id ?? made.graph_ids[0] ?? ""}`);
      }
    } catch (refused) {
      setError(refused);
    } finally {
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(false);
  };
  const name = visible(document.name);
  return (
    <Dialog
      title={isUpdate ? `Update ${name} now?` : `Launch ${name}`}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Go back</Button>
          {isUpdate ? null : <Button disabled={busy} onClick={() => void run(true)}>Preview</Button>}
          <button type="submit" form="launch" className="button primary" disabled={busy}>{isUpdate ? "Update" : "Launch"}</button>
        </>
      }
    >
      <form id="launch" className="stack" onSubmit={submit}>
        {survey.length === 0 ? <p className="soft">{isUpdate ? "It is refreshed now, also if it is fresh." : "It asks for nothing."}</p> : null}
        {survey.map((one) => (
          <Field key={one.name} question={one} value={answers[one.name] ?? ""} onChange={(text) => setAnswers({ ...answers, [one.name]: text })} />
        ))}
      </form>
      {preview === null ? null : (
        <div className="notice">
          <strong>{plural(Object.keys((preview.document?.tasks ?? {}) as object).length, "task")} would be made.</strong>
          {preview.updates.map((one) => (
            <span key={one.resource} className="small row"><Said>{one.resource}</Said> {one.freshness === "fresh" ? "is fresh" : one.freshness === "join" ? "is being updated" : "is updated first"} {one.state === "" ? null : <State state={one.state} />}</span>
          ))}
        </div>
      )}
      {error === null ? null : <Problem error={error} />}
    </Dialog>
  );
}

function Field({ question, value, onChange }: { question: Question; value: string; onChange: (text: string) => void }) {
  const title = <span className="label"><Said>{question.description || question.name}</Said>{question.required === true ? null : <span className="faint"> (may be left out)</span>}</span>;
  const hint = question.description ? <span className="hint"><code>{visible(question.name)}</code></span> : null;
  const common = { required: question.required === true, value, onChange: (event: { target: { value: string } }) => onChange(event.target.value) };
  return (
    <label className="field">
      {title}
      {question.type === "choice" || question.type === "boolean" ? (
        <select className="input" {...common}>
          <option value="" disabled>choose</option>
          {(question.type === "boolean" ? ["true", "false"] : (question.choices ?? []).map(String)).map((one) => <option key={one} value={one}>{visible(one)}</option>)}
        </select>
      ) : question.type === "list" ? (
        <textarea className="input" rows={3} placeholder="one in each line" {...common} />
      ) : (
        <input className="input" type={question.type === "integer" || question.type === "number" ? "number" : "text"} step={question.type === "number" ? "any" : undefined} min={question.type === "text" ? undefined : question.min} max={question.type === "text" ? undefined : question.max} {...common} />
      )}
      {hint}
    </label>
  );
}
