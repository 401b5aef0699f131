"""The chain of tasks that determines when a graph ends: the one it had, or the one that is still to come.

Looking back, a task began once the last of what it required had ended, or the first if one was enough (`decisive`).
Looking forward, everything that can still run is taken to succeed and to find a bot at once, so what comes out is the
earliest end (`forecast`). Both cost as much as there are tasks and edges. Nothing here knows how long things take.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from taskyard.core.states import BEHIND, LEASED, SHUT, Join, On, State
from taskyard.core.structs import value

# Looking back.


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
    """Name the prerequisite whose end let a task begin at `began_ms`; None if it waited for nobody."""
    ended = [one for one in prerequisites if one.ended_ms <= began_ms]
    if join is Join.ANY:
        return min((one for one in ended if one.met), key=lambda one: (one.ended_ms, one.task), default=None)
    return max(ended, key=lambda one: (one.ended_ms, -one.task), default=None)


def ran_ms(ready_ms: int, attempts: Iterable[Spell]) -> int:
    """Say how long a task ran after it was ready."""
    return sum(max(0, one.ended_ms - max(one.began_ms, ready_ms)) for one in attempts)


# Looking forward.


@value
class Coming:
    """A task that has not ended."""

    state: State
    join: Join = Join.ALL
    takes_ms: int | None = None  # how long such a task takes, if anybody knows
    ran_ms: int = 0  # how long it has run
    pause_ms: int = 0  # it does not begin before that has passed


@value
class Forecast:
    """What is still to come, if everything that runs succeeds."""

    path: tuple[int, ...]  # the tasks that determine the end, the first to come first
    ends_in_ms: int
    runs: frozenset[int]  # what is going to run, or runs
    stuck: frozenset[int]  # what hangs on something blocked, and needs a person


def typical_ms(past: Sequence[int]) -> int | None:
    """Say how long something takes that took so long before: the middle of it, which no single slow day moves."""
    return sorted(past)[(len(past) - 1) // 2] if past else None


def remaining_ms(task: Coming) -> int:
    """Say how much longer a task takes once it has begun or its turn has come; nothing, if nobody knows."""
    if task.state in LEASED:
        return max(0, (task.takes_ms or 0) - task.ran_ms)
    return task.takes_ms or 0


def forecast(tasks: Mapping[int, Coming], edges: Iterable[tuple[int, int, On]]) -> Forecast:
    """Say what comes; `edges` are those out of tasks that have not ended: prerequisite, dependent, on."""
    ahead = _Ahead(tasks, edges)
    for task in ahead.in_order():
        ahead.judge(task)
    last = min(ahead.ends, key=ahead.latest, default=None)
    ends_in_ms = 0 if last is None else ahead.ends[last]
    return Forecast(ahead.path_to(last), ends_in_ms, frozenset(ahead.ends), frozenset(ahead.stuck))


class _Ahead:
    """What is known of the time to come while it is worked out, task by task."""

    def __init__(self, tasks: Mapping[int, Coming], edges: Iterable[tuple[int, int, On]]) -> None:
        self._tasks = tasks
        self._into: dict[int, list[tuple[int, On]]] = defaultdict(list)
        self._out_of: dict[int, list[int]] = defaultdict(list)
        for prerequisite, dependent, on in edges:
            if dependent in tasks and tasks[dependent].state in BEHIND:  # whoever is released waits for nobody
                self._into[dependent].append((prerequisite, on))
                self._out_of[prerequisite].append(dependent)
        self.ends: dict[int, int] = {}  # of what runs, from now
        self.stuck: set[int] = set()
        self._after: dict[int, int] = {}  # whose end a task begins with
        self._steps: dict[int, int] = {}  # how many tasks are on the chain that ends with a task

    def latest(self, task: int) -> tuple[int, int, int]:
        """Put the last to end first; of those that end together, the one with most before it."""
        return -self.ends[task], -self._steps[task], task

    def in_order(self) -> Iterable[int]:
        """Name tasks, prerequisites first."""
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
        """Say when a task ends whose prerequisites are judged. One that is in neither set steps aside."""
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
