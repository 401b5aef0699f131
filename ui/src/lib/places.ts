/** Where in the text of a document a fault is: the line of the field that its path names. */

import { isMap, isPair, isScalar, isSeq, LineCounter, type Node, parseDocument } from "yaml";

/** Split `tasks.build.requires[0]`, whose labels may have dots, into what can be looked up step by step. */
function steps(path: string): string[] {
  return path.split(/\.|\[|\]\.?/).filter((step) => step !== "");
}

/** Return a function that finds the line of a path, from 1; null if the text cannot be read. */
export function linesOf(text: string): (path: string) => number | null {
  const counter = new LineCounter();
  const document = parseDocument(text, { lineCounter: counter, keepSourceTokens: false });
  return (path) => {
    let node: unknown = document.contents;
    let at: number | null = rangeOf(node);
    const left = steps(path);
    while (left.length > 0) {
      const found = stepInto(node, left);
      if (found === null) {
        break;
      }
      at = found.at ?? at;
      node = found.node;
      left.splice(0, found.used);
    }
    return at === null ? null : counter.linePos(at).line;
  };
}

function rangeOf(node: unknown): number | null {
  return (node as Node | null)?.range?.[0] ?? null;
}

function stepInto(node: unknown, left: string[]): { node: unknown; at: number | null; used: number } | null {
  if (isSeq(node)) {
    const item = node.items[Number(left[0])];
    return item === undefined ? null : { node: item, at: rangeOf(item), used: 1 };
  }
  if (!isMap(node)) {
    return null;
  }
  // A label with dots was split: the longest name that is there counts.
  for (let used = left.length; used > 0; used -= 1) {
    const name = left.slice(0, used).join(".");
    const pair = node.items.find((one) => isPair(one) && isScalar(one.key) && String(one.key.value) === name);
    if (pair !== undefined) {
      return { node: pair.value, at: rangeOf(pair.key), used };
    }
  }
  return null;
}

/** The faults of the text itself: where it is not YAML. */
export function syntaxFaults(text: string): { line: number; message: string }[] {
  const counter = new LineCounter();
  return parseDocument(text, { lineCounter: counter }).errors.map((error) => ({ line: counter.linePos(error.pos[0]).line, message: error.message.split("\n")[0] ?? "" }));
}
