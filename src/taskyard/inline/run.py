"""The run itself: one loop that owns the Scheduler, starts attempts, and settles each as it ends.

Everything that happens from outside, the end of an attempt or a signal to this process, comes through one queue, so
the loop is the only one that thinks. It waits for that queue and for the next moment it has to act, and for nothing
else. `watch` is called from the loop.
"""

import heapq
import math
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from taskyard.core import ids
from taskyard.core.graph import Graph, Reruns, Task, substitute
from taskyard.core.graph.limits import RERUN_DELAY_MAX_MS
from taskyard.core.machine import ENDED
from taskyard.core.words import GraphState, Kind, Millis, Reason, State
from taskyard.inline.attempt import Attempt, End
from taskyard.inline.invocation import Invocation, invocation
from taskyard.inline.signals import signals_to
from taskyard.local import Dag, Scheduler
from taskyard.wire.progress import Outcome, Progress

Watch = Callable[[Progress], None]

#: Nothing waits longer than a day at a time; a longer wait is more than the platform can be asked for.
PATIENCE_SECONDS_MAX = 86_400.0
#: Delays stop growing here, long after the longest that is allowed; more would only overflow.
GROWTHS_MAX = 32


def run_graph(graph: Graph, jobs: int, watch: Watch) -> Outcome:
    """Run a graph to its end, at most `jobs` tasks at a time, and say how it ended.

    The first signal asks running tasks to end, a second one kills them; both make the graph `canceled`.
    """
    run = _Run(graph, jobs, watch)
    try:
        with signals_to(run.stop_asked):
            run.to_its_end()
    finally:
        run.kill()  # only an error comes here with anything running
    return run.outcome()


@dataclass(slots=True)
class _Running:
    """An attempt under way: when it has to be told to end, and how its end is to be read."""

    attempt: Attempt
    invocation: Invocation
    act_at: float
    verdict: Reason | None = None

    def press(self, verdict: Reason) -> None:
        """Ask it to end, and kill it when it was asked before."""
        is_kill = self.verdict is not None
        self.act_at = math.inf if is_kill else time.monotonic() + self.invocation.grace_ms / 1000
        self.verdict = self.verdict or verdict
        self.attempt.stop(signal.SIGKILL if is_kill else signal.SIGTERM)


