"""The critical path of a graph: the chain of tasks that determined its end, or will.

For the past, a task began once the last of its prerequisites had ended, or the first if one was enough (`decisive`).
For the future, the forecast assumes that every task succeeds and finds a bot at once, so it is the earliest end
(`forecast`). The cost of both is linear in tasks and edges. Durations of tasks are arguments.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from taskyard.core.states import BEHIND, LEASED, SHUT, Join, On, State
from taskyard.core.structs import value

# The past.


@value
class Before:
    """A prerequisite that has ended: when, and whether that met the edge."""

    task: int
    ended_ms: int
    met: bool = True


@value
class Spell:
    """An attempt."""

    began_ms: int
    ended_ms: int


def decisive(join: Join, began_ms: int, prerequisites: Iterable[Before]) -> Before | None:
    """Return the prerequisite whose end let a task begin at `began_ms`; None if it waited for none."""
    ended = [one for one in prerequisites if one.ended_ms <= began_ms]
    if join is Join.ANY:
        return min((one for one in ended if one.met), key=lambda one: (one.ended_ms, one.task), default=None)
    return max(ended, key=lambda one: (one.ended_ms, -one.task), default=None)


def ran_ms(ready_ms: int, attempts: Iterable[Spell]) -> int:
    """Return how long a task ran after it was ready."""
    return sum(max(0, one.ended_ms - max(one.began_ms, ready_ms)) for one in attempts)


# The future.


@value
class Coming:
    """A task that has not ended."""

    state: State
    join: Join = Join.ALL
    takes_ms: int | None = None  # how long such a task takes, if known
    ran_ms: int = 0  # how long it has run
    pause_ms: int = 0  # it does not begin earlier than this from now


@value
class Forecast:
    """The forecast, if every task succeeds."""

    path: tuple[int, ...]  # the tasks that determine the end, in order
    ends_in_ms: int
    runs: frozenset[int]  # the tasks that run or will run
    stuck: frozenset[int]  # the tasks that depend on a blocked one, and need a person


def typical_ms(past: Sequence[int]) -> int | None:
    """Return the expected duration from earlier ones: the median, which a single slow run does not change."""
    return sorted(past)[(len(past) - 1) // 2] if past else None


def remaining_ms(task: Coming) -> int:
    """Return the remaining duration of a task that has begun or could begin; 0 if it is not known."""
    if task.state in LEASED:
        return max(0, (task.takes_ms or 0) - task.ran_ms)
    return task.takes_ms or 0


def forecast(tasks: Mapping[int, Coming], edges: Iterable[tuple[int, int, On]]) -> Forecast:
    """Return the forecast; `edges` are those out of tasks that have not ended: prerequisite, dependent, on."""
    ahead = _Ahead(tasks, edges)
    for task in ahead.in_order():
        ahead.judge(task)
    last = min(ahead.ends, key=ahead.latest, default=None)
    ends_in_ms = 0 if last is None else ahead.ends[last]
    return Forecast(ahead.path_to(last), ends_in_ms, frozenset(ahead.ends), frozenset(ahead.stuck))


class _Ahead:
    """The state of a forecast while it is computed, task by task."""

    def __init__(self, tasks: Mapping[int, Coming], edges: Iterable[tuple[int, int, On]]) -> None:
        self._tasks = tasks
        self._into: dict[int, list[tuple[int, On]]] = defaultdict(list)
        self._out_of: dict[int, list[int]] = defaultdict(list)
        for prerequisite, dependent, on in edges:
            if dependent in tasks and tasks[dependent].state in BEHIND:  # a released task waits for no prerequisite
                self._into[dependent].append((prerequisite, on))
                self._out_of[prerequisite].append(dependent)
        self.ends: dict[int, int] = {}  # of each task, from now
        self.stuck: set[int] = set()
        self._after: dict[int, int] = {}  # the prerequisite with whose end a task begins
        self._steps: dict[int, int] = {}  # how many tasks are on the chain that ends with a task

    def latest(self, task: int) -> tuple[int, int, int]:
        """Sort key: the task that ends last first; among equals, the one with the longest chain."""
        return -self.ends[task], -self._steps[task], task

    def in_order(self) -> Iterable[int]:
        """Return tasks, prerequisites first."""
        missing = {task: len(self._into[task]) for task in self._tasks}
        ready = [task for task, count in missing.items() if not count]
        while ready:
            task = ready.pop()
            yield task
            for dependent in self._out_of[task]:
                missing[dependent] -= 1
                if not missing[dependent]:
                    ready.append(dependent)

    def judge(self, task: int) -> None:
        """Return when a task ends whose prerequisites are judged. A task in neither set is skipped."""
        coming, edges = self._tasks[task], self._into[task]
        met = [one for one, on in edges if one in self.ends and on is not On.FAILURE]
        is_short = len(met) < len(edges) if coming.join is Join.ALL else bool(edges) and not met
        if coming.state in SHUT or (is_short and any(one in self.stuck for one, _ in edges)):
            self.stuck.add(task)
        elif not is_short:
            self._end(task, coming, met)

    def _end(self, task: int, coming: Coming, met: Sequence[int]) -> None:
        begins, steps = coming.pause_ms, 0
        if met:
            chosen = (max if coming.join is Join.ANY else min)(met, key=self.latest)
            if self.ends[chosen] >= begins:
                begins, steps, self._after[task] = self.ends[chosen], self._steps[chosen], chosen
        self.ends[task], self._steps[task] = begins + remaining_ms(coming), steps + 1

    def path_to(self, task: int | None) -> tuple[int, ...]:
        """Follow a task back to where its chain begins."""
        found: list[int] = []
        while task is not None:
            found.append(task)
            task = self._after.get(task)
        return tuple(reversed(found))
