"""The machine that plays: people, bots, the clock and a server that dies, on a real database and on the model at once.

After every step everything that can be seen is compared. `Lives` never has more to do than fits into a transaction, so
the model says exactly what is there. `paged.py` has the same life in small pages.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from taskyard.core.words import GraphState, Signal
from taskyard.lifecycle.admit import Bounds
from taskyard.lifecycle.answers import keyed
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.commands import Cancel, Renewal, Report, Rerun
from taskyard.lifecycle.outcomes import Asked, Code, Done, Lease, Refusal, Renewed
from taskyard.lifecycle.polling import Polled
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.submit import Changed, Extension, Submission, Submitted, submit
from tests.lifecycle.yard import START
from tests.model.asked import CAPACITY, POOL, Wanted, document, graphs, wanted
from tests.model.history import check_history, check_holders
from tests.model.model import BAD, ENDED, LEASED, Bot, Model, Task
from tests.model.premises import Premises, Seen

T = TypeVar("T")
#: The bots, and the pools that they serve.
BOTS = {"ant": ["default", POOL], "bee": ["default"], "cat": [POOL]}
#: More time than this does not pass: a task that waits ten minutes for its pool begins to reserve it.
TIME_MAX = 550_000
OVER = {GraphState.FINISHED, GraphState.CANCELED}
picks = st.integers(0, 60)


class Given(NamedTuple):
    """A lease, and who got it by which poll."""

    bot: str
    session: str
    poll: str
    want: int
    lease: Lease


class Lives(RuleBasedStateMachine):
    """People, bots and a server."""

    #: Makes an empty database, and says its address; and takes it away.
    fresh: ClassVar[Callable[[], str]]
    drop: ClassVar[Callable[[str], None]]
    bounds: ClassVar[Bounds] = Bounds()
    graphs_max: ClassVar[int] = 3
    #: What happened how often, over all examples.
    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self._handling = sys.exc_info()[1]
        self.url = type(self).fresh()
        self.yard = Premises(self.url, self.bounds)
        self.model = Model(START)
        self.verdicts: dict[int, GraphState] = {}
        self.submissions: list[Submission] = []
        self.extensions: list[tuple[int, object, Extension]] = []
        self.given: dict[tuple[int, int], Given] = {}
        self.sessions: Counter[str] = Counter()
        self.polled: dict[str, tuple[str, int]] = {}
        self.wishes: list[tuple[Cancel | Rerun, object]] = []

    @initialize(bots=st.sets(st.sampled_from(sorted(BOTS)), min_size=1), tasks=graphs())
    def begin(self, bots: set[str], tasks: dict[str, Wanted]) -> None:
        self.pass_time(1, awake=False)
        for bot in sorted(bots):
            self.hello(bot, anew=True)
        self.submit(tasks)

    # People.

    @precondition(lambda self: len(self.model.graphs) < self.graphs_max)
    @rule(tasks=graphs())
    def submit(self, tasks: dict[str, Wanted]) -> None:
        one = self.yard.prepared(document(tasks))
        answer = self.yard.do(lambda corridor: submit(corridor, [one]))[0]
        assert answer == Submitted(one.brood.graph_id)
        self.submissions.append(one)
        self.now().add(one.brood.graph_id, tasks, dict(one.brood.ids), self.yard.now)

    @precondition(lambda self: self.submissions)
    @rule(pick=picks, same=st.booleans())
    def submit_again(self, pick: int, same: bool) -> None:
        first = _some(self.submissions, pick)
        one = first if same else replace(first, definition=(*first.definition[:5], "another body"))
        answer = self.yard.do(lambda corridor: submit(corridor, [one]))[0]
        if same:
            assert answer == Submitted(one.brood.graph_id, echo=True)
        else:
            assert _code(answer) is Code.CONFLICT
        self.count("a submission was repeated" if same else "another body was refused")

    @precondition(lambda self: self.model.graphs)
    @rule(pick=picks, choices=st.data())
    def extend(self, pick: int, choices: st.DataObject) -> None:
        graph = _some(list(self.model.graphs.values()), pick)
        labels = [f"x{len(graph.tasks)}", f"x{len(graph.tasks)}b"][: choices.draw(st.integers(1, 2))]
        tasks = {label: choices.draw(wanted(list(graph.tasks))) for label in labels}
        one = self.yard.extension(graph.id, document(tasks))
        assert one is not None
        answer = self.yard.extend(one)
        if self.verdicts[graph.id] in OVER:
            assert _code(answer) is Code.CONFLICT
            self.count("an extension was refused")
            return
        assert answer == Submitted(graph.id)
        self.extensions.append((graph.id, document(tasks), one))
        self.now().add(graph.id, tasks, dict(one.brood.ids), self.yard.now)

    @precondition(lambda self: self.extensions)
    @rule(pick=picks)
    def extend_again(self, pick: int) -> None:
        graph, text, stale = _some(self.extensions, pick)
        assert self.yard.extension(graph, text) is None, "it has all of these tasks"
        assert isinstance(self.yard.extend(stale), Changed), "it was checked against what the graph was"
        self.count("an extension was repeated")

    @precondition(lambda self: self.model.tasks)
    @rule(pick=picks)
    def cancel_task(self, pick: int) -> None:
        task = self.some_task(pick, lambda task: task.state not in ENDED)
        answer = self.wish(Cancel(task=task.id, actor="ann", key=self.key()))
        state = task.state
        if self.now().cancel([task]):
            assert answer == Done(task.id, "stopping" if state in LEASED else "canceled")  # type: ignore[arg-type]
        elif state in {"stopping", "canceled"}:
            assert answer == Done(task.id, state, echo=True)
        else:
            assert _code(answer) is Code.CONFLICT

    @precondition(lambda self: self.model.tasks)
    @rule(pick=picks)
    def cancel_subtree(self, pick: int) -> None:
        task = self.some_task(pick, lambda task: task.state not in ENDED)
        answer = self.wish(Cancel(task=task.id, subtree=True, actor="ann", key=self.key()))
        if self.verdicts[task.graph.id] is GraphState.FINISHED:
            assert _code(answer) is Code.CONFLICT
        elif self.verdicts[task.graph.id] is GraphState.CANCELED:
            assert answer == Asked(task.id, 0, echo=True)
        else:
            self.asked(answer, self.now().cancel(self.model.behind(task)))

    @precondition(lambda self: self.model.graphs)
    @rule(pick=picks, sure=st.integers(0, 2))
    def cancel_graph(self, pick: int, sure: int) -> None:
        graph = _some(list(self.model.graphs.values()), pick)
        if sure < 2 and self.verdicts[graph.id] not in OVER:
            return  # most graphs live on
        answer = self.wish(Cancel(graph=graph.id, actor="ann", key=self.key()))
        if self.verdicts[graph.id] is GraphState.FINISHED:
            assert _code(answer) is Code.CONFLICT
        elif self.verdicts[graph.id] is GraphState.CANCELED:
            assert answer == Asked(graph.id, 0, echo=True)
        else:
            graph.canceled = True
            self.asked(answer, self.now().cancel(list(graph.tasks.values())))

    @precondition(lambda self: self.model.tasks)
    @rule(pick=picks)
    def rerun_task(self, pick: int) -> None:
        task = self.some_task(pick, lambda task: task.state in BAD)
        answer = self.wish(Rerun(task=task.id, actor="ann", key=self.key()))
        if self.verdicts[task.graph.id] in OVER or task.past(self.yard.now):
            assert _code(answer) is Code.CONFLICT
        elif task.state in {"unscheduled", "pending", "waiting", "running"}:
            assert answer == Done(task.id, task.state, echo=True)
        elif self.now().rerun([task]):
            assert isinstance(answer, Done | Asked)
            self.count("a task was rerun")
        else:
            assert _code(answer) is Code.CONFLICT

    @precondition(lambda self: self.model.graphs)
    @rule(pick=picks)
    def rerun_graph(self, pick: int) -> None:
        graph = _some(list(self.model.graphs.values()), pick)
        answer = self.wish(Rerun(graph=graph.id, actor="ann", key=self.key()))
        if self.verdicts[graph.id] in OVER:
            assert _code(answer) is Code.CONFLICT
        else:
            self.asked(answer, self.now().rerun(list(graph.tasks.values())))

    @precondition(lambda self: self.wishes)
    @rule(pick=picks)
    def wish_again(self, pick: int) -> None:
        command, first = _some(self.wishes, pick)
        assert self.wish(command) == first
        self.count("a wish was repeated")

    # Bots.

    @rule(bot=st.sampled_from(sorted(BOTS)), anew=st.booleans())
    def hello(self, bot: str, anew: bool) -> None:
        lost = [task for task in self.model.tasks.values() if task.bot == bot]
        if anew or not self.sessions[bot]:
            self.sessions[bot] += 1
            self.polled.pop(bot, None)
            self.count("a new session lost an attempt", len(lost))
        self.yard.arrive(bot, self.session(bot), BOTS[bot])
        self.now().hello(bot, self.session(bot), BOTS[bot])

    @precondition(lambda self: self.model.bots)
    @rule(pick=picks)
    def goodbye(self, pick: int) -> None:
        bot = _some(sorted(self.model.bots), pick)
        self.yard.goodbye(bot, self.session(bot))
        self.now().goodbye(bot)

    @precondition(lambda self: any(self.model.fits(task, bot) for task, bot in self.pairs()))
    @rule(pick=picks, want=st.integers(1, 3))
    def claim(self, pick: int, want: int) -> None:
        able = sorted({bot.name for task, bot in self.pairs() if self.model.fits(task, bot)})
        bot = _some(able if pick % 4 else sorted(self.model.bots), pick // 4)
        poll = f"poll {len(self.given)} {self.yard.now}"
        answer = self.poll(bot, want=want, poll=poll)
        expected = self.model.claim(bot, want)
        assert [lease.task for lease in answer.leases] == [task.id for task in expected]
        for task, lease in zip(expected, answer.leases, strict=True):
            assert (lease.attempt, lease.until_ms, lease.slice_index) == (task.attempt, task.until_ms, task.way)
            assert task.slice.pool in BOTS[bot]
            self.given[lease.task, lease.attempt] = Given(bot, self.session(bot), poll, want, lease)
        self.polled[bot] = (poll, want)
        self.count("a task was claimed", len(expected))

    @precondition(lambda self: self.polled)
    @rule(pick=picks)
    def poll_again(self, pick: int) -> None:
        bot = _some(sorted(self.polled), pick)
        poll, want = self.polled[bot]
        held = [one for one in self.leases(bot) if one.poll == poll]
        answer = self.poll(bot, want=want, poll=poll)
        until = {one.lease.task: self.model.tasks[one.lease.task].until_ms for one in held}
        assert {lease.task: lease for lease in answer.leases} == {
            one.lease.task: replace(one.lease, until_ms=until[one.lease.task]) for one in held
        }
        self.count("a poll was repeated", len(held))

    @precondition(lambda self: self.leases())
    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        self.renew_all([_some(self.leases(), pick)])

    @precondition(lambda self: self.leases())
    @rule(pick=picks, signal=st.sampled_from([Signal.SUCCEED, Signal.FAIL]))
    def end(self, pick: int, signal: Signal) -> None:
        one = _some(self.leases(), pick)
        task = self.model.tasks[one.lease.task]
        answer = self.poll(one.bot, reports=[_report(one.lease, signal)]).reports[0]
        self.model.end(task, signal)
        assert isinstance(answer, Done)
        assert not answer.echo

    @precondition(lambda self: self.given)
    @rule(pick=picks, signal=st.sampled_from([Signal.SUCCEED, Signal.FAIL, Signal.LOSE]))
    def say_again(self, pick: int, signal: Signal) -> None:
        """Report what has ended, or is somebody else's by now: an echo, or refused, and nothing changes."""
        over = [one for key, one in self.given.items() if one not in self.leases()]
        if not over:
            return
        one = _some(over, pick)
        task = self.model.tasks[one.lease.task]
        answer = self.poll(one.bot, reports=[_report(one.lease, signal)]).reports[0]
        told = task.attempt == one.lease.attempt and task.state not in LEASED and task.said is signal
        if told:
            assert answer == Done(task.id, task.state, echo=True)
        else:
            assert _code(answer) is Code.LEASE_LOST
        self.count("a report was repeated" if told else "a late report was refused")

    @precondition(lambda self: any(one.session != self.session(one.bot) for one in self.given.values()))
    @rule(pick=picks)
    def speak_for_an_old_session(self, pick: int) -> None:
        one = _some([one for one in self.given.values() if one.session != self.session(one.bot)], pick)
        answer = self.yard.poll(one.bot, 1, one.session, reports=(_report(one.lease, Signal.SUCCEED),))
        assert _code(answer) is Code.SESSION_REPLACED
        self.count("an old session was refused")

    # Time and the server.

    @precondition(lambda self: self.yard.now - START < TIME_MAX)
    @rule(ms=st.sampled_from([1_000, 6_000, 21_000, 66_000, 80_000]), awake=st.booleans())
    def time_passes(self, ms: int, awake: bool) -> None:
        self.pass_time(ms, awake)

    @rule()
    def schedule(self) -> None:
        self.yard.schedule()
        self.now().schedule()

    @rule()
    def serve_own(self) -> None:
        self.yard.serve_own()
        self.now().serve_own()

    @precondition(lambda self: self.yard.now - START < TIME_MAX)
    @rule(gap_ms=st.sampled_from([0, 20_000, 75_000]))
    def restart(self, gap_ms: int) -> None:
        before = {task.id for task in self.model.tasks.values() if task.until_ms is not None}
        late = [id for id in before if self.yard.now + gap_ms > (self.model.tasks[id].until_ms or 0) + 5_000]
        self.yard.later(gap_ms)
        self.yard.restart()
        self.yard.sweep()
        self.now().sweep()
        self.count("a lease outlived an outage", sum(self.model.tasks[id].state in LEASED for id in late))

    # After every step.

    @invariant()
    def agrees(self) -> None:
        """What is there is what the model says."""
        seen = self.yard.look()
        assert not seen.notes, "all of it fits"
        self.compare(seen)
        self.learn(seen)

    def teardown(self) -> None:
        """Count everything afresh, play on until all is settled, and look back."""
        try:
            if sys.exc_info()[1] is self._handling:
                self.finish()
        finally:
            self.yard.close()
            type(self).drop(self.url)

    def finish(self) -> None:
        self.yard.keep_promises()
        self.yard.consult()
        self.play_on()
        self.yard.consult()
        with self.yard.store.read() as txn:
            self.happened.update(check_history(txn, self.model.tasks))

    def play_on(self) -> None:
        """Let everything succeed from here on: every graph has to come to its end."""
        for bot in BOTS:
            self.yard.arrive(bot, "last", BOTS[bot])
        for _ in range(100):
            for graph in self.yard.open_graphs():
                self.yard.rerun(graph=graph)
            for act in (self.yard.sweep, self.yard.schedule, self.yard.serve_own):
                act()
                self.yard.keep_promises()
            for bot in BOTS:
                answer = self.yard.poll(bot, 9, "last")
                assert isinstance(answer, Polled)
                for lease in answer.leases:
                    done = self.yard.poll(bot, 0, "last", reports=(_report(lease, Signal.SUCCEED),))
                    assert isinstance(done, Polled)
                    assert isinstance(done.reports[0], Done)
                self.yard.keep_promises()
            if self.is_settled():
                return
            self.yard.later(5_000)
        raise AssertionError("some graph never settles")

    def is_settled(self) -> bool:
        """Whether every graph ended, but for what is too late."""
        seen = self.yard.look()
        late = {one.graph for one in seen.tasks.values() if self.model.tasks[one.id].past(self.yard.now)}
        idle = {one.id for one in seen.graphs.values() if not one.tally.active}
        return all(one.state in OVER or one.id in late & idle for one in seen.graphs.values()) and idle == set(seen.graphs)

    # How it is done.

    def now(self) -> Model:
        """Give the model, at this moment."""
        self.model.now = self.yard.now
        return self.model

    def count(self, what: str, times: int = 1) -> None:
        self.happened[what] += times

    def key(self) -> str:
        return f"key {len(self.wishes)}"

    def session(self, bot: str) -> str:
        return f"{bot} {self.sessions[bot]}"

    def pairs(self) -> list[tuple[Task, Bot]]:
        return [(task, bot) for task in self.model.tasks.values() for bot in self.model.bots.values()]

    def some_task(self, pick: int, wanted: Callable[[Task], bool]) -> Task:
        """Choose a task, most often one that the step can move."""
        tasks = list(self.model.tasks.values())
        fitting = [task for task in tasks if wanted(task)]
        return _some(fitting if fitting and pick % 4 else tasks, pick // 4)

    def leases(self, bot: str | None = None) -> list[Given]:
        """Name what bots have."""
        held = (self.given.get((task.id, task.attempt)) for task in self.model.tasks.values() if task.state in LEASED)
        return [one for one in held if one is not None and bot in {None, one.bot}]

    def poll(self, bot: str, want: int = 0, **said: Any) -> Polled:
        answer = self.yard.poll(bot, want, self.session(bot), **{name: _tupled(what) for name, what in said.items()})
        assert isinstance(answer, Polled), answer
        self.now().heard(bot)
        return answer

    def renew_all(self, leases: Sequence[Given]) -> None:
        for one in leases:
            task = self.model.tasks[one.lease.task]
            answer = self.poll(one.bot, renewals=[Renewal(task.id, one.lease.attempt, one.lease.fence)]).renewals[0]
            if task.past(self.yard.now):
                assert _code(answer) is Code.LEASE_LOST
                continue
            self.model.renew(task)
            assert answer == Renewed(task.id, task.attempt, task.until_ms, stop=task.state == "stopping")  # type: ignore[arg-type]
            self.count("a lease was renewed")

    def pass_time(self, ms: int, awake: bool) -> None:
        """Let time pass with its sweeps; whoever is awake renews what it has."""
        until = self.yard.now + ms
        while self.yard.now < until:
            self.yard.later(min(15_000, until - self.yard.now))
            self.now()
            for bot in self.model.bots if awake else ():
                self.poll(bot)
                self.renew_all(self.leases(bot))
            self.yard.sweep()
            self.now().sweep()

    def wish(self, command: Cancel | Rerun) -> object:
        """Ask for something under a key; what is asked for first is remembered."""
        room: Any = cancel if isinstance(command, Cancel) else rerun
        answer = self.yard.do(lambda corridor: keyed(corridor, [command], room))[0]
        if not any(one is command for one, _ in self.wishes):
            self.wishes.append((command, answer))
        return answer

    def asked(self, answer: object, moved: int) -> None:
        """Compare the answer to a wish about many."""
        assert isinstance(answer, Asked), answer
        assert answer.promised or (answer.moved, answer.echo) in {(moved, not moved), (moved, False)}

    def compare(self, seen: Seen) -> None:
        """Hold every task and every graph against the model."""
        there = {id: _facts(record) for id, record in seen.tasks.items()}
        said = {id: _said(task) for id, task in self.model.tasks.items()}
        if there != said:
            labels = {task.id: label for graph in self.model.graphs.values() for label, task in graph.tasks.items()}
            differ = {id for id in {*there, *said} if there.get(id) != said.get(id)}
            raise AssertionError({labels.get(id, id): (there.get(id), said.get(id)) for id in differ})
        assert {id: one.state for id, one in seen.graphs.items()} == {id: one.state for id, one in self.model.graphs.items()}

    def learn(self, seen: Seen) -> None:
        """Take note of what was seen, and check what holds at any moment."""
        self.verdicts = {id: one.state for id, one in seen.graphs.items()}
        check_holders(list(seen.tasks.values()), self.model.tasks, POOL, CAPACITY)


FACTS = "state reason attempt round reruns retries slice bot not_by until not_before waits_since".split()


def _facts(record: Any) -> tuple[object, ...]:
    life = record.life
    spent = (life.attempt, life.round, life.reruns_used, life.retries_used, life.slice_index)
    held = (record.bot, record.not_by, record.lease_until_ms, life.not_before_ms, life.waits_since_ms)
    return str(life.state), record.reason, *spent, *held


def _said(task: Task) -> tuple[object, ...]:
    spent = (task.attempt, task.round, task.reruns, task.retries, task.way)
    held = (task.bot, task.not_by, task.until_ms, task.not_before, task.waits_since)
    return str(task.state), str(task.reason), *spent, *held


def _some(among: Sequence[T], pick: int) -> T:
    return among[pick % len(among)]


def _code(answer: object) -> Code:
    assert isinstance(answer, Refusal), answer
    return answer.code


def _report(lease: Lease, signal: Signal) -> Report:
    return Report(lease.task, lease.attempt, lease.fence, signal, exit_code=1 if signal is Signal.FAIL else None)


def _tupled(what: Any) -> Any:
    return tuple(what) if isinstance(what, list) else what
