"""The client: everything that people and their programs can ask a server for, one method for each.

Answers are the shapes of `wire/api.py`; refusals are the errors of `sdk/errors.py`. A change carries a key of its own,
so that it is safe to repeat it when its answer was lost. Any thread may use a client. It keeps nothing about graphs,
and decides nothing. A task is named by its id, or as `GRAPH/label`.
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


# Looking at a graph again and again until it is settled, also while its server is away for some time.


#: The second look follows soon, the others at growing distances.
POLL_SECONDS: Final = 0.05
POLL_SECONDS_MAX: Final = 2.0
#: For how long nobody may answer: a server that is started again, or moves, is back within that.
UNREACHABLE_SECONDS_MAX: Final = 300.0


def poll_graph(session: ApiSession, path: str, timeout_s: float, long_poll: bool = False) -> Iterator[GraphView]:
    """Give a graph as it is seen, the last time when it is settled; raise `TimeoutError` if that takes too long.

    Whoever is `long_poll` sees it only then, and hears of it at once.
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
                continue  # the server has waited already
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
        pause = min(pause * 1.5, POLL_SECONDS_MAX)


# Output as it comes: a stream that goes on where it was cut, so that no byte is missed or told twice.


#: How often in a row nobody may answer before that is told; a server that restarts is back within that.
STREAM_FAILURES_MAX: Final = 10
#: How long to wait before the next try: at first, and at most.
PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0
#: How long a task that has not begun is waited for.
BEGIN_SECONDS_MAX: Final = 86_400.0


def follow(session: ApiSession, task: str, attempt: int | None, start: int) -> Iterator[bytes]:
    """Give what an attempt prints, from `start` on, until it ends; `task` is the path of its task."""
    view = None if attempt else _wait_for_attempt(session, task)
    if view is not None and view.reused is not None:
        # It has the end of another task, and its output, to which nothing comes.
        yield from session.stream(f"{task}/output", {"start": start or None})
    elif number := attempt or (view.attempt if view is not None else 0):
        yield from _follow_attempt(session, task, number, start)


def _follow_attempt(session: ApiSession, task: str, number: int, start: int) -> Iterator[bytes]:
    failures = 0
    while True:
        # First whether it has ended, then what it printed: what it printed last comes before its end.
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
            # A server that stops ends its streams as well as an attempt that ends does.
            if has_ended:
                return
        time.sleep(min(PAUSE_SECONDS * 2**failures, PAUSE_SECONDS_MAX))


def _wait_for_attempt(session: ApiSession, task: str) -> api.TaskView:
    """Wait for the first attempt of a task, unless there will be none."""
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


#: How long the server may be silent; storing the largest graph takes it less.
TIMEOUT_SECONDS: Final = 60.0
#: How long a wait lasts unless told.
WAIT_SECONDS: Final = 86_400.0
#: More pages of names than the largest graph has.
NAMES_PAGES_MAX: Final = 100_000

_TASK_VARIABLES: Final = ("TASKYARD_URL", "TASKYARD_TOKEN", "TASKYARD_TASK_ID", "TASKYARD_GRAPH_ID")