class _Run:
    def __init__(self, graph: Graph, jobs: int, watch: Watch) -> None:
        self._graph = graph
        self._jobs = jobs
        self._watch = watch
        self._began = time.monotonic()
        self._invocations = _invocations(graph)
        self._scheduler = _scheduler(graph)
        self._order = {label: (task.priority, place) for place, (label, task) in enumerate(graph.tasks.items())}
        self._dependents = _dependents(graph)
        self._ready: list[tuple[tuple[int, int], str]] = []
        self._later: list[tuple[float, str]] = []
        self._running: dict[str, _Running] = {}
        self._told: dict[str, Progress] = {}
        self._news: SimpleQueue[tuple[str, End] | None] = SimpleQueue()
        self._canceled = False

    def to_its_end(self) -> None:
        self._line_up(self._scheduler.available_tasks)
        while self._ready or self._running or self._later:
            self._start_what_fits()
            self._hear()
            self._keep_time()

    def stop_asked(self) -> None:
        """Take note, from any thread, that the run has to end."""
        self._news.put(None)

    def kill(self) -> None:
        """End everything that still runs, now, and wait until it is gone."""
        for running in self._running.values():
            running.attempt.stop(signal.SIGKILL)
        while self._running:
            if news := self._news.get():
                self._running.pop(news[0])

    def outcome(self) -> Outcome:
        tasks = {label: self._last(task) for label, task in self._graph.tasks.items()}
        return Outcome(self._graph.name, self._graph_state(tasks), _since_ms(self._began), tasks)

    def _line_up(self, labels: Iterable[object]) -> None:
        for label in map(str, labels):
            heapq.heappush(self._ready, (self._order[label], label))

    def _start_what_fits(self) -> None:
        while self._ready and len(self._running) < self._jobs:
            _, label = heapq.heappop(self._ready)
            if label in self._invocations:
                self._start(label, self._invocations[label])
            else:
                self._scheduler.fetch_task(label)
                self._succeed(Progress(label, State.SUCCESSFUL, 1, Reason.DONE, elapsed_ms=0))

    def _start(self, label: str, start: Invocation) -> None:
        attempts = self._attempts(label)
        if not attempts:
            self._scheduler.fetch_task(label)
        attempt = Attempt(start, on_end=lambda end: self._news.put((label, end)))
        self._tell(Progress(label, State.RUNNING, attempts + 1))
        attempt.start()
        self._running[label] = _Running(attempt, start, act_at=time.monotonic() + start.timeout_ms / 1000)

    def _hear(self) -> None:
        """Wait for news, until the next moment to act."""
        if not self._running and not self._later:
            return
        moments = [running.act_at for running in self._running.values()] + [due for due, _ in self._later[:1]]
        try:
            news = self._news.get(timeout=max(0.0, min(min(moments) - time.monotonic(), PATIENCE_SECONDS_MAX)))
        except Empty:
            return
        if news is None:
            self._cancel()
        else:
            self._settle(*news)

    def _keep_time(self) -> None:
        now = time.monotonic()
        for running in self._running.values():
            if running.act_at <= now:
                running.press(Reason.TIMED_OUT)
        while self._later and self._later[0][0] <= now:
            self._line_up([heapq.heappop(self._later)[1]])

    def _settle(self, label: str, end: End) -> None:
        progress = self._judge(label, self._running.pop(label).verdict, end)
        if progress.state is State.SUCCESSFUL:
            self._succeed(progress)
        elif progress.state is State.FAILED:
            self._fail(progress)
        else:
            self._tell(progress)
        if progress.state is State.PENDING:
            due = time.monotonic() + _delay_ms(self._graph.tasks[label].reruns, progress.attempt) / 1000
            heapq.heappush(self._later, (due, label))

    def _judge(self, label: str, verdict: Reason | None, end: End) -> Progress:
        reason = verdict or _reason(end)
        attempt = self._attempts(label)
        state = State.SUCCESSFUL if reason is Reason.DONE else State.FAILED
        if self._canceled:
            state = State.CANCELED
        elif state is State.FAILED and _is_rerun(self._graph.tasks[label].reruns, attempt, reason, end.exit_code):
            state = State.PENDING
        return Progress(label, state, attempt, reason, end.exit_code, end.elapsed_ms, end.tail)

    def _succeed(self, progress: Progress) -> None:
        self._tell(progress)
        self._line_up(self._scheduler.deliver_task(progress.label))

    def _fail(self, progress: Progress) -> None:
        self._tell(progress)
        self._scheduler.fail_task(progress.label)
        for label in self._dependents.get(progress.label, ()):
            by = tuple(sorted(map(str, self._scheduler.blocked_tasks[label])))
            self._tell(Progress(label, State.BLOCKED, reason=Reason.PREREQUISITE_FAILED, blocked_by=by))

    def _cancel(self) -> None:
        """Start nothing more and ask what runs to end; asked again, kill it."""
        self._ready, self._later = [], []
        for label, running in self._running.items():
            running.press(Reason.ASKED)
            if not self._canceled:
                self._tell(Progress(label, State.STOPPING, self._attempts(label)))
        self._canceled = True

    def _tell(self, progress: Progress) -> None:
        # Of a good end nobody asks for the output again, and kept for every task it would be much.
        self._told[progress.label] = replace(progress, tail="") if progress.state is State.SUCCESSFUL else progress
        self._watch(progress)

    def _attempts(self, label: str) -> int:
        return self._told[label].attempt if label in self._told else 0

    def _last(self, task: Task) -> Progress:
        told = self._told.get(task.label)
        if told is not None and told.state in ENDED:
            return told
        if self._canceled:
            return Progress(task.label, State.CANCELED, self._attempts(task.label), Reason.ASKED)
        return told or Progress(task.label, State.UNSCHEDULED, reason=Reason.PREREQUISITE, blocked_by=self._unmet(task))

    def _unmet(self, task: Task) -> tuple[str, ...]:
        told = {edge.task: self._told.get(edge.task) for edge in task.requires}
        return tuple(label for label, last in told.items() if last is None or last.state is not State.SUCCESSFUL)

    def _graph_state(self, tasks: Mapping[str, Progress]) -> GraphState:
        if self._canceled:
            return GraphState.CANCELED
        good = all(task.state is State.SUCCESSFUL for task in tasks.values())
        return GraphState.FINISHED if good else GraphState.BLOCKED


def _invocations(graph: Graph) -> dict[str, Invocation]:
    """Say what to start for each task; a noop is not in it, for nothing is started."""
    now = Millis(time.time_ns() // 1_000_000)
    keys = ids.mint(now, len(graph.tasks), secrets.randbelow(1 << ids.CHANCE_BITS))
    names = dict(zip(graph.tasks, map(ids.text_of, keys), strict=True))
    slices = {label: task.slices[0] for label, task in graph.tasks.items()}
    return {
        label: invocation(substitute(only.payload, names))
        for label, only in slices.items()
        if only.kind is not Kind.NOOP
    }


def _scheduler(graph: Graph) -> Scheduler:
    edges = [(label, edge.task) for label, task in graph.tasks.items() for edge in task.requires]
    return Scheduler(Dag.from_edges(edges, nodes=graph.tasks))


def _dependents(graph: Graph) -> dict[str, list[str]]:
    dependents: dict[str, list[str]] = {label: [] for label in graph.tasks}
    for label, task in graph.tasks.items():
        for edge in task.requires:
            dependents[edge.task].append(label)
    return dependents


def _reason(end: End) -> Reason:
    if end.signaled:
        return Reason.SIGNALED
    return Reason.EXIT_CODE if end.exit_code else Reason.DONE


def _is_rerun(reruns: Reruns, attempt: int, reason: Reason, exit_code: int) -> bool:
    asked = not reruns.exit_codes or (reason is Reason.EXIT_CODE and exit_code in reruns.exit_codes)
    return asked and attempt <= reruns.count


def _delay_ms(reruns: Reruns, attempt: int) -> float:
    return min(reruns.delay_ms * reruns.factor ** min(attempt - 1, GROWTHS_MAX), RERUN_DELAY_MAX_MS)


def _since_ms(moment: float) -> int:
    return round((time.monotonic() - moment) * 1000)
