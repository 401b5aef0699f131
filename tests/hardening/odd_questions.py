"""What schemathesis is told beside the description; it runs in the environment of `make fuzz-env`, without Taskyard.

Half of all questions are about something that is there, else most would end at "not found". And a refusal must leave no
trace: after each answer the server tells what its store holds.
"""

import json
import os
import socket
from typing import Any, Final

import schemathesis

KNOWN: Final[dict[str, list[str]]] = json.loads(os.environ["TASKYARD_KNOWN"])


#: After how many questions the task that runs is renewed.
RENEWED: Final = 200
#: How long a question may wait for something.
WAIT_MS: Final = 20


class Store:
    """What the store of the server holds, asked for on a socket beside the server."""

    def __init__(self, path: str) -> None:
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(60)
        line.connect(path)
        self._stream = line.makefile("rwb")
        self.asked = 0
        self.held = self.look("renew")

    def look(self, word: str = "look") -> dict[str, str]:
        """Say what is there, a word for each table."""
        self._stream.write(f"{word}\n".encode())
        self._stream.flush()
        found: dict[str, str] = json.loads(self._stream.readline())
        return found


STORE: Final = Store(os.environ["TASKYARD_LOOKS"])


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Ask about something that is there, every other time; and do not wait for what never comes."""
    STORE.asked += 1
    if STORE.asked % RENEWED == 0:
        STORE.held = STORE.look("renew")
    for name in case.path_parameters or ():
        # Of tokens always: it finds out which there are, and would revoke its own.
        if name in KNOWN and (STORE.asked % 2 or name == "token_id"):
            case.path_parameters[name] = KNOWN[name][STORE.asked // 2 % len(KNOWN[name])]
    for said in (case.query, case.body):
        if isinstance(said, dict):
            hasten(said)


def hasten(said: dict[str, Any]) -> None:
    """Let a question wait for a moment only: the task that runs never ends."""
    if str(said.get("wait_ms")).isdecimal() and int(said["wait_ms"]) <= 20_000:
        said["wait_ms"] = min(int(said["wait_ms"]), WAIT_MS)
    if said.get("follow") in (True, "true"):
        said["follow"] = False


@schemathesis.check  # type: ignore[untyped-decorator]
def a_refusal_leaves_no_trace(ctx: Any, response: Any, case: Any) -> None:
    """Whatever is refused has changed nothing."""
    before, STORE.held = STORE.held, STORE.look()
    if response.status_code >= 400:
        # A refusal is the answer to its key, too: whoever repeats the request is given it again.
        kept = {"answer"} if any(name.lower() == "idempotency-key" for name in case.headers or {}) else set()
        changed = [table for table, word in STORE.held.items() if word != before[table] and table not in kept]
        assert not changed, f"a refusal ({response.status_code}) has changed {', '.join(changed)}"


@schemathesis.check  # type: ignore[untyped-decorator]
def a_refusal_is_a_problem(ctx: Any, response: Any, case: Any) -> None:
    """Every refusal is a problem document that names its status."""
    if response.status_code >= 400 and case.method != "HEAD":
        kind = response.headers["content-type"][0]
        assert kind == "application/problem+json", f"a refusal comes as {kind}"
        assert response.json()["status"] == response.status_code
