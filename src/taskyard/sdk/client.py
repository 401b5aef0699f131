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
from urllib.parse import quote

from taskyard.sdk import profiles
from taskyard.sdk.errors import NotFound, Overloaded, Unreachable, Unreadable, Unset
from taskyard.sdk.http import InsecureWarning, plaintext_token_warning
from taskyard.sdk.routes import ApiSession, Query, segment
from taskyard.sdk.servers import joined_urls
from taskyard.wire import api
from taskyard.wire.api import WAIT_MAX_MS, GraphView

if TYPE_CHECKING:
    from taskyard.files.collect import Meter
    from taskyard.sdk.files import Upload
    from taskyard.sdk.http import HttpResponse
    from taskyard.sdk.local_inputs import LocalTree
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


# Following events: server-sent events, resumed after the last one that was received.


def follow_events(session: ApiSession, query: Query, position: int | None) -> Iterator[api.StreamedEvent]:
    """Yield events after a position, or from now on, for ever; go on after an interruption."""
    failures = 0
    while True:
        headers = {} if position is None else {"last-event-id": str(position)}
        try:
            for message in _messages(session.answer_and_pieces("/events", query, headers)):
                failures = 0
                position = int(message.get("id", position or 0))
                if "data" in message:
                    yield _streamed(session, position, message)
        except (Unreachable, Overloaded):
            failures += 1
            if failures > STREAM_FAILURES_MAX:
                raise
        time.sleep(min(PAUSE_SECONDS * 2**failures, PAUSE_SECONDS_MAX))


def _messages(pieces: "Iterator[HttpResponse | bytes]") -> Iterator[dict[str, str]]:
    """Cut a stream into its messages: the value of each field by its name. A message that is cut off is left out."""
    rest = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            *whole, rest = (rest + piece).split(b"\n\n")
            for text in whole:
                lines = (line.partition(": ") for line in text.decode().split("\n"))
                yield {name: value for name, _, value in lines if name}


def _streamed(session: ApiSession, position: int, message: Mapping[str, str]) -> api.StreamedEvent:
    import msgspec  # noqa: PLC0415 - slow to load

    if message.get("event") == "reset":
        return api.StreamedEvent(position, None)
    try:
        return api.StreamedEvent(position, msgspec.json.decode(message["data"], type=api.EventView))
    except msgspec.MsgspecError as error:
        raise Unreadable(session.url, str(error)) from error


#: How long the server may take to answer; storing the largest graph takes less.
TIMEOUT_SECONDS: Final = 60.0
#: The default time limit of a wait.
WAIT_SECONDS: Final = 86_400.0
#: How many files are read per page.
FILES_PAGE: Final = 10_000
#: More pages of names than the largest graph has.
NAMES_PAGES_MAX: Final = 100_000
#: More pages than a database has tasks to count or to cancel.
PAGES_MAX: Final = 10_000_000

_TASK_VARIABLES: Final = ("TASKYARD_URL", "TASKYARD_TOKEN", "TASKYARD_TASK_ID", "TASKYARD_GRAPH_ID")


