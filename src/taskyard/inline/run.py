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
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import quote

from taskyard.core import budget, ids, values
from taskyard.core.graph import Graph, Member, Task, substitute, tally, verdict
from taskyard.core.machine import ENDED, Tell, effects, step
from taskyard.core.words import GraphState, Kind, Millis, Reason, Signal
from taskyard.inline.attempt import Attempt, End
from taskyard.inline.invocation import Invocation, invocation
from taskyard.inline.signals import signals_to
from taskyard.local import Dag, Scheduler
from taskyard.wire.progress import Outcome, Progress

Watch = Callable[[Progress], None]

#: The end of an attempt for which nothing had to be started.
NOTHING_RAN = End(exit_code=None, signaled=False, elapsed_ms=0, tail="")

#: Nothing waits longer than a day at a time; a longer wait is more than the platform can be asked for.
PATIENCE_SECONDS_MAX = 86_400.0
#: File systems take 255 bytes; this leaves room for the numbers.
LOG_NAME_MAX = 200
#: Two signals closer than this are one wish: `timeout` sends its signal twice, and nobody presses Ctrl-C that fast.
ONE_WISH_SECONDS = 0.3


def run_graph(graph: Graph, jobs: int, watch: Watch, logs: Path | None = None) -> Outcome:
    """Run a graph to its end, at most `jobs` tasks at a time, and say how it ended; `logs` is a folder for all output.

    The first signal asks running tasks to end, a second one kills them; both make the graph `canceled`.
    """
    run = _Run(graph, jobs, watch, logs)
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
    def __init__(self, graph: Graph, jobs: int, watch: Watch, logs: Path | None) -> None:
        self._graph = graph
        self._jobs = jobs
        self._watch = watch
        self._logs = logs
        self._began = time.monotonic()
        self._invocations = _invocations(graph)
        self._scheduler = _scheduler(graph)
        self._rules = {label: budget.rules_of(task, _now()) for label, task in graph.tasks.items()}
        self._lives = {label: budget.born(rules) for label, rules in self._rules.items()}
        self._order = {label: (task.priority, place) for place, (label, task) in enumerate(graph.tasks.items())}
        self._dependents = _dependents(graph)
        self._ready: list[tuple[tuple[int, int], str]] = []
        self._later: list[tuple[Millis, str]] = []
        self._running: dict[str, _Running] = {}
        self._told: dict[str, Progress] = {}
        self._news: SimpleQueue[tuple[str, End] | None] = SimpleQueue()
        self._canceled = False
        self._asked_at = -math.inf

    def to_its_end(self) -> None:
        self._release(self._scheduler.available_tasks)
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

    def _release(self, labels: Iterable[object]) -> None:
        for label in map(str, labels):
            self._send(label, Signal.RELEASE)
            self._line_up(label)

    def _line_up(self, label: str) -> None:
        heapq.heappush(self._ready, (self._order[label], label))

    def _start_what_fits(self) -> None:
        while self._ready and len(self._running) < self._jobs:
            _, label = heapq.heappop(self._ready)
            self._claim(label)
            if label in self._invocations:
                self._start(label, self._invocations[label])
            else:
                self._settle(label, Reason.DONE, NOTHING_RAN)

    def _claim(self, label: str) -> None:
        life = self._lives[label] = budget.claimed(budget.admitted(self._lives[label], _now()))
        if life.attempt == 1:
            self._scheduler.fetch_task(label)

    def _start(self, label: str, start: Invocation) -> None:
        attempt = Attempt(start, on_end=lambda end: self._news.put((label, end)), log=self._log_of(label))
        self._tell(Progress(label, self._lives[label].state, self._lives[label].attempt))
        attempt.start()
        self._running[label] = _Running(attempt, start, act_at=time.monotonic() + start.timeout_ms / 1000)

    def _log_of(self, label: str) -> Path | None:
        if self._logs is None:
            return None
        # The number tells labels apart that look alike as file names.
        number, name = self._order[label][1] + 1, quote(label, safe="[],=+@")[:LOG_NAME_MAX]
        return self._logs / f"{number:03}-{name}-{self._lives[label].attempt}.log"

    def _hear(self) -> None:
        """Wait for news, until the next moment to act."""
        if not self._running and not self._later:
            return
        moments = [running.act_at for running in self._running.values()] + [due / 1000 for due, _ in self._later[:1]]
        try:
            news = self._news.get(timeout=max(0.0, min(min(moments) - time.monotonic(), PATIENCE_SECONDS_MAX)))
        except Empty:
            return
        if news is None:
            self._cancel()
        else:
            label, end = news
            self._settle(label, self._running.pop(label).verdict or _reason(end), end)

    def _keep_time(self) -> None:
        now = time.monotonic()
        for running in self._running.values():
            if running.act_at <= now:
                running.press(Reason.TIMED_OUT)
        while self._later and self._later[0][0] <= now * 1000:
            self._line_up(heapq.heappop(self._later)[1])

    def _settle(self, label: str, reason: Reason, end: End) -> None:
        """Have the end of an attempt judged by the rules, and carry out what follows."""
        signal_, now = (Signal.SUCCEED if reason is Reason.DONE else Signal.FAIL), _now()
        exit_code = end.exit_code if reason is Reason.EXIT_CODE else None
        life = self._lives[label]
        ruling = budget.report(life, self._rules[label], life.attempt, signal_, now, exit_code)
        self._lives[label] = ruling.life_after
        progress = Progress(label, ruling.target, life.attempt, reason, end.exit_code, end.elapsed_ms, end.tail)
        if ruling.again:
            heapq.heappush(self._later, (ruling.life_after.not_before_ms or now, label))
        self._follow(progress, effects(life.state, ruling.target).tell)

    def _follow(self, progress: Progress, tell: Tell | None) -> None:
        self._tell(progress)
        if self._canceled:
            return  # a canceled graph starts nothing
        if tell is Tell.SUCCESS:
            self._release(self._scheduler.deliver_task(progress.label))
        elif tell is Tell.FAILURE:
            self._block(progress.label)

    def _block(self, failed: str) -> None:
        self._scheduler.fail_task(failed)
        for label in self._dependents[failed]:
            self._send(label, Signal.BLOCK)
            by = tuple(sorted(map(str, self._scheduler.blocked_tasks[label])))
            self._tell(Progress(label, self._lives[label].state, reason=Reason.PREREQUISITE_FAILED, blocked_by=by))

    def _send(self, label: str, signal_: Signal) -> None:
        life = self._lives[label]
        self._lives[label] = values.replace(life, state=step(life.state, signal_).target)

    def _cancel(self) -> None:
        """Start nothing more and ask what runs to end; asked again, kill it."""
        if time.monotonic() - self._asked_at < ONE_WISH_SECONDS:
            return
        self._asked_at = time.monotonic()
        self._ready, self._later = [], []
        for label, running in self._running.items():
            running.press(Reason.ASKED)
            if not self._canceled:
                self._send(label, Signal.CANCEL)
                self._tell(Progress(label, self._lives[label].state, self._lives[label].attempt))
        self._canceled = True

    def _tell(self, progress: Progress) -> None:
        # Of a good end nobody asks for the output again, and kept for every task it would be much.
        self._told[progress.label] = replace(progress, tail="") if progress.reason is Reason.DONE else progress
        self._watch(progress)

    def _last(self, task: Task) -> Progress:
        told, life = self._told.get(task.label), self._lives[task.label]
        if self._canceled and life.state not in ENDED:
            state = step(life.state, Signal.CANCEL).target
            return Progress(task.label, state, life.attempt, Reason.ASKED)
        return told or Progress(task.label, life.state, reason=Reason.PREREQUISITE, blocked_by=self._unmet(task))

    def _unmet(self, task: Task) -> tuple[str, ...]:
        told = {edge.task: self._told.get(edge.task) for edge in task.requires}
        return tuple(label for label, last in told.items() if last is None or last.reason is not Reason.DONE)

    def _graph_state(self, tasks: Mapping[str, Progress]) -> GraphState:
        members = {label: Member(progress.state) for label, progress in tasks.items()}
        return verdict(tally(members, {}), self._canceled)


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


def _now() -> Millis:
    """Read the clock of this run: milliseconds that only ever grow."""
    return Millis(time.monotonic_ns() // 1_000_000)


def _since_ms(moment: float) -> int:
    return round((time.monotonic() - moment) * 1000)
