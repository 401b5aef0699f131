import { describe, expect, it } from "vitest";
import { type KeyAction, matchKeys } from "./keys";

const actions: KeyAction[] = ["g g", "g f", "?", "/"].map((keys) => ({ keys, does: keys, act: () => undefined }));

describe("matchKeys", () => {
  it("knows single keys and sequences", () => {
    expect(matchKeys(actions, ["?"]).action?.keys).toBe("?");
    expect(matchKeys(actions, ["g"])).toEqual({ action: null, rest: ["g"] });
    expect(matchKeys(actions, ["g", "f"]).action?.keys).toBe("g f");
  });
  it("begins anew with a key that continues nothing", () => {
    expect(matchKeys(actions, ["g", "?"]).action?.keys).toBe("?");
    expect(matchKeys(actions, ["x", "g"]).rest).toEqual(["g"]);
    expect(matchKeys(actions, ["x"]).rest).toEqual([]);
  });
});
