"""Hooks for schemathesis. They run in the environment of `make fuzz-env`, without Taskyard.

Half of all requests use ids that exist, or most would end with 404. A refusal must change nothing: after each answer
the server sends a digest of its database.
"""

import json
import os
import socket
from typing import Any, Final

import schemathesis

KNOWN: Final[dict[str, list[str]]] = json.loads(os.environ["TASKYARD_KNOWN"])


#: After how many requests the running task is renewed.
RENEWED: Final = 200
#: How long a request may wait.
WAIT_MS: Final = 20


class Store:
    """The digest of the server's database, from the socket beside the server."""

    def __init__(self, path: str) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(path)
        self._stream = connection.makefile("rwb")
        self.asked = 0
        self.held = self.look("renew")

    def look(self, word: str = "look") -> dict[str, str]:
        """Return a digest for each table."""
        self._stream.write(f"{word}\n".encode())
        self._stream.flush()
        found: dict[str, str] = json.loads(self._stream.readline())
        return found


STORE: Final = Store(os.environ["TASKYARD_LOOKS"])


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Use an id that exists in every other request, and shorten waits."""
    STORE.asked += 1
    if STORE.asked % RENEWED == 0:
        STORE.held = STORE.look("renew")
    for name in case.path_parameters or ():
        # Always for tokens: it learns their ids from answers, and would revoke its own.
        if name in KNOWN and (STORE.asked % 2 or name == "token_id"):
            case.path_parameters[name] = KNOWN[name][STORE.asked // 2 % len(KNOWN[name])]
    if case.path == "/api/v1/events":
        case.query = {"follow": False} | dict(case.query or {})  # it follows unless told otherwise
    for said in (case.query, case.body):
        if isinstance(said, dict):
            shorten_waits(said)


def shorten_waits(said: dict[str, Any]) -> None:
    """Shorten waits: the running task never ends."""
    if str(said.get("wait_ms")).isdecimal() and int(said["wait_ms"]) <= 20_000:
        said["wait_ms"] = min(int(said["wait_ms"]), WAIT_MS)
    if said.get("follow") in (True, "true"):
        said["follow"] = False


@schemathesis.check  # type: ignore[untyped-decorator]
def a_refusal_leaves_no_trace(ctx: Any, response: Any, case: Any) -> None:
    """A refused request changes nothing."""
    before, STORE.held = STORE.held, STORE.look()
    if response.status_code >= 400:
        # A refusal is stored under its idempotency key, so that a repetition gets it again.
        kept = {"idempotency_key"} if any(name.lower() == "idempotency-key" for name in case.headers or {}) else set()
        changed = [table for table, word in STORE.held.items() if word != before[table] and table not in kept]
        assert not changed, f"a refusal ({response.status_code}) has changed {', '.join(changed)}"


@schemathesis.check  # type: ignore[untyped-decorator]
def a_refusal_is_a_problem(ctx: Any, response: Any, case: Any) -> None:
    """Every refusal is a problem document that names its status."""
    if response.status_code >= 400 and case.method != "HEAD":
        kind = response.headers["content-type"][0]
        assert kind == "application/problem+json", f"a refusal comes as {kind}"
        assert response.json()["status"] == response.status_code
