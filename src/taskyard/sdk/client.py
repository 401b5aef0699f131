"""The client: one method for each route of the user API.

Methods return the types of `wire/api.py` and raise the errors of `sdk/errors.py`. Changes carry a key, so that they can
be repeated safely if the answer was lost. Any thread may use a client. A task is named by its id or as `GRAPH/label`.
"""

import os
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from taskyard.sdk import profiles
from taskyard.sdk.errors import NotFound, Overloaded, Unreachable, Unset
from taskyard.sdk.http import InsecureWarning, plaintext_token_warning
from taskyard.sdk.routes import ApiSession, Query, segment
from taskyard.wire import api
from taskyard.wire.api import WAIT_MAX_MS, GraphView

if TYPE_CHECKING:
    from taskyard.wire.api import About
    from taskyard.wire.explain import DryRun, WhyGraphView, WhyView


# Polling a graph until it is settled.


#: The pause before the second look, and the longest pause; they grow in between.
POLL_SECONDS: Final = 0.05
POLL_SECONDS_MAX: Final = 2.0
#: For how long the server may be unreachable: long enough for a restart or a move.
UNREACHABLE_SECONDS_MAX: Final = 300.0


def poll_graph(session: ApiSession, path: str, timeout_s: float, long_poll: bool = False) -> Iterator[GraphView]:
    """Yield a graph at each look, the last time when it is settled; raise `TimeoutError` if that takes too long.

    With `long_poll`, the server waits: it is seen once, or about every 20 s, and as soon as it is settled.
    """
    until = time.monotonic() + timeout_s
    answered_at = time.monotonic()
    pause = POLL_SECONDS
    while True:
        try:
            left_ms = int(max(0.0, until - time.monotonic()) * 1000)
            query: Query = {"names": False, "wait_ms": min(WAIT_MAX_MS, left_ms) if long_poll else None}
            view = session.get(path, GraphView, query)
        except (Unreachable, Overloaded):
            if time.monotonic() > min(until, answered_at + UNREACHABLE_SECONDS_MAX):
                raise
        else:
            answered_at = time.monotonic()
            yield view
            if view.settled or (view.deadlock is not None and view.deadlock.stuck):
                return
            if answered_at >= until:
                raise TimeoutError(f"graph {view.id} is {view.state} and was not settled within {timeout_s:g} s")
            if long_poll:
                continue  # the server has waited
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
        pause = min(pause * 1.5, POLL_SECONDS_MAX)


# Following output: a stream that resumes where it was interrupted, so that no byte is lost or repeated.


#: How many failures in a row are tolerated; a server that restarts is back within that.
STREAM_FAILURES_MAX: Final = 10
#: The first and the longest pause before the next try.
PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0
#: How long to wait for the first attempt of a task.
BEGIN_SECONDS_MAX: Final = 86_400.0


def follow(session: ApiSession, task: str, attempt: int | None, start: int) -> Iterator[bytes]:
    """Yield the output of an attempt from byte `start` on, until it ends; `task` is the path of its task."""
    view = None if attempt else _wait_for_attempt(session, task)
    if view is not None and view.reused is not None:
        # The task reused another task's outcome; its output is complete.
        yield from session.stream(f"{task}/output", {"start": start or None})
    elif number := attempt or (view.attempt if view is not None else 0):
        yield from _follow_attempt(session, task, number, start)


def _follow_attempt(session: ApiSession, task: str, number: int, start: int) -> Iterator[bytes]:
    failures = 0
    while True:
        # The state is read before the output: the last output of an attempt arrives before its end.
        try:
            has_ended = _has_ended(session, task, number)
            for piece in session.stream(f"{task}/output", {"attempt": number, "start": start or None, "follow": True}):
                failures = 0
                start += len(piece)
                if piece:
                    yield piece
        except (Unreachable, Overloaded):
            failures += 1
            if failures > STREAM_FAILURES_MAX:
                raise
        else:
            # A stream also ends when the server stops, so only the attempt's end counts.
            if has_ended:
                return
        time.sleep(min(PAUSE_SECONDS * 2**failures, PAUSE_SECONDS_MAX))


