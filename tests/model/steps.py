"""Every step of these tests, taken in the yard and in the model at once; each checks what it is answered.

A step that is repeated is answered as before, and a step that is not allowed is refused; neither changes anything,
which whoever compares the two afterwards finds out.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple, TypeVar

from taskyard.core import structs
from taskyard.core.states import GraphState, Millis, Reason, Signal
from taskyard.lifecycle.admission.scheduler import Bounds
from taskyard.lifecycle.commands import (
    Begun,
    BulkOutcome,
    Cancel,
    Code,
    Done,
    Lease,
    Refusal,
    Renewal,
    Renewed,
    Report,
    Rerun,
)
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Extension, GraphChanged, NewGraph, Submitted, submit
from tests.lifecycle.yard import START
from tests.model.asked import POOL, Wanted, document
from tests.model.model import Model
from tests.model.pieces import BAD, ENDED, GUARD, LEASED, OUTAGE, Graph, Task
from tests.model.premises import Premises

T = TypeVar("T")
#: The bots, and the pools that they serve.
BOTS = {"ant": ["default", POOL], "bee": ["default"], "cat": [POOL]}
#: Where a graph takes no change any more.
OVER = {GraphState.FINISHED, GraphState.CANCELING, GraphState.CANCELED}


class Given(NamedTuple):
    """A lease, and who got it by which poll."""

    bot: str
    session: str
    poll: str
    lease: Lease


class Steps:
    """A yard, a model of it, and what has been asked so far."""

    def __init__(self, url: str, bounds: Bounds, happened: Counter[str]) -> None:
        self.yard = Premises(url, bounds)
        self.model = Model(START)
        self.happened = happened
        self.verdicts: Mapping[int, GraphState] = {}  # as they were last seen
        self.submissions: list[NewGraph] = []
        self.extensions: list[tuple[int, object, Extension]] = []
        self.given: dict[tuple[int, int], Given] = {}
        self.sessions: Counter[str] = Counter()
        self.polled: dict[str, tuple[str, int]] = {}
        self.wishes: list[tuple[Cancel | Rerun, object]] = []
        self.numbers = count(1)

    # People.

    def submit(self, tasks: Mapping[str, Wanted]) -> None:
        one = self.yard.prepared(document(tasks))
        assert self.yard.do(lambda transaction: submit(transaction, [one])) == [Submitted(one.new_tasks.graph_id)]
        self.submissions.append(one)
        self.now().add(one.new_tasks.graph_id, tasks, one.new_tasks.ids, self.yard.now)

    def submit_again(self, pick: int) -> None:
        first, same = some(self.submissions, pick // 2), pick % 2 == 0
        one = first if same else replace(first, definition=(*first.definition[:5], "another body"))
        answer = self.yard.do(lambda transaction: submit(transaction, [one]))[0]
        if same:
            assert answer == Submitted(one.new_tasks.graph_id, echo=True)
        else:
            assert code(answer) is Code.CONFLICT
        self.count("a submission was repeated" if same else "another body was refused")

    def extend(self, graph: Graph, tasks: Mapping[str, Wanted]) -> None:
        one = self.yard.extension(graph.id, document(tasks))
        assert one is not None
        answer = self.yard.extend(one)
        if self.verdicts[graph.id] in OVER:
            assert code(answer) is Code.CONFLICT
            self.count("an extension was refused")
        else:
            assert answer == Submitted(graph.id)
            self.extensions.append((graph.id, document(tasks), one))
            self.now().add(graph.id, tasks, one.new_tasks.ids, self.yard.now)

    def extend_again(self, pick: int) -> None:
        graph, text, stale = some(self.extensions, pick)
        assert self.yard.extension(graph, text) is None, "it has all of these tasks"
        assert isinstance(self.yard.extend(stale), GraphChanged), "it was checked against what the graph was"
        self.count("an extension was repeated")

    def cancel_task(self, task: Task) -> None:
        answer, state = self.wish(Cancel(task=task.id, actor="ann")), task.state
        if self.now().cancel([task]):
            assert answer == Done(task.id, task.state if state in LEASED else answer.state)
        elif state in {"stopping", "canceled"}:
            assert answer == Done(task.id, state, echo=True)
        else:
            assert code(answer) is Code.CONFLICT

    def cancel_subtree(self, task: Task) -> None:
        answer = self.wish(Cancel(task=task.id, subtree=True, actor="ann"))
        if self.may_cancel(task.graph, task.id, answer):
            self.asked(answer, self.now().cancel(self.model.behind(task)))

    def cancel_graph(self, graph: Graph) -> None:
        answer = self.wish(Cancel(graph=graph.id, actor="ann"))
        if self.may_cancel(graph, graph.id, answer):
            graph.canceled = True
            self.asked(answer, self.now().cancel(graph.tasks.values()))

    def may_cancel(self, graph: Graph, subject: int, answer: object) -> bool:
        """Tell whether a graph can be canceled; if not, the answer has to say so."""
        if self.verdicts[graph.id] is GraphState.FINISHED:
            assert code(answer) is Code.CONFLICT
        elif self.verdicts[graph.id] in {GraphState.CANCELING, GraphState.CANCELED}:
            assert answer == BulkOutcome(subject, 0, echo=True)
        return self.verdicts[graph.id] not in OVER

    def rerun_task(self, task: Task) -> None:
        answer = self.wish(Rerun(task=task.id, actor="ann"))
        if self.verdicts[task.graph.id] in OVER or task.past(self.yard.now):
            assert code(answer) is Code.CONFLICT
        elif task.state in {"unscheduled", "pending", "waiting", "running"}:
            assert answer == Done(task.id, task.state, echo=True)
        elif self.now().rerun([task]):
            assert isinstance(answer, Done | BulkOutcome)
        else:
            assert code(answer) is Code.CONFLICT

    def rerun_graph(self, graph: Graph) -> None:
        answer = self.wish(Rerun(graph=graph.id, actor="ann"))
        if self.verdicts[graph.id] in OVER:
            assert code(answer) is Code.CONFLICT
        else:
            self.asked(answer, self.now().rerun(graph.tasks.values()))

    def wish(self, command: Cancel | Rerun) -> Any:
        """Ask for something for the first time."""
        command = structs.struct_replace(command, key=f"key {len(self.wishes)}")
        self.wishes.append((command, self.answer_to(command)))
        return self.wishes[-1][1]

    def wish_again(self, pick: int) -> None:
        command, first = some(self.wishes, pick)
        assert self.answer_to(command) == first
        self.count("a wish was repeated")

    def answer_to(self, command: Cancel | Rerun) -> object:
        return self.yard.wish(command)

    def asked(self, answer: object, moved: int) -> None:
        """Compare the answer to a wish about many; what is promised is counted by nobody."""
        assert isinstance(answer, BulkOutcome), answer
        assert answer.promised or answer.moved == moved

    # Bots.

    def hello(self, bot: str, anew: bool) -> None:
        if anew or not self.sessions[bot]:
            self.sessions[bot] += 1
            self.polled.pop(bot, None)
            self.count("a new session lost an attempt", len(self.leases(bot)))
        # Every other life knows what the one before had begun.
        begun = self.begun_by(bot) if self.sessions[bot] % 2 else None
        self.yard.arrive(bot, self.session(bot), BOTS[bot], begun)
        self.now().hello(bot, self.session(bot), BOTS[bot], None if begun is None else {one.task for one in begun})

    def begun_by(self, bot: str) -> tuple[Begun, ...]:
        """Name what a bot has begun, and of the rest the first: that one began and the server has not heard of it."""
        leases = self.leases(bot)
        begun = [one for one in leases if self.model.tasks[one.lease.task].reason is not Reason.ASSIGNED]
        some_more = [one for one in leases if one not in begun][:1]
        return tuple(begun_of(one.lease) for one in begun + some_more)

    def goodbye(self, bot: str) -> None:
        self.yard.goodbye(bot, self.session(bot))
        self.now().goodbye(bot)

    def take(self, bot: str, want: int) -> list[Given]:
        """Let a bot take what it gets, which is what the model says, in the same order."""
        poll = f"poll {next(self.numbers)}"
        at_once = next(self.numbers) % 2 == 0
        leases = self.poll(bot, want=want, poll=poll, begun=None if at_once else ()).leases
        expected = self.model.claim(bot, want, at_once)
        assert [lease.task for lease in leases] == [task.id for task in expected]
        for task, lease in zip(expected, leases, strict=True):
            assert (lease.attempt, lease.until_ms, lease.slice_index) == (task.attempt, task.until_ms, task.way)
            assert task.slice.pool in BOTS[bot]
            self.given[lease.task, lease.attempt] = Given(bot, self.session(bot), poll, lease)
        self.polled[bot] = (poll, want)
        return [self.given[lease.task, lease.attempt] for lease in leases]

    def poll_again(self, pick: int) -> None:
        bot = some(sorted(self.polled), pick)
        poll, want = self.polled[bot]
        held = [self.lease_now(one) for one in self.leases(bot) if one.poll == poll]
        assert sorted(self.poll(bot, want=want, poll=poll).leases, key=_task) == sorted(held, key=_task)
        self.count("a poll was repeated", len(held))

    def end(self, one: Given, signal: Signal) -> None:
        """Let an attempt end; one that fails past its deadline was ended by its bot."""
        if signal is Signal.FAIL and self.model.tasks[one.lease.task].past(self.yard.now):
            signal = Signal.DEADLINE
            self.count("a bot ended an attempt at its deadline")
        answer = self.poll(one.bot, reports=(report_of(one.lease, signal),)).reports[0]
        self.model.end(self.model.tasks[one.lease.task], signal)
        assert isinstance(answer, Done), answer
        assert not answer.echo

    def begin(self, one: Given) -> None:
        """Let a bot say that it has begun something, whether it has said so before or not."""
        self.poll(one.bot, begun=(begun_of(one.lease),))
        self.model.starts(self.model.tasks[one.lease.task])
        self.count("a bot said that it had begun")

    def say_again(self, pick: int, signal: Signal) -> None:
        """Report what has ended, or is somebody else's by now: an echo, or refused."""
        over = [one for one in self.given.values() if one not in self.leases()]
        if not over:
            return
        one = some(over, pick)
        task = self.model.tasks[one.lease.task]
        answer = self.poll(one.bot, reports=(report_of(one.lease, signal),)).reports[0]
        told = task.ends.get(one.lease.attempt) is signal
        if told:
            assert answer == Done(task.id, task.state, echo=True)
        else:
            assert code(answer) is Code.LEASE_LOST
        self.count("a report was repeated" if told else "a late report was refused")

    def speak_for_an_old_session(self, pick: int) -> None:
        old = [one for one in self.given.values() if one.session != self.session(one.bot)]
        if old:
            one = some(old, pick)
            answer = self.yard.poll(one.bot, 1, one.session, reports=(report_of(one.lease, Signal.SUCCEED),))
            assert code(answer) is Code.SESSION_REPLACED
            self.count("an old session was refused")

    def renew(self, one: Given) -> None:
        task = self.model.tasks[one.lease.task]
        answer = self.poll(one.bot, renewals=(Renewal(task.id, one.lease.attempt, one.lease.fence),)).renewals[0]
        self.model.renew(task)
        assert isinstance(answer, Renewed)
        assert (answer.attempt, answer.until_ms, answer.stop) == (task.attempt, task.until_ms, task.state == "stopping")
        self.count("a lease was not lengthened" if task.past(self.yard.now) else "a lease was renewed")

    def poll(self, bot: str, want: int = 0, **said: Any) -> PollOutcome:
        answer = self.yard.poll(bot, want, self.session(bot), **said)
        assert isinstance(answer, PollOutcome), answer
        self.now().heard(bot)
        return answer

    # Time and the server.

    def pass_time(self, ms: int, awake: bool) -> None:
        """Let time pass with its sweeps; whoever is awake renews what it has."""
        until = self.yard.now + ms
        while self.yard.now < until:
            self.yard.later(min(OUTAGE, until - self.yard.now))
            self.now()
            for bot in self.model.bots if awake else ():
                self.poll(bot)
                for one in self.leases(bot):
                    self.renew(one)
            self.yard.sweep()
            self.now().sweep()

    def be_down(self, gap_ms: int) -> None:
        """Let no server be there for a while; the next one knows only what is stored."""
        after = self.yard.now + gap_ms - GUARD
        late = [task for task in self.model.tasks.values() if task.until_ms is not None and task.until_ms <= after]
        self.yard.later(gap_ms)
        self.yard.restart()
        self.yard.sweep()
        self.now().sweep()
        self.count("a lease outlived an outage", sum(task.state in LEASED for task in late))

    def schedule(self) -> None:
        self.yard.schedule()
        before, model = self.model.kept_back, self.now()
        model.schedule()
        self.count("a stake kept a task back", model.kept_back - before)

    def serve_own(self) -> None:
        self.yard.serve_own()
        self.now().serve_own()

    # Looking.

    def now(self) -> Model:
        """Give the model, at this moment."""
        self.model.now = self.yard.now
        return self.model

    def count(self, what: str, times: int = 1) -> None:
        self.happened[what] += times

    def session(self, bot: str) -> str:
        return f"{bot} {self.sessions[bot]}"

    def lease_now(self, one: Given) -> Lease:
        """Give a lease with the time that is left of it."""
        until = self.model.tasks[one.lease.task].until_ms
        assert until is not None
        return structs.struct_replace(one.lease, until_ms=Millis(until))

    def able(self) -> list[str]:
        """Name the bots for whom there is something to do."""
        tasks, bots = self.model.tasks.values(), sorted(self.model.bots.items())
        return [name for name, bot in bots if any(self.model.fits(task, bot) for task in tasks)]

    def leases(self, bot: str | None = None) -> list[Given]:
        """Name what bots have."""
        leased = [task for task in self.model.tasks.values() if task.state in LEASED]
        return [self.given[task.id, task.attempt] for task in leased if bot in {None, task.bot}]

    def some_graph(self, pick: int) -> Graph:
        return some(list(self.model.graphs.values()), pick)

    def task_under_way(self, pick: int) -> Task:
        """Choose a task that has not ended, and often one that a bot has, rather with a deadline."""
        leased = [task for task in self.model.tasks.values() if task.state in LEASED]
        urgent = [task for task in leased if task.deadline is not None]
        if leased and pick % 8 > 2:
            return some(urgent or leased, pick // 8)
        return self._task(pick, lambda task: task.state not in ENDED)

    def task_that_failed(self, pick: int) -> Task:
        return self._task(pick, lambda task: task.state in BAD)

    def _task(self, pick: int, is_wanted: Callable[[Task], bool]) -> Task:
        """Choose a task; three times out of four one that the step can move, if there is any."""
        tasks = [task for task in self.model.tasks.values() if not task.hidden]
        fitting = [task for task in tasks if is_wanted(task)]
        return some(fitting if fitting and pick % 4 else tasks, pick // 4)


def some(among: Sequence[T], pick: int) -> T:
    """Choose one."""
    return among[pick % len(among)]


def code(answer: object) -> Code:
    """Say why something was refused."""
    assert isinstance(answer, Refusal), answer
    return answer.code


def begun_of(lease: Lease) -> Begun:
    return Begun(lease.task, lease.attempt, lease.fence)


def report_of(lease: Lease, signal: Signal) -> Report:
    return Report(lease.task, lease.attempt, lease.fence, signal, exit_code=1 if signal is Signal.FAIL else None)


def _task(lease: Lease) -> int:
    return lease.task
