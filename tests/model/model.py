"""The reference model: what tasks, graphs and bots do, written as simply as possible. It is slow, and has no store.

It keeps no counts and propagates nothing: after each transition it examines all tasks again and again until none has to
move. It uses only the enums of the product.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from taskyard.core.states import On, Reason, Signal, State
from tests.model.entities import (
    BAD,
    ENDED,
    GUARD,
    HOLDING,
    LEASE,
    LEASED,
    OUTAGE,
    SILENT,
    SPARED,
    STAKE_AFTER,
    Bot,
    Graph,
    Task,
    gate,
)
from tests.model.requests import CAPACITY, POOL, TaskSpec

S, R = State, Reason

#: A task, where it goes, why, and what else changes with it.
Step = tuple[Task, State, Reason, Callable[[Task], None] | None]


class Model:
    """Everything there is."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.up_since = self.beat_ms = 0
        self.graphs: dict[int, Graph] = {}
        self.tasks: dict[int, Task] = {}
        self.bots: dict[str, Bot] = {}
        self.kept_back = 0  # how often only the stake of an older task held a task

    # People.

    def add(
        self, graph: int, specs: Mapping[str, TaskSpec], ids: Mapping[str, int], created_ms: int, hidden: bool = False
    ) -> None:
        """Add a graph, or add tasks to one."""
        into = self.graphs.setdefault(graph, Graph(graph))
        for label, one in specs.items():
            task = Task(ids[label], into, one, created_ms, hidden=hidden)
            task.fresh()
            into.tasks[label] = self.tasks[task.id] = task
        for label, one in specs.items():
            into.tasks[label].before = [(into.tasks[name], on) for name, on in one.requires]
        self.follow()

    def cancel(self, tasks: Iterable[Task]) -> int:
        """Cancel tasks; return how many that moves."""
        steps: list[Step] = []
        for task in tasks:
            if task.hidden:
                continue
            if task.state is S.RUNNING:
                steps.append((task, S.STOPPING, R.STOP_ASKED, None))
            elif task.state not in ENDED | LEASED:
                steps.append((task, S.CANCELED, R.ASKED, None))
        self.follow(steps)
        return len(steps)

    def behind(self, task: Task) -> set[Task]:
        """A task and everything behind it."""
        found = {task}
        while more := {
            one for one in task.graph.tasks.values() if one not in found and found & {t for t, _ in one.before}
        }:
            found |= more
        return found

    def rerun(self, tasks: Iterable[Task]) -> int:
        """Open a new round of failed tasks; return how many."""
        failed = [task for task in tasks if task.state in BAD and not task.past(self.now)]
        self.follow([(task, S.UNSCHEDULED, R.PREREQUISITE, _new_round) for task in failed])
        return len(failed)

    # Bots.

    def hello(self, name: str, session: str, pools: Iterable[str], had: Collection[int] | None = None) -> None:
        """A bot connects or changes its dimensions; a new session loses the leases of the old one.

        `had` has the tasks that the bot had begun, if it knows.
        """
        bot = self.bots.get(name)
        if bot is not None and bot.session != session:
            self.lose(name, had)
        self.bots[name] = Bot(name, session, frozenset(pools), self.now)

    def goodbye(self, name: str) -> None:
        self.lose(name)
        self.bots[name].gone = True

    def lose(self, bot: str, had: Collection[int] | None = None) -> None:
        self.follow([self.lost(task, had) for task in self.tasks.values() if task.bot == bot])

    def lost(self, task: Task, had: Collection[int] | None = None) -> Step:
        """The bot of a task is lost: what had not begun costs no retry if the bot says so, else twice in a round."""
        if task.reason is not R.ASSIGNED:
            return self.ended(task, Signal.LOSE)
        if had is not None:
            return self.ended(task, Signal.LOSE if task.id in had else Signal.RETURN)
        return self.ended(task, Signal.LOSE, spared=task.spared < SPARED)

    def starts(self, task: Task) -> None:
        """A bot says that it has begun a task."""
        task.reason = R.UNDER_WAY if task.reason is R.ASSIGNED else task.reason

    def mark_seen(self, bot: str) -> None:
        self.bots[bot].seen_ms, self.bots[bot].missing = self.now, False

    def claim(self, name: str, want: int, at_once: bool = True) -> list[Task]:
        """Lease to a bot the first tasks that it can run."""
        bot = self.bots[name]
        found = [task for task in self.tasks.values() if self.fits(task, bot)] if bot.takes_work else []
        chosen = [task for task in sorted(found, key=lambda task: task.turn)[:want] if not task.past(self.now)]
        reason = R.UNDER_WAY if at_once else R.ASSIGNED
        self.follow([(task, S.RUNNING, reason, lambda task: self.begin(task, name)) for task in chosen])
        return chosen

    def fits(self, task: Task, bot: Bot) -> bool:
        if task.state is not S.WAITING or task.graph.canceled or task.spec.noop or task.slice.pool not in bot.pools:
            return False
        others = (one for one in self.bots.values() if one is not bot and one.takes_work)
        return task.avoid_bot != bot.name or not any(task.slice.pool in one.pools for one in others)

    def begin(self, task: Task, bot: str) -> None:
        task.attempt, task.said, task.waits_since, task.avoid_bot, task.bot = task.attempt + 1, None, None, None, bot
        task.until_ms = self.now + LEASE

    def renew(self, task: Task) -> None:
        assert task.until_ms is not None
        if not task.past(self.now):
            task.until_ms = max(task.until_ms, self.now + LEASE)

    def end(self, task: Task, signal: Signal) -> None:
        """An attempt ends with the signal that its bot reports."""
        self.follow([self.ended(task, signal)])

    def ended(self, task: Task, signal: Signal, spared: bool = False) -> Step:
        late = task.past(self.now)
        spared = spared and not late
        begins = self.now + task.spec.delay_ms * 2**task.reruns
        again = S.STOPPING is not task.state and {
            Signal.FAIL: task.reruns < task.spec.reruns and (task.deadline is None or begins < task.deadline),
            Signal.LOSE: spared or (task.retries < task.spec.retries and not late),
            Signal.RETURN: True,
        }.get(signal, False)
        why = {Signal.SUCCEED: R.DONE, Signal.FAIL: R.EXIT_CODE, Signal.DEADLINE: R.DEADLINE}
        lost = R.DEADLINE if late else R.RETURNED if spared else R.BOT_LOST
        reason = R.RETURNED if signal is Signal.RETURN else why.get(signal, lost)
        target = {Signal.SUCCEED: S.SUCCESSFUL, Signal.FAIL: S.FAILED}.get(signal, S.ERROR)
        if task.state is S.STOPPING:
            target, reason = S.CANCELED, R.ASKED

        def change(task: Task) -> None:
            task.avoid_bot = task.bot if signal is Signal.LOSE else task.avoid_bot
            task.said, task.bot, task.until_ms = signal, None, None
            task.ends[task.attempt] = signal
            task.spared += spared
            if (spared or signal is Signal.RETURN) and task.attempt == task.began_after + 1:
                task.began_after = task.attempt
            if again and signal is Signal.FAIL:
                task.reruns += 1
                task.not_before = begins if task.spec.delay_ms else None
            elif again and signal is Signal.LOSE and not spared:
                task.retries += 1

        return task, S.PENDING if again else target, reason, change

    # Time.

    def beat(self) -> None:
        if self.now - self.beat_ms > OUTAGE:
            self.up_since = self.now
        self.beat_ms = self.now

    def sweep(self) -> None:
        """Apply timeouts once."""
        self.beat()
        steps, ready = [], []
        for task in self.tasks.values():
            if task.hidden or task.state in ENDED:
                continue
            step = self.due_leased(task) if task.state in LEASED else self.due(task)
            if step is not None:
                steps.append(step)
            elif task.state is S.PENDING and not task.needs_admission:
                ready.append(task)
        self.follow(steps, ready)
        for bot in self.bots.values():
            if self.now - self.up_since > SILENT and not bot.gone and self.now - bot.seen_ms > SILENT:
                bot.missing = True

    def due_leased(self, task: Task) -> Step | None:
        if task.until_ms is None or task.until_ms + GUARD > self.now:
            return None
        task.until_ms = max(task.until_ms, self.up_since + LEASE)
        if task.until_ms + GUARD > self.now:
            return None
        return self.ended(task, Signal.DEADLINE) if task.past(self.now) else self.lost(task)

    def due(self, task: Task) -> Step | None:
        if task.past(self.now):
            return task, S.ERROR, R.DEADLINE, None
        if task.waits_since is None or task.waits_since + task.slice.expires_ms > self.now:
            return None
        following = self.next_slice(task, task.slice_index + 1)
        if following is not None:
            return task, S.PENDING, R.EXPIRED, _use_slice(following)
        lost = task.retries > 0 and task.said is Signal.LOSE
        return task, S.ERROR, R.BOT_LOST if lost else R.EXPIRED, None

    def next_slice(self, task: Task, first: int) -> int | None:
        """The next slice that waits for a bot, or that a live one could run."""
        seen = [bot for bot in self.bots.values() if bot.takes_work]
        for place, one in enumerate(task.spec.slices):
            if place >= first and (one.patient or any(one.pool in bot.pools for bot in seen)):
                return place
        return None

    # The server.

    def run_server_tasks(self) -> None:
        own = [task for task in self.tasks.values() if task.state is S.WAITING and task.spec.noop]
        own = [task for task in own if not task.past(self.now) and not task.graph.canceled]
        self.follow([(task, S.RUNNING, R.UNDER_WAY, lambda task: self.begin(task, "server")) for task in own])
        self.follow([self.ended(task, Signal.SUCCEED) for task in own])

    def schedule(self) -> None:
        """Admit tasks in order until no more can be admitted."""
        while True:
            back = [task for task in self.tasks.values() if task.state is S.WAITING and not self.served(task)]
            let_in = self.walk()
            steps: list[Step] = [(task, S.PENDING, R.NO_BOT, None) for task in back]
            self.follow(steps + [(task, S.WAITING, R.IN_LINE, self.let_in) for task in let_in])
            if not steps and not let_in:
                return

    def walk(self) -> list[Task]:
        holding = [task for task in self.tasks.values() if task.state in HOLDING]
        taken = [mutex for task in holding for mutex in task.spec.mutexes]
        staked: list[tuple[str, str | None]] = []
        used = sum(task.weight for task in holding if task.slice.pool == POOL)
        admitted = []
        pending = (task for task in self.tasks.values() if task.state is S.PENDING and task.needs_admission)
        for task in sorted(pending, key=lambda task: task.turn):
            reason = self.holds(task, taken + staked, used)
            if reason is R.MUTEX:
                self.kept_back += self.holds(task, taken, used) is not R.MUTEX
                task.mutex_since = self.now if task.mutex_since is None else task.mutex_since
                if self.now - task.mutex_since >= STAKE_AFTER:
                    staked += task.spec.mutexes
            if reason is None:
                taken += task.spec.mutexes
                used += task.weight if task.slice.pool == POOL else 0
                admitted.append(task)
            elif reason is not R.NO_BOT:
                task.waits_since = None
            elif task.waits_since is None:
                task.waits_since = self.now
        return admitted

    def holds(self, task: Task, taken: Sequence[tuple[str, str | None]], used: int) -> Reason | None:
        if task.not_before is not None and task.not_before > self.now:
            return R.NOT_BEFORE
        if any(key == k and (party is None or party != p) for key, party in task.spec.mutexes for k, p in taken):
            return R.MUTEX
        if not self.served(task):
            return R.NO_BOT
        crowded = task.weight and task.slice.pool == POOL and used and used + task.weight > CAPACITY
        return R.CAPACITY if crowded else None

    def served(self, task: Task) -> bool:
        """Whether a task may hold its mutexes: some bot is there for it."""
        bots = (bot for bot in self.bots.values() if bot.takes_work)
        return not task.spec.mutexes or task.spec.noop or any(task.slice.pool in bot.pools for bot in bots)

    def let_in(self, task: Task) -> None:
        task.waits_since = self.now if task.waits_since is None else task.waits_since
        task.not_before = task.mutex_since = None

    # What follows.

    def follow(self, steps: Sequence[Step] = (), ready: Sequence[Task] = ()) -> None:
        """Carry out transitions, all at once, and then those that follow from them, wave after wave."""
        while True:
            released = [task for task, *_ in steps if task.state is S.UNSCHEDULED]
            for task, state, reason, change in steps:
                task.state, task.reason = state, reason
                task.mutex_since = task.mutex_since if state is S.PENDING else None
                if change is not None:
                    change(task)
            moved = {
                task.id for task, *_ in steps
            }  # a handler that ended at the same moment has not run for that failure
            for task, *_ in steps:
                if task.state in ENDED and task.attempt > task.began_after:
                    task.handled_round |= {
                        one.id: one.round
                        for one, on in task.before
                        if on is not On.SUCCESS and one.state in BAD and one.id not in moved
                    }
            pending = [*ready, *(task for task, *_ in steps if task.state is S.PENDING)]
            wanted = [self.step_of(task) for task in self.tasks.values()]
            steps = [step for step in wanted if step] + [
                step for task in pending if (step := self.go_on(task, task in released))
            ]
            ready = ()
            if not steps:
                return

    def go_on(self, task: Task, released: bool) -> Step | None:
        """A pending task chooses its slice, and is admitted at once if it needs no admission."""
        place = self.next_slice(task, task.slice_index) if released else task.slice_index
        if place != task.slice_index:
            return task, S.ERROR if place is None else S.PENDING, R.NO_BOT, None if place is None else _use_slice(place)
        early = task.not_before is not None and task.not_before > self.now
        return (
            None if task.needs_admission or early or task.graph.canceled else (task, S.WAITING, R.IN_LINE, self.let_in)
        )

    def step_of(self, task: Task) -> Step | None:
        """The transition that the prerequisites of a task demand, if any."""
        if task.graph.canceled or task.hidden or task.state not in {S.UNSCHEDULED, S.BLOCKED, S.SKIPPED}:
            return None
        state = gate(task)
        if state is task.state:
            return None
        if task.state is S.UNSCHEDULED or state is S.SKIPPED:
            return task, state, _REASONS[state], None
        return task, S.UNSCHEDULED, R.PREREQUISITE, None


_REASONS = {
    S.PENDING: R.UNSEEN,
    S.BLOCKED: R.PREREQUISITE_FAILED,
    S.FAILED: R.PREREQUISITE_FAILED,
    S.SKIPPED: R.CONDITION,
}


def _new_round(task: Task) -> None:
    task.round, task.began_after = task.round + 1, task.attempt
    task.fresh()


def _use_slice(place: int) -> Callable[[Task], None]:
    def change(task: Task) -> None:
        task.slice_index, task.waits_since = place, None

    return change