def _wait_for_attempt(session: ApiSession, task: str) -> api.TaskView:
    """Wait for the first attempt of a task, or for its end without one."""
    until = time.monotonic() + BEGIN_SECONDS_MAX
    pause = PAUSE_SECONDS
    while not (view := session.get(task, api.TaskView)).attempt and view.resolution is None:
        if time.monotonic() > until:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, PAUSE_SECONDS_MAX)
    return view


def _has_ended(session: ApiSession, task: str, number: int) -> bool:
    attempts = session.get(f"{task}/attempts", api.Attempts).items
    return any(one.number == number and one.ended_ms is not None for one in attempts)


#: How long the server may take to answer; storing the largest graph takes less.
TIMEOUT_SECONDS: Final = 60.0
#: The default time limit of a wait.
WAIT_SECONDS: Final = 86_400.0
#: More pages of names than the largest graph has.
NAMES_PAGES_MAX: Final = 100_000

_TASK_VARIABLES: Final = ("TASKYARD_URL", "TASKYARD_TOKEN", "TASKYARD_TASK_ID", "TASKYARD_GRAPH_ID")


class Client:
    """A client of one server, with one token."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_SECONDS,
        ca_file: str | None = None,
        profile: str | None = None,
    ) -> None:
        """Connect with an address and a token; those not given are found as the command line finds them.

        They come from TASKYARD_URL and TASKYARD_TOKEN, or from the profile that TASKYARD_PROFILE, a project file or the
        user's own file names; `profile` names another one. A profile's token is sent only to its own server.

        `ca_file`, or TASKYARD_CA_FILE, has the certificate of the authority that signed the server's; without
        one, the machine's own are trusted. Sending a token to another machine over plain HTTP causes a warning.
        """
        target = profiles.resolve(url, token, profile, ca_file)
        shown = target.token or ""
        self.own_task: str | None = None  # only for the client of a running task
        self.own_graph: str | None = None
        self._session = ApiSession(target.url, shown, timeout_s, target.ca_file)
        if why := plaintext_token_warning(target.url, shown):
            warnings.warn(why, InsecureWarning, stacklevel=2)

    @classmethod
    def from_environment(cls) -> Self:
        """Return the client of a running task; its bot has set its environment."""
        missing = [name for name in _TASK_VARIABLES if not os.environ.get(name)]
        if missing:
            raise Unset(f"{', '.join(missing)} not set: this is not a task that a bot runs")
        client = cls()
        client.own_task = os.environ["TASKYARD_TASK_ID"]
        client.own_graph = os.environ["TASKYARD_GRAPH_ID"]
        return client

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._session.url

    def close(self) -> None:
        """Close idle connections."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Graphs.

    def submit(self, document: Mapping[str, Any], *, graph_id: str | None = None, key: str = "") -> api.Submitted:
        """Store a graph and run it. Repeated with the same id or key, it changes nothing."""
        if graph_id is not None:
            return self._session.put(f"/graphs/{segment(graph_id)}", document, api.Submitted)
        return self._session.post("/graphs", document, api.Submitted, key=key)

    def check(self, document: Mapping[str, Any]) -> "DryRun":
        """Check a graph, and tell what would happen if it were submitted now; nothing is stored."""
        from taskyard.wire.explain import DryRun  # noqa: PLC0415

        return self._session.post("/graphs/check", document, DryRun)

    def request(self, request: Mapping[str, Any], *, key: str = "") -> api.Submitted:
        """Store a single task and run it, as a graph of one task."""
        return self._session.post("/requests", request, api.Submitted, key=key)

    def extend(self, graph: str | None, tasks: Mapping[str, Any]) -> api.Submitted:
        """Add tasks, by label, to a graph; None is the graph of the running task."""
        named = graph or self.own_graph
        if named is None:
            raise Unset("name a graph: only the client of a running task has one of its own")
        return self._session.post(f"/graphs/{segment(named)}/tasks", {"tasks": tasks}, api.Submitted)

    def graphs(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
        limit: int | None = None,
        counts: bool = False,
    ) -> Iterator[api.GraphView]:
        """Yield graphs, the newest first, read page by page; tags are written `key:value`.

        With `counts`, the tasks of each are counted by state, which reads all of them.
        """
        query: Query = {"state": state, "name": name, "tag": list(tags) or None, "counts": counts or None}
        return self._session.pages("/graphs", query, api.Graphs, limit)

    def graph(self, graph: str) -> api.GraphView:
        """Return a graph with its state."""
        return self._session.get(f"/graphs/{segment(graph)}", api.GraphView)

    def critical_path(self, graph: str) -> api.CriticalPath:
        """Return the chain of tasks that determined when a graph ended, or will end, and when that is expected."""
        return self._session.get(f"/graphs/{segment(graph)}/critical-path", api.CriticalPath)

    def names(self, graph: str) -> dict[str, str]:
        """Map the labels of a graph's tasks to their ids."""
        names: dict[str, str] = {}
        cursor: str | None = None
        for _ in range(NAMES_PAGES_MAX):
            page = self._session.get(f"/graphs/{segment(graph)}/names", api.Names, {"cursor": cursor})
            names |= page.nameMapping
            cursor = page.next
            if cursor is None:
                break
        return names

    def tasks(
        self, graph: str, *, state: str | None = None, label: str | None = None, limit: int | None = None
    ) -> Iterator[api.TaskView]:
        """Yield the tasks of a graph, read page by page."""
        query: Query = {"state": state, "label": label}
        return self._session.pages(f"/graphs/{segment(graph)}/tasks", query, api.Tasks, limit)

    def cancel_graph(self, graph: str, *, start: Sequence[str] = ()) -> api.Wished:
        """Cancel a graph, or only the tasks with the labels in `start` and all that depend on them."""
        body = {"from": list(start)} if start else None
        return self._session.post(f"/graphs/{segment(graph)}/cancel", body, api.Wished)

    def rerun_graph(self, graph: str) -> api.Wished:
        """Rerun everything that failed in a graph, with what it blocked."""
        return self._session.post(f"/graphs/{segment(graph)}/rerun", {"failed": True}, api.Wished)

    def rerun_from(self, graph: str, start: Sequence[str], *, key: str = "") -> api.Wished:
        """Run a settled graph again from some labels on, as a new graph that reuses the rest.

        The new graph is the `subject` of the answer. Repeated with the same key, it is the same graph.
        """
        body = {"from": list(start)}
        return self._session.post(f"/graphs/{segment(graph)}/rerun", body, api.Wished, key=key)

    def why_graph(self, graph: str) -> "WhyGraphView":
        """Explain what holds up a graph."""
        from taskyard.wire.explain import WhyGraphView  # noqa: PLC0415 - its types are slow to create

        return self._session.get(f"/graphs/{segment(graph)}/why", WhyGraphView)

    def watch(self, graph: str, timeout_s: float = WAIT_SECONDS) -> Iterator[api.GraphView]:
        """Yield a graph at each look, the last time when it is settled; raise `TimeoutError` if that takes too long.

        A server that is unreachable for some minutes is waited for.
        """
        return poll_graph(self._session, f"/graphs/{segment(graph)}", timeout_s)

    def wait(self, graph: str, timeout_s: float = WAIT_SECONDS) -> api.GraphView:
        """Wait until nothing in a graph can move without a person; raise `TimeoutError` if that takes too long."""
        return deque(poll_graph(self._session, f"/graphs/{segment(graph)}", timeout_s, long_poll=True), maxlen=1)[0]

    def ids(self, ending: str) -> api.Ids:
        """Find graphs and tasks by the last 5 to 15 digits of their ids; the first digits are a time."""
        return self._session.get(f"/ids/{segment(ending)}", api.Ids)

    # Tasks.

    def task(self, task: str) -> api.TaskView:
        """Return a task with its definition, its edges and its result."""
        return self._session.get(self._task(task), api.TaskView)

    def attempts(self, task: str) -> list[api.AttemptView]:
        """Return all attempts of a task."""
        return self._session.get(f"{self._task(task)}/attempts", api.Attempts).items

    def story(self, task: str) -> api.StoryView:
        """Return the history of a task."""
        return self._session.get(f"{self._task(task)}/story", api.StoryView)

    def why(self, task: str) -> "WhyView":
        """Explain why a task does not run, down to the root causes."""
        from taskyard.wire.explain import WhyView  # noqa: PLC0415

        return self._session.get(f"{self._task(task)}/why", WhyView)

    def output(self, task: str, *, attempt: int | None = None, start: int = 0, end: int | None = None) -> bytes:
        """Return the output of an attempt, by default the last one's, from byte `start` up to `end`."""
        query: Query = {"attempt": attempt, "start": start or None, "end": end}
        return self._session.raw(f"{self._task(task)}/output", query)

    def output_times(
        self, task: str, *, attempt: int | None = None, start: int = 0, since_ms: int = 0, limit: int | None = None
    ) -> Iterator[api.OutputTime]:
        """Yield when each piece of an attempt's output arrived at the server, from byte `start` on."""
        query: Query = {"attempt": attempt, "start": start or None, "since_ms": since_ms or None}
        return self._session.pages(f"{self._task(task)}/output/times", query, api.OutputTimes, limit)

    def follow(self, task: str, *, attempt: int | None = None, start: int = 0) -> Iterator[bytes]:
        """Yield the output of an attempt as it arrives, until it ends; a lost connection loses nothing."""
        return follow(self._session, self._task(task), attempt, start)

    def cancel_task(self, task: str, *, subtree: bool = False) -> api.Wished:
        """Cancel a task, or a task and everything that depends on it."""
        return self._session.post(f"{self._task(task)}/cancel", {"subtree": subtree}, api.Wished)

    def rerun_task(self, task: str) -> api.Wished:
        """Rerun a task."""
        return self._session.post(f"{self._task(task)}/rerun", None, api.Wished)

    def approvals(self, *, limit: int | None = None) -> Iterator[api.ApprovalView]:
        """Yield the approvals that wait for a decision, read page by page."""
        return self._session.pages("/approvals", {}, api.Approvals, limit)

    def approve(self, task: str, *, approved: bool = True, comment: str = "") -> api.Decided:
        """Decide an approval; `Refused` says what was decided before."""
        body = {"approved": approved, "comment": comment or None}
        return self._session.post(f"{self._task(task)}/approve", body, api.Decided)

    # For running tasks; other callers must name a task.

    def inputs(self, task: str | None = None) -> dict[str, Any]:
        """Return the results of a task's prerequisites by label."""
        return self._session.get(f"{self._own(task)}/inputs", dict[str, Any])

    def result(self, task: str | None = None) -> Any:
        """Return the result of a task."""
        return self._session.get(f"{self._own(task)}/result", object)

    def publish_result(self, value: object, task: str | None = None) -> None:
        """Publish a JSON result for tasks that depend on this one."""
        self._session.put(f"{self._own(task)}/result", value, object)

    def publish_progress(self, text: str, task: str | None = None) -> None:
        """Report the progress of the task."""
        self._session.put_raw(f"{self._own(task)}/progress", text.encode(), "text/plain; charset=utf-8")

    def publish_checkpoint(self, body: bytes, task: str | None = None) -> None:
        """Store a checkpoint for the next attempt."""
        self._session.put_raw(f"{self._own(task)}/checkpoint", body)

    def _own(self, task: str | None) -> str:
        named = task or self.own_task
        if named is None:
            raise Unset("name a task: only the client of a running task has one of its own")
        return self._task(named)

    def _task(self, named: str) -> str:
        """Return the path of a task by its id, or by `GRAPH/label`, which is looked up."""
        graph, is_label, label = named.partition("/")
        if not is_label:
            return f"/tasks/{segment(named)}"
        found = next(self.tasks(graph, label=label, limit=1), None) if label else None
        if found is None:
            message = f"graph {graph} has no task {label!r}"
            raise NotFound(api.Problem("about:blank", "Not found", 404, message, "not_found"))
        return f"/tasks/{segment(found.id)}"

    # Bots and pools.

    def bots(
        self,
        *,
        pool: str | None = None,
        state: str | None = None,
        dimensions: Sequence[str] = (),
        limit: int | None = None,
    ) -> Iterator[api.BotView]:
        """Yield bots, read page by page; dimensions are written `key:value`."""
        query: Query = {"pool": pool, "state": state, "dimension": list(dimensions) or None}
        return self._session.pages("/bots", query, api.Bots, limit)

    def bot(self, name: str) -> api.BotView:
        """Return a bot."""
        return self._session.get(f"/bots/{segment(name)}", api.BotView)

    def bot_events(self, name: str, *, limit: int | None = None) -> Iterator[api.BotEventView]:
        """Yield the events of a bot, the newest first."""
        return self._session.pages(f"/bots/{segment(name)}/events", {}, api.BotEvents, limit)

    def set_bot(self, name: str, **settings: str | bool | None) -> api.BotView:
        """Change settings of a bot: `quarantined` and `maintenance` (a message or None), `draining`, `terminated`."""
        return self._session.patch(f"/bots/{segment(name)}", settings, api.BotView)

    def free_bot(self, name: str) -> api.BotView:
        """Release the name of a terminated bot, so that any pool may enrol it."""
        return self._session.post(f"/bots/{segment(name)}/free", None, api.BotView)

    def dimensions(self) -> api.DimensionAggregation:
        """Return the dimensions of all bots, with their values."""
        return self._session.get("/dimensions", api.DimensionAggregation)

    def pools(self) -> list[api.PoolView]:
        """Return all pools."""
        return self._session.get("/pools", api.Pools).items

    def set_pool(self, name: str, **settings: int | bool | None) -> api.PoolView:
        """Create a pool, or change its capacity: `capacity` (None: no limit), or `from_bots`.

        Settings that are left out stay as they are.
        """
        return self._session.put(f"/pools/{segment(name)}", settings, api.PoolView)

    # Limits and mutexes.

    def limits(self) -> list[api.LimitView]:
        """Return all named limits, with their use."""
        return self._session.get("/limits", api.Limits).items

    def set_limit(self, name: str, total: int) -> api.LimitView:
        """Create a named limit, or change its size."""
        return self._session.put(f"/limits/{segment(name)}", {"total": total}, api.LimitView)

    def mutexes(self, *, key: str | None = None, limit: int | None = None) -> Iterator[api.MutexView]:
        """Yield the mutexes in use, read page by page: which task holds each, and which tasks wait for it."""
        return self._session.pages("/mutexes", {"key": key}, api.Mutexes, limit)

    def set_mutex(self, key: str, *, stake_after: str) -> api.MutexView:
        """Set how long a task waits before no younger one may pass it at a mutex: `0s`, `5m`, or `never`."""
        return self._session.put(f"/mutexes/{segment(key)}", {"stake_after": stake_after}, api.MutexView)

    # Tokens.

    def new_token(
        self,
        kind: str,
        name: str,
        *,
        pool: str | None = None,
        scopes: Sequence[str] = (),
        expires_in_ms: int | None = None,
    ) -> api.NewToken:
        """Make a token of kind `user`, `bot` or `enrolment`; only this answer contains its secret."""
        body = {"kind": kind, "name": name, "pool": pool, "scopes": list(scopes), "expires_in_ms": expires_in_ms}
        fields = {field: value for field, value in body.items() if value not in (None, [])}
        # The secret is answered once, so a repetition could not return it.
        return self._session.post("/tokens", fields, api.NewToken, repeatable=False)

    def tokens(self, *, limit: int | None = None) -> Iterator[api.TokenView]:
        """Yield tokens without their secrets, read page by page."""
        return self._session.pages("/tokens", {}, api.Tokens, limit)

    def revoke_token(self, token: str) -> api.TokenView:
        """Revoke a token, by its id, at once."""
        return self._session.delete(f"/tokens/{segment(token)}", api.TokenView)

    def rotate_token(self, token: str, *, keep_ms: int = 0) -> api.NewToken:
        """Make a token with the rights of another one, which ends at once or after `keep_ms`."""
        path = f"/tokens/{segment(token)}/rotate"
        return self._session.post(path, {"keep_ms": keep_ms}, api.NewToken, repeatable=False)

    def rotate_run_key(self, *, keep: bool = True) -> api.RunKey:
        """Sign run tokens with a new key; unless `keep`, the tokens of running tasks end at once."""
        return self._session.post("/run-key/rotate", {"keep": keep}, api.RunKey, repeatable=False)

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        since_ms: int | None = None,
        limit: int | None = None,
    ) -> Iterator[api.AuditView]:
        """Yield the audit log, the newest entry first, read page by page."""
        wanted = {"actor": actor, "action": action, "subject": subject, "since_ms": since_ms}
        return self._session.pages("/audit", wanted, api.Audits, limit)

    def about(self) -> "About":
        """Return the server's version and time, and what this client's own token may do."""
        from taskyard.wire.api import About  # noqa: PLC0415

        return self._session.get("/about", About)

    def enrol(self, name: str) -> api.NewToken:
        """Exchange the client's own enrolment token for the token of a bot."""
        return self._session.post("/enrol", {"name": name}, api.NewToken, repeatable=False)
