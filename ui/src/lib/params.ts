/** Filters live in the address, so that what is seen can be linked to. */

import { useCallback, useEffect, useState } from "react";
import { useSearchParams } from "wouter";

export function useParams() {
  const [params, setParams] = useSearchParams();
  const set = useCallback(
    (changes: Record<string, string | string[] | null>) => {
      setParams(
        (before) => {
          const next = new URLSearchParams(before);
          for (const [name, value] of Object.entries(changes)) {
            next.delete(name);
            for (const one of value === null ? [] : [value].flat()) {
              if (one !== "") {
                next.append(name, one);
              }
            }
          }
          return next;
        },
        { replace: true },
      );
    },
    [setParams],
  );
  return [params, set] as const;
}

/** Hold a value back until it has not changed for a moment. */
export function useDebounced<T>(value: T, ms = 250): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