class Client:
    """A client of the servers of one database, with one token."""

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_SECONDS,
        ca_file: str | None = None,
        profile: str | None = None,
    ) -> None:
        """Connect with an address and a token; those not given are found as the command line finds them.

        They come from TASKYARD_URL and TASKYARD_TOKEN, or from the profile that TASKYARD_PROFILE, a project file or the
        user's own file names; `profile` names another one. A profile's token is sent only to its own servers.

        Of several addresses, as a list or with commas between them, one is used at a time; if it is away, the next.

        `ca_file`, or TASKYARD_CA_FILE, has the certificate of the authority that signed the server's; without
        one, the machine's own are trusted. Sending a token to another machine over plain HTTP causes a warning.
        """
        target = profiles.resolve(None if url is None else joined_urls(url), token, profile, ca_file)
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
        """The address of the server, or of the servers with commas between them."""
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

    def submit(
        self, document: Mapping[str, Any], *, graph_id: str | None = None, key: str = "", parent: str | None = None
    ) -> api.Submitted:
        """Store a graph and run it. Repeated with the same id or key, it changes nothing.

        With the id of a running task as its `parent`, the graph ends with that task: what is left of it is canceled.
        """
        query = f"?parent={segment(parent)}" if parent else ""
        if graph_id is not None:
            return self._session.put(f"/graphs/{segment(graph_id)}{query}", document, api.Submitted)
        return self._session.post(f"/graphs{query}", document, api.Submitted, key=key)

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

    def launch(  # noqa: PLR0913 - each is said by name
        self,
        name: str,
        variables: Mapping[str, Any] | None = None,
        *,
        kind: str = "template",
        texts: Mapping[str, str] | None = None,
        limit: str | None = None,
        check: bool | None = None,
        key: str = "",
    ) -> api.Launched:
        """Launch a template with variables, after the updates that it needs. Repeated with its key, it changes nothing.

        `texts` are variables as people type them: the survey says what each means. `limit` and `check` are for
        playbooks. The kinds `project`, `inventory` and `source` update these.
        """
        said: dict[str, object] = {"kind": kind, "name": name, "variables": dict(variables or {})}
        said |= _given(texts=texts or None, limit=limit, check=check)
        return self._session.post("/launches", said, api.Launched, key=key)

    def preview_launch(  # noqa: PLR0913 - each is said by name
        self,
        name: str,
        variables: Mapping[str, Any] | None = None,
        *,
        kind: str = "template",
        texts: Mapping[str, str] | None = None,
        limit: str | None = None,
        check: bool | None = None,
        module: str | None = None,
        args: str | None = None,
    ) -> api.Launched:
        """Tell what a launch would run, and which updates it would use or make; nothing is stored.

        The kind `ad_hoc` takes the name of an inventory, and a module.
        """
        said: dict[str, object] = {"kind": kind, "name": name, "variables": dict(variables or {}), "dry_run": True}
        said |= _given(texts=texts or None, limit=limit, check=check, module=module, module_args=args)
        return self._session.post("/launches", said, api.Launched)

    def ad_hoc(  # noqa: PLR0913 - each is said by name
        self,
        inventory: str,
        module: str,
        args: str | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        texts: Mapping[str, str] | None = None,
        limit: str | None = None,
        check: bool | None = None,
        key: str = "",
    ) -> api.Launched:
        """Run one module of Ansible on the hosts of an inventory."""
        said: dict[str, object] = {"kind": "ad_hoc", "name": inventory, "variables": dict(variables or {})}
        said |= _given(texts=texts or None, limit=limit, check=check, module=module, module_args=args)
        return self._session.post("/launches", said, api.Launched, key=key)

    def relaunch(self, graph: str, *, from_failed: bool = False, key: str = "") -> api.Launched:
        """Launch again what a graph was launched from, planned anew; a workflow can go on from what failed in it."""
        body = {"from_failed": from_failed}
        return self._session.post(f"/graphs/{segment(graph)}/relaunch", body, api.Launched, key=key)

    def launches(
        self, *, kind: str | None = None, name: str | None = None, limit: int | None = None
    ) -> Iterator[api.LaunchView]:
        """Yield launches, the newest first, read page by page."""
        return self._session.pages("/launches", {"kind": kind, "name": name}, api.Launches, limit)

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

    def events(self, graph: str, *, limit: int | None = None) -> Iterator[api.EventView]:
        """Yield everything that happened in a graph, the oldest first, read page by page."""
        return self._session.pages(f"/graphs/{segment(graph)}/events", {}, api.Events, limit)

    def follow_events(
        self,
        *,
        graph: str | None = None,
        task: str | None = None,
        kinds: Sequence[str] = (),
        pool: str | None = None,
        position: int | None = None,
    ) -> Iterator[api.StreamedEvent]:
        """Yield events of all graphs that the token may read, after a position or from now on, until it is closed.

        It goes on where it was when the server was restarted, or at another server of the same database.
        """
        query: Query = {"graph": graph, "task": task, "kind": list(kinds) or None, "pool": pool}
        return follow_events(self._session, query, position)

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

    def tasks(  # noqa: PLR0913 - each is a condition
        self,
        graph: str | None = None,
        *,
        state: str | Sequence[str] | None = None,
        label: str | None = None,
        tags: Sequence[str] = (),
        bot: str | None = None,
        user: str | None = None,
        pool: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        limit: int | None = None,
    ) -> Iterator[api.TaskView]:
        """Yield the tasks of a graph in its order, or of all graphs with the newest first, read page by page.

        Tags are written `key:value`, and all must match; of several states one must. The times are those between which
        a task was submitted. A label needs a graph, and cannot be combined with the others.
        """
        query = _task_query(None, state, tags, bot, user, pool, since_ms, until_ms)
        if graph is not None and (state is None or isinstance(state, str)) and not _others(query):
            own: Query = {"state": state, "label": label}
            return self._session.pages(f"/graphs/{segment(graph)}/tasks", own, api.Tasks, limit)
        return self._session.pages("/tasks", {**query, "graph": graph}, api.Tasks, limit)

    def count_tasks(  # noqa: PLR0913 - as for `tasks`
        self,
        graph: str | None = None,
        *,
        state: str | Sequence[str] | None = None,
        tags: Sequence[str] = (),
        bot: str | None = None,
        user: str | None = None,
        pool: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> dict[str, int]:
        """Count tasks by state; the conditions are those of `tasks`."""
        query = _task_query(graph, state, tags, bot, user, pool, since_ms, until_ms)
        found: dict[str, int] = {}
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = self._session.get("/tasks/count", api.TaskCounts, {**query, "cursor": cursor})
            for name, count in page.states.items():
                found[name] = found.get(name, 0) + count
            cursor = page.next
            if cursor is None:
                break
        return found

    def cancel_tasks(  # noqa: PLR0913 - as for `tasks`
        self,
        *,
        state: str | Sequence[str] | None = None,
        tags: Sequence[str] = (),
        bot: str | None = None,
        user: str | None = None,
        pool: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> int:
        """Cancel tasks of all graphs by tag, bot, user or pool; return how many were canceled."""
        body: dict[str, object] = {
            "tags": list(tags) or None,
            "states": _listed(state),
            "bot": bot,
            "user": user,
            "pool": pool,
            "since_ms": since_ms,
            "until_ms": until_ms,
        }
        canceled, cursor = 0, None
        for _ in range(PAGES_MAX):
            given = {name: value for name, value in {**body, "cursor": cursor}.items() if value is not None}
            page = self._session.post("/tasks/cancel", given, api.TasksCanceled)
            canceled, cursor = canceled + page.canceled, page.next
            if cursor is None:
                break
        return canceled

    def cancel_graph(self, graph: str, *, start: Sequence[str] = ()) -> api.CommandResult:
        """Cancel a graph, or only the tasks with the labels in `start` and all that depend on them."""
        body = {"from": list(start)} if start else None
        return self._session.post(f"/graphs/{segment(graph)}/cancel", body, api.CommandResult)

    def rerun_graph(self, graph: str) -> api.CommandResult:
        """Rerun everything that failed in a graph, with what it blocked."""
        return self._session.post(f"/graphs/{segment(graph)}/rerun", {"failed": True}, api.CommandResult)

    def rerun_from(self, graph: str, start: Sequence[str], *, key: str = "") -> api.CommandResult:
        """Run a settled graph again from some labels on, as a new graph that reuses the rest.

        The new graph is the `subject` of the answer. Repeated with the same key, it is the same graph.
        """
        body = {"from": list(start)}
        return self._session.post(f"/graphs/{segment(graph)}/rerun", body, api.CommandResult, key=key)

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

    def delete_graph(self, graph: str) -> None:
        """Delete a settled graph with all that belongs to it."""
        self._session.delete(f"/graphs/{segment(graph)}", object)

    def retention(self) -> list[api.RetentionView]:
        """Return how long things are kept: for all pools (`*`) first, then for those that differ."""
        return self._session.get("/retention", api.Retention).items

    def set_retention(self, pool: str, **times: str) -> list[api.RetentionView]:
        """Set how long things of a pool, or of all (`*`), are kept: `output="30d"`, `forever` or `default`."""
        return self._session.put(f"/retention/{segment(pool)}", times, api.Retention).items

    # Webhooks.

    def webhooks(self) -> list[api.WebhookView]:
        """Return the webhooks of the pools in which this token is an admin."""
        return self._session.get("/webhooks", api.Webhooks).items

    def set_webhook(  # noqa: PLR0913 - each is a setting of its own
        self,
        name: str,
        url: str,
        *,
        secret: str | None = None,
        pool: str | None = None,
        graph: str | None = None,
        kinds: Sequence[str] = (),
        paused: bool = False,
    ) -> api.WebhookView:
        """Create or change a webhook; a new one needs a secret, another one keeps its own without it."""
        body = {"url": url, "pool": pool, "graph": graph, "kinds": list(kinds), "paused": paused}
        given = body if secret is None else body | {"secret": secret}
        return self._session.put(f"/webhooks/{segment(name)}", given, api.WebhookView)

    def delete_webhook(self, name: str) -> None:
        """Delete a webhook, with the deliveries that were given up."""
        self._session.delete(f"/webhooks/{segment(name)}", object)

    def test_webhook(self, name: str) -> api.WebhookTest:
        """Send an event that never was to a webhook."""
        return self._session.post(f"/webhooks/{segment(name)}/test", None, api.WebhookTest)

    def dead_deliveries(self, name: str, *, limit: int | None = None) -> Iterator[api.DeadDelivery]:
        """Yield the deliveries of a webhook that were given up, read page by page."""
        return self._session.pages(f"/webhooks/{segment(name)}/dead", {}, api.DeadDeliveries, limit)

    def send_again(self, name: str, ids: Sequence[str] = ()) -> int:
        """Send deliveries again that were given up, or all of them; return how many."""
        body = {"ids": list(ids)}
        return self._session.post(f"/webhooks/{segment(name)}/dead/send", body, api.SentAgain).count

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

    def cancel_task(self, task: str, *, subtree: bool = False) -> api.CommandResult:
        """Cancel a task, or a task and everything that depends on it."""
        return self._session.post(f"{self._task(task)}/cancel", {"subtree": subtree}, api.CommandResult)

    def rerun_task(self, task: str) -> api.CommandResult:
        """Rerun a task."""
        return self._session.post(f"{self._task(task)}/rerun", None, api.CommandResult)

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

    # Files.

    def put_folder(self, folder: str, *, pool: str = "default") -> api.FilesRef:
        """Store a folder for a pool; only what is missing there is sent. Tasks name it by its digest."""
        from taskyard.sdk.files import upload_folder  # noqa: PLC0415 - its types are slow to create

        found = upload_folder(self._session, pool, folder).tree
        return api.FilesRef(found.digest, found.files, found.bytes)

    def put_tree(self, found: "LocalTree", *, pool: str = "default", meter: "Meter | None" = None) -> "Upload":
        """Store a tree that was made of files of this machine."""
        from taskyard.files.collect import SILENT, never  # noqa: PLC0415 - their types are slow to create
        from taskyard.sdk.files import upload  # noqa: PLC0415

        return upload(self._session, pool, found.tree, found.root, never, meter or SILENT)

    def needed_trees(self, document: Mapping[str, Any]) -> list[api.NeededTree]:
        """List the trees that a graph takes, and whether they are stored in the pools that need them."""
        return self._session.post("/graphs/files", document, api.NeededTrees).items

    def submit_with_files(
        self, document: Mapping[str, Any], folder: str | None = None, *, here: str = ".", key: str = ""
    ) -> api.Submitted:
        """Store a graph that names files of this machine, and these files; paths count from `here`.

        What is in `folder` is laid into the working folder of each of its tasks.
        """
        return self.submit(self.store_inputs(document, folder, here=here), key=key)

    def store_inputs(
        self, document: Mapping[str, Any], folder: str | None = None, *, here: str = ".", meter: "Meter | None" = None
    ) -> dict[str, Any]:
        """Store the files of this machine that a graph names; return the graph with their digests instead."""
        from taskyard.files.collect import SILENT  # noqa: PLC0415
        from taskyard.sdk.local_inputs import LocalInputs  # noqa: PLC0415

        local = LocalInputs(os.path.abspath(here), meter or SILENT)
        resolved = local.resolved(document, folder)
        for one in self.needed_trees(resolved) if local.trees else ():
            if not one.stored and one.tree in local.trees:
                self.put_tree(local.trees[one.tree], pool=one.pool, meter=meter)
        return resolved

    def files(self, task: str, *, attempt: int | None = None) -> api.TaskFiles:
        """Return all output files of an attempt, by default of the last one."""
        path, cursor = f"{self._task(task)}/files", None
        items: list[api.FileView] = []
        while True:
            query: Query = {"attempt": attempt, "cursor": cursor, "limit": FILES_PAGE}
            page = self._session.get(path, api.TaskFiles, query)
            items += page.items
            cursor = page.next
            if cursor is None:
                return api.TaskFiles(page.attempt, page.pool, page.tree, items)

    def get_files(
        self, task: str, folder: str, path: str = "", *, attempt: int | None = None, meter: "Meter | None" = None
    ) -> list[str]:
        """Write the output files of an attempt into a folder, all of them or those at a path; return their paths."""
        from taskyard.files.collect import SILENT  # noqa: PLC0415
        from taskyard.files.digests import part_of  # noqa: PLC0415 - its types are slow to create
        from taskyard.sdk.files import download, read_stored_tree  # noqa: PLC0415

        found = self._session.get(f"{self._task(task)}/files", api.TaskFiles, {"attempt": attempt, "limit": 1})
        tree = part_of(read_stored_tree(self._session, found.pool, found.tree.digest), path, None)
        pools = dict.fromkeys(tree.chunks(), found.pool)
        download(self._session, pools, tree, folder, fresh=False, meter=meter or SILENT)
        return [one.path for one in tree.files]

    def get_tree(self, digest: str, folder: str, *, pool: str = "default") -> None:
        """Write a stored tree into a folder."""
        from taskyard.sdk.files import download, read_stored_tree  # noqa: PLC0415

        tree = read_stored_tree(self._session, pool, digest)
        download(self._session, dict.fromkeys(tree.chunks(), pool), tree, folder, fresh=False)

    def read_file(self, task: str, path: str, *, attempt: int | None = None) -> Iterator[bytes]:
        """Yield the content of an output file, piece by piece; raise behind the last one if it was damaged."""
        from taskyard.sdk.files import verified  # noqa: PLC0415 - its types are slow to create

        place = f"{self._task(task)}/files/{quote(path)}"
        yield from verified(self._session.answer_and_pieces(place, {"attempt": attempt}), path)

    def artifacts(
        self, task: str, *, attempt: int | None = None, limit: int | None = None
    ) -> Iterator[api.ArtifactView]:
        """Yield the named files of an attempt, read page by page."""
        return self._session.pages(f"{self._task(task)}/artifacts", {"attempt": attempt}, api.Artifacts, limit)

    def read_artifact(self, task: str, name: str, *, attempt: int | None = None) -> Iterator[bytes]:
        """Yield the content of a named file, piece by piece; raise behind the last one if it was damaged."""
        from taskyard.sdk.files import verified  # noqa: PLC0415

        place = f"{self._task(task)}/artifacts/{quote(name)}"
        yield from verified(self._session.answer_and_pieces(place, {"attempt": attempt}), name)

    def publish_artifact(self, file: str, name: str, content_type: str = "application/octet-stream") -> None:
        """Keep a file under a name, as an artifact of the running task."""
        from taskyard.sdk.local_inputs import tree_of  # noqa: PLC0415

        task = self._own(None)
        view = self._session.get(task, api.TaskView)
        pool = dict(view.definition["slices"][view.slice_index]["dimensions"])["pool"][0]
        found = tree_of(os.path.abspath(file))
        if [one.path for one in found.tree.files] != [os.path.basename(found.path)]:
            raise Unset(f"{file} is no file: a folder is kept by the outputs of the task")
        self.put_tree(found, pool=pool)
        named = {"name": name, "tree": found.digest, "path": found.tree.files[0].path, "content_type": content_type}
        self._session.put(f"{task}/files", {"pool": pool, "artifacts": [named]}, object)

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

    def delete_bot(self, name: str) -> None:
        """Delete a bot that is dead, with its events; its name belongs to no pool then."""
        self._session.remove(f"/bots/{segment(name)}")

    def bot_queues(self, name: str, *, limit: int | None = None) -> Iterator[api.BotQueueView]:
        """Yield the queues that a bot looks at for work."""
        return self._session.pages(f"/bots/{segment(name)}/queues", {}, api.BotQueues, limit)

    def dimensions(self) -> api.DimensionAggregation:
        """Return the dimensions of all bots, with their values."""
        return self._session.get("/dimensions", api.DimensionAggregation)

    def pools(self) -> list[api.PoolView]:
        """Return all pools."""
        return self._session.get("/pools", api.Pools).items

    def demand(self, pool: str) -> api.PoolDemand:
        """Return how many tasks of a pool want a bot, by the dimensions that it must have."""
        return self._session.get(f"/pools/{segment(pool)}/demand", api.PoolDemand)

    def set_pool(self, name: str, **settings: float | str | None) -> api.PoolView:
        """Create a pool, or change its settings; those that are left out stay as they are.

        They are `capacity` (None: no limit) or `from_bots` with `unit` (`slots` or `forks`) and `adjustment`, and for
        the results of idempotent tasks `reuse_window` (a duration like `7d`) and `reuse_shared`. With `external`,
        workers behind a message broker run its tasks.
        """
        return self._session.put(f"/pools/{segment(name)}", settings, api.PoolView)

    # Targets of events.

    def targets(self) -> list[api.EventTarget]:
        """Return the targets to which all events are delivered, and how far behind each is."""
        return self._session.get("/targets", api.EventTargets).items

    def remove_target(self, name: str) -> None:
        """Remove a target, and what it has not got yet."""
        self._session.delete(f"/targets/{segment(name)}", object)

    # Admission: limits, mutexes, and passes by hand.

    def schedule(self) -> api.PassView:
        """Run an admission pass, as servers do by themselves when something changes."""
        return self._session.post("/schedule", None, api.PassView)

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

    # Secrets.

    def set_secret(self, name: str, value: str | bytes, *, pool: str = "default") -> api.SecretView:
        """Store a secret, or replace its value; the server never returns it."""
        import base64  # noqa: PLC0415

        raw = value.encode() if isinstance(value, str) else value
        return self._session.put(_secret(pool, name), {"value_base64": base64.b64encode(raw).decode()}, api.SecretView)

    def schedules(self, *, limit: int | None = None) -> Iterator[api.ScheduleView]:
        """Yield schedules with their next and their last run, read page by page."""
        return self._session.pages("/schedules", {}, api.Schedules, limit)

    def show_schedule(self, name: str, *, count: int = 5) -> api.ScheduleView:
        """Return one schedule with so many of its next runs."""
        return self._session.get(f"/schedules/{segment(name)}?count={count}", api.ScheduleView)

    def preview_schedule(
        self,
        *,
        cron: str | None = None,
        rrule: str | None = None,
        timezone: str | None = None,
        start: str | None = None,
        count: int = 5,
    ) -> list[int]:
        """Return when a cron expression or a recurrence rule would run, in milliseconds since 1970."""
        fields = {"cron": cron, "rrule": rrule, "timezone": timezone, "start": start}
        given = {name: text for name, text in fields.items() if text is not None}
        return self._session.post(f"/schedules/preview?count={count}", given, api.ScheduleRuns).runs

    def secrets(self, *, pool: str | None = None, limit: int | None = None) -> Iterator[api.SecretView]:
        """Yield secrets without their values, read page by page."""
        return self._session.pages("/secrets", {"pool": pool}, api.SecretViews, limit)

    def delete_secret(self, name: str, *, pool: str = "default") -> api.DeletedSecret:
        """Delete a secret; tasks that name it wait until it is set again."""
        return self._session.delete(_secret(pool, name), api.DeletedSecret)

    def rotate_secrets(self, *, abandon: bool = False) -> api.SecretRotation:
        """Encrypt all secrets with the first key of the server's key file; with `abandon`, give up a lost key."""
        return self._session.post("/secrets/rotate", {"abandon": abandon}, api.SecretRotation)

    # The catalogue.

    def apply(
        self, documents: Sequence[Mapping[str, Any]], *, dry_run: bool = False, key: str = ""
    ) -> list[api.DocumentChange]:
        """Store documents of the catalogue, all or none; in a dry run only return what would change."""
        body = {"documents": list(documents), "dry_run": dry_run}
        return self._session.post("/catalogue", body, api.DocumentChanges, key=key).items

    def documents(
        self, *, kind: str | None = None, pool: str | None = None, detail: str = "short", limit: int | None = None
    ) -> Iterator[api.DocumentView]:
        """Yield documents by kind and name, read page by page.

        With the detail `whole`, each has what it says; with `launches` also its last launch: a project its last update,
        an inventory those of its sources.
        """
        query: Query = {"kind": kind, "pool": pool, "detail": detail}
        return self._session.pages("/catalogue", query, api.DocumentViews, limit)

    def document(self, kind: str, name: str) -> api.DocumentView:
        """Return a document with what it says."""
        return self._session.get(f"/catalogue/{segment(kind)}/{segment(name)}", api.DocumentView)

    def document_versions(self, kind: str, name: str, *, limit: int | None = None) -> Iterator[api.DocumentVersion]:
        """Yield the versions of a document, the newest first; one without a document is a deletion."""
        path = f"/catalogue-versions/{segment(kind)}/{segment(name)}"
        return self._session.pages(path, {}, api.DocumentVersions, limit)

    def delete_document(self, kind: str, name: str) -> None:
        """Delete a document, unless others refer to it."""
        self._session.remove(f"/catalogue/{segment(kind)}/{segment(name)}")

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

    def sign_in_link(self) -> api.SignInLink:
        """Make a code that signs in to the web page once, within some minutes: the page takes it as `#sign-in=CODE`."""
        return self._session.post("/session/links", None, api.SignInLink)

    def about(self) -> "About":
        """Return the server's version and time, and what this client's own token may do."""
        from taskyard.wire.api import About  # noqa: PLC0415

        return self._session.get("/about", About)

    def enrol(self, name: str) -> api.NewToken:
        """Exchange the client's own enrolment token for the token of a bot."""
        return self._session.post("/enrol", {"name": name}, api.NewToken, repeatable=False)


def _given(**said: object) -> dict[str, object]:
    return {name: value for name, value in said.items() if value is not None}


def _secret(pool: str, name: str) -> str:
    return f"/secrets/{segment(name)}?pool={segment(pool)}"


def _task_query(  # noqa: PLR0913, PLR0917 - as for `tasks`
    graph: str | None,
    state: str | Sequence[str] | None,
    tags: Sequence[str],
    bot: str | None,
    user: str | None,
    pool: str | None,
    since_ms: int | None,
    until_ms: int | None,
) -> Query:
    return {
        "graph": graph,
        "state": _listed(state),
        "tag": list(tags) or None,
        "bot": bot,
        "user": user,
        "pool": pool,
        "since_ms": since_ms,
        "until_ms": until_ms,
    }


def _listed(state: str | Sequence[str] | None) -> list[str] | None:
    return ([state] if isinstance(state, str) else list(state or ())) or None


def _others(query: Query) -> bool:
    """Whether there is any condition beside the state."""
    return any(value is not None for name, value in query.items() if name != "state")
