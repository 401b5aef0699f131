"""What admission costs: a whole decision over everything pending, and the local rule after a single release.

A third of the pending tasks contend for mutexes, in a pool with room; the others wait in a pool that is full. So every
release admits exactly one task, however many are pending. Few and many pending are measured in turn, in the same run.
"""

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from time import perf_counter

from benchmarks.report import Case, main
from taskyard.core.admission.index import AdmissionIndex
from taskyard.core.admission.rules import Contender, Facts, Holder, Pool, decide
from taskyard.core.graph.model import Mutex
from taskyard.core.states import Millis, TaskId

ROUNDS = 5
HOLDING = 1_000
#: Mutexes that are held and contended for; each is released three times, as are as many tasks of the full pool.
KEYS = 100
RELEASES = 3 * KEYS
NOW = Millis(1_000_000)


def measure(quick: bool) -> Sequence[Case]:
    """Measure whole decisions, then single releases, each with few and with many pending."""
    many = 20_000 if quick else 100_000
    return [*_decisions(many // 10, many), *_releases(1_000, many)]


def _decisions(few: int, many: int) -> Iterator[Case]:
    small, large = _facts(few), _facts(many)
    # Ten small ones last about as long as a large one, so that whatever else the machine does hits both alike.
    ten_small, one_large = _in_turn(ROUNDS, lambda: [decide(small, NOW) for _ in range(10)], lambda: decide(large, NOW))
    yield Case(f"decide with {many:,} pending", min(one_large), "s", "lower", must=1.0, goal=0.5)
    ratio = min(one_large) / min(ten_small) * 10
    yield Case(f"decide with {many:,} / {few:,} pending", ratio, "ratio", "lower", must=13.0)


def _releases(few: int, many: int) -> Iterator[Case]:
    small, large = _Harness(few), _Harness(many)
    times_small, times_large = _in_turn(RELEASES, small.release_two, large.release_two)
    yield Case(f"give back and decide with {many:,} pending", median(times_large) / 2 * 1e6, "us", "lower")
    ratio = median(times_large) / median(times_small)
    yield Case(f"give back and decide with {many:,} / {few:,} pending", ratio, "ratio", "lower", must=2.0)


def _in_turn(
    rounds: int, small: Callable[[], object], large: Callable[[], object]
) -> tuple[Sequence[float], Sequence[float]]:
    # What is pending stays: else the garbage collector would sweep over all of it in some rounds and not in others.
    gc.collect()
    gc.freeze()
    times = [(_seconds(small), _seconds(large)) for _ in range(rounds)]
    return [each[0] for each in times], [each[1] for each in times]


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


class _Harness:
    """An admission index, and the holders to release: in turn one of a mutex and one of the full pool."""

    def __init__(self, pending: int) -> None:
        facts = _facts(pending)
        self._index = AdmissionIndex(facts)
        self._index.decide(NOW)
        self._holding = deque(holder.id for holder in facts.holding if holder.mutexes)
        self._filling = deque(holder.id for holder in facts.holding if not holder.mutexes)

    def release_two(self) -> None:
        """Release one of each; the tasks that are admitted in their place are released later."""
        for ids in (self._holding, self._filling):
            self._index.give_back(ids.popleft())
            (admitted,) = self._index.decide(NOW).admitted
            ids.append(admitted)


def _facts(pending: int) -> Facts:
    return Facts(
        pending=tuple(_job(number) if number % 3 == 0 else _plain(number) for number in range(pending)),
        holding=tuple(_holder(number) for number in range(HOLDING)),
        pools=(Pool("roomy"), Pool("full", HOLDING - KEYS)),
        stake_after={f"project:{key}": 0 for key in range(KEYS)},  # strict order: a release frees one and no more
    )


def _job(number: int) -> Contender:
    key, rank = number // 3 % KEYS, number // 3 // KEYS
    # At each key, one that shares and one that wants to be alone take turns: a release frees one and no more.
    mutexes = (Mutex(f"project:{key}", "job" if rank % 2 else None), Mutex(f"inventory:{key}", "job"))
    return Contender(TaskId(f"job-{number:06}"), 100, Millis(number), "roomy", 1, mutexes)


def _plain(number: int) -> Contender:
    return Contender(TaskId(f"task-{number:06}"), 100, Millis(number), "full")


def _holder(number: int) -> Holder:
    id, since = TaskId(f"holder-{number:04}"), Millis(0)
    if number < KEYS:
        return Holder(
            id, "roomy", 1, (Mutex(f"project:{number}", "job"), Mutex(f"inventory:{number}", "job")), (), since
        )
    return Holder(id, "full", 1, (), (), since)


if __name__ == "__main__":
    sys.exit(main("admission", measure))