class Client:
    """One server, spoken to with one token."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_SECONDS,
        ca_file: str | None = None,
        profile: str | None = None,
    ) -> None:
        """Take the address and the token; what is not given is found as the command line finds it.

        That is in TASKYARD_URL and TASKYARD_TOKEN, or in the profile that TASKYARD_PROFILE, a project file or the
        person's own file names; `profile` names another one. A profile's token goes to that profile's server alone.

        `ca_file`, or TASKYARD_CA_FILE, has the certificate of the authority that signed the server's; without one, the
        authorities count that the machine trusts. A token that goes to another machine over plain HTTP is warned of.
        """
        target = profiles.resolve(url, token, profile, ca_file)
        shown = target.token or ""
        self.own_task: str | None = None  # of the client of a running task
        self.own_graph: str | None = None
        self._session = ApiSession(target.url, shown, timeout_s, target.ca_file)
        if why := plaintext_token_warning(target.url, shown):
            warnings.warn(why, InsecureWarning, stacklevel=2)

    @classmethod
    def from_environment(cls) -> Self:
        """Give the client of a running task: its bot put the address, the token and the task's id around it."""
        missing = [name for name in _TASK_VARIABLES if not os.environ.get(name)]
        if missing:
            raise Unset(f"{', '.join(missing)} not set: this is no task that a bot runs")
        client = cls()
        client.own_task = os.environ["TASKYARD_TASK_ID"]
        client.own_graph = os.environ["TASKYARD_GRAPH_ID"]
        return client

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._session.url

    def close(self) -> None:
        """Hang up."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Graphs.

    def submit(self, document: Mapping[str, Any], *, graph_id: str | None = None, key: str = "") -> api.Submitted:
        """Have a graph stored and run. Repeated with the same id or key, it is an echo."""
        if graph_id is not None:
            return self._session.put(f"/graphs/{segment(graph_id)}", document, api.Submitted)
        return self._session.post("/graphs", document, api.Submitted, key=key)

    def check(self, document: Mapping[str, Any]) -> "DryRun":
        """Say what would become of a graph if it were submitted now; nothing is stored."""
        from taskyard.wire.explain import DryRun  # noqa: PLC0415

        return self._session.post("/graphs/check", document, DryRun)

    def request(self, request: Mapping[str, Any], *, key: str = "") -> api.Submitted:
        """Have a single task stored and run: a graph of one."""
        return self._session.post("/requests", request, api.Submitted, key=key)

    def extend(self, graph: str | None, tasks: Mapping[str, Any]) -> api.Submitted:
        """Add tasks, by label, to a graph; with None, a running task adds them to its own."""
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
        """Give graphs, the newest first, page by page as they are taken; a tag is written `key:value`.

        With `counts`, the tasks of each are counted by state; that reads all of them.
        """
        query: Query = {"state": state, "name": name, "tag": list(tags) or None, "counts": counts or None}
        return self._session.pages("/graphs", query, api.Graphs, limit)

    def graph(self, graph: str) -> api.GraphView:
        """Tell where a graph stands."""
        return self._session.get(f"/graphs/{segment(graph)}", api.GraphView)

    def critical_path(self, graph: str) -> api.CriticalPath:
        """Tell which tasks determined when a graph ended, or are going to, and when that is expected to be."""
        return self._session.get(f"/graphs/{segment(graph)}/critical-path", api.CriticalPath)

    def names(self, graph: str) -> dict[str, str]:
        """Give the id of each task of a graph, by label."""
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
        """Give the tasks of a graph, page by page as they are taken."""
        query: Query = {"state": state, "label": label}
        return self._session.pages(f"/graphs/{segment(graph)}/tasks", query, api.Tasks, limit)

    def cancel_graph(self, graph: str, *, start: Sequence[str] = ()) -> api.Wished:
        """End everything in a graph, or only the tasks with the labels of `start` and everything behind them."""
        wish = {"from": list(start)} if start else None
        return self._session.post(f"/graphs/{segment(graph)}/cancel", wish, api.Wished)

    def rerun_graph(self, graph: str) -> api.Wished:
        """Try again all that failed in a graph; what it blocked goes on."""
        return self._session.post(f"/graphs/{segment(graph)}/rerun", {"failed": True}, api.Wished)

    def rerun_from(self, graph: str, start: Sequence[str], *, key: str = "") -> api.Wished:
        """Run a settled graph again from some labels on, as a new graph that takes over what is before them.

        The new graph is the `subject` of the answer. Asked for again with the same key, it is the same one.
        """
        wish = {"from": list(start)}
        return self._session.post(f"/graphs/{segment(graph)}/rerun", wish, api.Wished, key=key)

    def why_graph(self, graph: str) -> "WhyGraphView":
        """Say what holds a graph."""
        from taskyard.wire.explain import WhyGraphView  # noqa: PLC0415 - its shapes take time to make

        return self._session.get(f"/graphs/{segment(graph)}/why", WhyGraphView)

    def watch(self, graph: str, timeout_s: float = WAIT_SECONDS) -> Iterator[api.GraphView]:
        """Give a graph as it is seen from time to time, the last time when it is settled.

        A server that is away for some minutes is waited for. `TimeoutError` says that it took too long.
        """
        return poll_graph(self._session, f"/graphs/{segment(graph)}", timeout_s)

    def wait(self, graph: str, timeout_s: float = WAIT_SECONDS) -> api.GraphView:
        """Wait until nothing in a graph can move without a person; raise `TimeoutError` if that takes too long."""
        return deque(poll_graph(self._session, f"/graphs/{segment(graph)}", timeout_s, long_poll=True), maxlen=1)[0]

    def ids(self, ending: str) -> api.Ids:
        """Find the graphs and tasks whose ids end in 5 to 15 digits: the beginning of an id is time, and shared."""
        return self._session.get(f"/ids/{segment(ending)}", api.Ids)

    # Tasks.

    def task(self, task: str) -> api.TaskView:
        """Tell everything about a task: its definition, its edges, what it published."""
        return self._session.get(self._task(task), api.TaskView)

    def attempts(self, task: str) -> list[api.AttemptView]:
        """Tell of every execution of a task."""
        return self._session.get(f"{self._task(task)}/attempts", api.Attempts).items

    def story(self, task: str) -> api.StoryView:
        """Tell everything that happened to a task."""
        return self._session.get(f"{self._task(task)}/story", api.StoryView)

    def why(self, task: str) -> "WhyView":
        """Say why a task does not run, down to the root causes."""
        from taskyard.wire.explain import WhyView  # noqa: PLC0415

        return self._session.get(f"{self._task(task)}/why", WhyView)

    def output(self, task: str, *, attempt: int | None = None, start: int = 0, end: int | None = None) -> bytes:
        """Give what an attempt printed, the last one's unless told; of it, from `start` up to `end`."""
        query: Query = {"attempt": attempt, "start": start or None, "end": end}
        return self._session.raw(f"{self._task(task)}/output", query)

    def output_times(
        self, task: str, *, attempt: int | None = None, start: int = 0, since_ms: int = 0, limit: int | None = None
    ) -> Iterator[api.OutputTime]:
        """Give when what an attempt printed came to the server, for each piece from `start` on."""
        query: Query = {"attempt": attempt, "start": start or None, "since_ms": since_ms or None}
        return self._session.pages(f"{self._task(task)}/output/times", query, api.OutputTimes, limit)

    def follow(self, task: str, *, attempt: int | None = None, start: int = 0) -> Iterator[bytes]:
        """Give what an attempt prints as it comes, until it ends; a lost connection loses nothing."""
        return follow(self._session, self._task(task), attempt, start)

    def cancel_task(self, task: str, *, subtree: bool = False) -> api.Wished:
        """End a task, or a task and everything behind it."""
        return self._session.post(f"{self._task(task)}/cancel", {"subtree": subtree}, api.Wished)

    def rerun_task(self, task: str) -> api.Wished:
        """Try a task again."""
        return self._session.post(f"{self._task(task)}/rerun", None, api.Wished)

    def approvals(self, *, limit: int | None = None) -> Iterator[api.ApprovalView]:
        """Give what people are asked, page by page as it is taken."""
        return self._session.pages("/approvals", {}, api.Approvals, limit)

    def approve(self, task: str, *, approved: bool = True, comment: str = "") -> api.Decided:
        """Decide about an approval that waits for a person; `Refused` says what was decided before."""
        wish = {"approved": approved, "comment": comment or None}
        return self._session.post(f"{self._task(task)}/approve", wish, api.Decided)

    # What a running task says and asks; who has no task of its own names one.

    def inputs(self, task: str | None = None) -> dict[str, Any]:
        """Give what the prerequisites of a task published, by label."""
        return self._session.get(f"{self._own(task)}/inputs", dict[str, Any])

    def result(self, task: str | None = None) -> Any:
        """Give what a task published."""
        return self._session.get(f"{self._own(task)}/result", object)

    def publish_result(self, value: object, task: str | None = None) -> None:
        """Publish a result, JSON, for whoever depends on the task."""
        self._session.put(f"{self._own(task)}/result", value, object)

    def publish_progress(self, text: str, task: str | None = None) -> None:
        """Say how far the task is."""
        self._session.put_raw(f"{self._own(task)}/progress", text.encode(), "text/plain; charset=utf-8")

    def publish_checkpoint(self, body: bytes, task: str | None = None) -> None:
        """Leave something for the next attempt, should there be one."""
        self._session.put_raw(f"{self._own(task)}/checkpoint", body)

    def _own(self, task: str | None) -> str:
        named = task or self.own_task
        if named is None:
            raise Unset("name a task: only the client of a running task has one of its own")
        return self._task(named)

    def _task(self, named: str) -> str:
        """Give the path of a task: of its id, or of `GRAPH/label`, which is looked up."""
        graph, is_label, label = named.partition("/")
        if not is_label:
            return f"/tasks/{segment(named)}"
        found = next(self.tasks(graph, label=label, limit=1), None) if label else None
        if found is None:
            said = f"graph {graph} has no task {label!r}"
            raise NotFound(api.Problem("about:blank", "Not found", 404, said, "not_found"))
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
        """Give bots, page by page as they are taken; a dimension is written `key:value`."""
        query: Query = {"pool": pool, "state": state, "dimension": list(dimensions) or None}
        return self._session.pages("/bots", query, api.Bots, limit)

    def bot(self, name: str) -> api.BotView:
        """Tell what is known of a bot."""
        return self._session.get(f"/bots/{segment(name)}", api.BotView)

    def bot_events(self, name: str, *, limit: int | None = None) -> Iterator[api.BotEventView]:
        """Give what happened to a bot, the newest first."""
        return self._session.pages(f"/bots/{segment(name)}/events", {}, api.BotEvents, limit)

    def set_bot(self, name: str, **settings: str | bool | None) -> api.BotView:
        """Change what a bot may do: `quarantined` and `maintenance` (a message, or None), `draining`, `terminated`."""
        return self._session.patch(f"/bots/{segment(name)}", settings, api.BotView)

    def free_bot(self, name: str) -> api.BotView:
        """Let the name of a bot that has ended belong to whichever pool enrols it next."""
        return self._session.post(f"/bots/{segment(name)}/free", None, api.BotView)

    def dimensions(self) -> api.DimensionAggregation:
        """Give every dimension that bots have, with its values."""
        return self._session.get("/dimensions", api.DimensionAggregation)

    def pools(self) -> list[api.PoolView]:
        """Give every pool."""
        return self._session.get("/pools", api.Pools).items

    def set_pool(self, name: str, **settings: int | bool | None) -> api.PoolView:
        """Make a pool, or change how much it may run at once: `capacity` (None: no limit), or `from_bots`.

        What is left out stays as it is.
        """
        return self._session.put(f"/pools/{segment(name)}", settings, api.PoolView)

    # What tasks share.

    def limits(self) -> list[api.LimitView]:
        """Give every named limit, with what is in use of it."""
        return self._session.get("/limits", api.Limits).items

    def set_limit(self, name: str, total: int) -> api.LimitView:
        """Make a named limit, or say how much there is of it."""
        return self._session.put(f"/limits/{segment(name)}", {"total": total}, api.LimitView)

    def mutexes(self, *, key: str | None = None, limit: int | None = None) -> Iterator[api.MutexView]:
        """Give mutexes that somebody uses, page by page as they are taken: who holds each, and who waits for it."""
        return self._session.pages("/mutexes", {"key": key}, api.Mutexes, limit)

    def set_mutex(self, key: str, *, stake_after: str) -> api.MutexView:
        """Say how long mutexes hold a task before no younger one passes it at a key: `0s`, `5m`, or `never`."""
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
        """Make a token, for a `user`, a `bot` or for `enrolment`; its secret is in the answer and nowhere else."""
        wish = {"kind": kind, "name": name, "pool": pool, "scopes": list(scopes), "expires_in_ms": expires_in_ms}
        told = {field: value for field, value in wish.items() if value not in (None, [])}
        # Its answer cannot be told twice, so it is not asked for twice.
        return self._session.post("/tokens", told, api.NewToken, repeatable=False)

    def tokens(self, *, limit: int | None = None) -> Iterator[api.TokenView]:
        """Give tokens without their secrets, page by page as they are taken."""
        return self._session.pages("/tokens", {}, api.Tokens, limit)

    def revoke_token(self, token: str) -> api.TokenView:
        """End a token, by its id, at once."""
        return self._session.delete(f"/tokens/{segment(token)}", api.TokenView)

    def rotate_token(self, token: str, *, keep_ms: int = 0) -> api.NewToken:
        """Make a token that may do what another may; that one ends at once, or after `keep_ms`."""
        path = f"/tokens/{segment(token)}/rotate"
        return self._session.post(path, {"keep_ms": keep_ms}, api.NewToken, repeatable=False)

    def rotate_run_key(self, *, keep: bool = True) -> api.RunKey:
        """Seal run tokens with a new key; unless `keep`, those of tasks that run now are good for nothing."""
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
        """Give who asked for what, the newest first, page by page as they are taken."""
        wanted = {"actor": actor, "action": action, "subject": subject, "since_ms": since_ms}
        return self._session.pages("/audit", wanted, api.Audits, limit)

    def about(self) -> "About":
        """Tell the version and the time of the server, and what this client's own token is good for."""
        from taskyard.wire.api import About  # noqa: PLC0415

        return self._session.get("/about", About)

    def enrol(self, name: str) -> api.NewToken:
        """Get a token for a bot of this name; the client's own token is one for enrolment."""
        return self._session.post("/enrol", {"name": name}, api.NewToken, repeatable=False)
