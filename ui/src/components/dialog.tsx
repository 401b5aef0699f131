/** Dialogs that ask before something is done, and short messages about what was done. */

import { createContext, type ReactNode, useCallback, useContext, useEffect, useId, useRef, useState } from "react";
import { ApiProblem } from "../api/client";
import { visible } from "../lib/format";
import type { Tone } from "../lib/states";
import { Button, Problem } from "./basics";
import { StateIcon } from "./icons";

/** A dialog of the browser's own: it keeps the focus inside, and Escape closes it. */
export function Dialog({ title, onClose, children, foot }: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  foot?: ReactNode;
}) {
  const element = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} aria-labelledby={titleId} onCancel={onClose} onClick={(event) => event.target === element.current && onClose()}>
      <div className="dialog-head">
        <h2 id={titleId}>{visible(title)}</h2>
      </div>
      <div className="dialog-body">{children}</div>
      {foot === undefined ? null : <div className="dialog-foot">{foot}</div>}
    </dialog>
  );
}

export interface Action {
  title: string;
  /** What will happen, in a sentence or two. */
  effect: ReactNode;
  verb: string;
  destroys?: boolean;
  /** Whether a comment can be given; it is an argument of `run`. */
  comment?: string;
  /** What was done, in a sentence. */
  run: (comment: string) => Promise<string | undefined>;
}

/** Asks before an action, runs it, and says what it did or why it was refused. */
function ActionDialog({ action, onClose }: { action: Action; onClose: () => void }) {
  const tell = useToast();
  const [comment, setComment] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = async () => {
    setBusy(true);
    try {
      const done = await action.run(comment);
      onClose();
      if (done !== undefined) {
        tell("good", done);
      }
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={action.title}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Go back</Button>
          <Button kind={action.destroys ? "solid-danger" : "primary"} disabled={busy} onClick={() => void run()} autoFocus={!action.destroys}>
            {action.verb}
          </Button>
        </>
      }
    >
      <div className="soft">{action.effect}</div>
      {action.comment === undefined ? null : (
        <label className="field">
          <span className="label">{action.comment}</span>
          <textarea className="input" rows={3} maxLength={1000} value={comment} onChange={(event) => setComment(event.target.value)} />
        </label>
      )}
      {error === null ? null : <Problem error={error} />}
    </Dialog>
  );
}

const ActContext = createContext<(action: Action) => void>(() => undefined);
const ToastContext = createContext<(tone: Tone, text: string) => void>(() => undefined);
const TOAST_MS = 6_000;
const TOASTS_MAX = 4;

/** Ask before an action, then run it. */
export function useAct() {
  return useContext(ActContext);
}

export function useToast() {
  return useContext(ToastContext);
}

interface Toast {
  id: number;
  tone: Tone;
  text: string;
}

export function DialogProvider({ children }: { children: ReactNode }) {
  const [action, setAction] = useState<Action | null>(null);
  const [toasts, setToasts] = useState<Toast[]>([]);
  const count = useRef(0);
  const tell = useCallback((tone: Tone, text: string) => {
    count.current += 1;
    const id = count.current;
    setToasts((shown) => [...shown, { id, tone, text }].slice(-TOASTS_MAX));
    setTimeout(() => setToasts((shown) => shown.filter((one) => one.id !== id)), TOAST_MS);
  }, []);
  return (
    <ToastContext value={tell}>
      <ActContext value={setAction}>
        {children}
        {action === null ? null : <ActionDialog action={action} onClose={() => setAction(null)} />}
        <div className="toasts" role="status" aria-live="polite">
          {toasts.map((one) => (
            <div key={one.id} className={`toast tone-${one.tone}`}>
              <StateIcon state={one.tone === "good" ? "successful" : "failed"} />
              <span>{visible(one.text)}</span>
            </div>
          ))}
        </div>
      </ActContext>
    </ToastContext>
  );
}

/** Run something at once and say why it was refused. */
export function useAttempt() {
  const tell = useToast();
  return useCallback(
    async (run: () => Promise<unknown>) => {
      try {
        await run();
      } catch (error) {
        tell("bad", error instanceof ApiProblem ? error.message : "Something went wrong.");
      }
    },
    [tell],
  );
}
