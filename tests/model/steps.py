"""The steps of these tests, each carried out on the harness and on the model; each checks the answer.

A repeated step gets the first answer, and an illegal step is refused. Neither changes anything, as the comparison after
each step shows.
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
from tests.lifecycle.harness import START
from tests.model.entities import BAD, ENDED, GUARD, LEASED, OUTAGE, Graph, Task
from tests.model.harness import ModelHarness
from tests.model.model import Model
from tests.model.requests import POOL, TaskSpec, document

T = TypeVar("T")
#: The bots, and the pools that they serve.
BOTS = {"ant": ["default", POOL], "bee": ["default"], "cat": [POOL]}
#: Where a graph takes no change any more.
OVER = {GraphState.FINISHED, GraphState.CANCELING, GraphState.CANCELED}


class GivenLease(NamedTuple):
    """A lease, and the bot and poll that got it."""

    bot: str
    session: str
    poll: str
    lease: Lease


class Steps:
    """A harness, its model, and the commands so far."""

    def __init__(self, url: str, bounds: Bounds, happened: Counter[str]) -> None:
        self.harness = ModelHarness(url, bounds)
        self.model = Model(START)
        self.happened = happened
        self.graph_states: Mapping[int, GraphState] = {}  # as they were last seen
        self.submissions: list[NewGraph] = []
        self.extensions: list[tuple[int, object, Extension]] = []
        self.given: dict[tuple[int, int], GivenLease] = {}
        self.sessions: Counter[str] = Counter()
        self.polled: dict[str, tuple[str, int]] = {}
        self.commands: list[tuple[Cancel | Rerun, object]] = []
        self.numbers = count(1)

    # People.

    def submit(self, tasks: Mapping[str, TaskSpec]) -> None:
        one = self.harness.new_graph(document(tasks))
        assert self.harness.do(lambda transaction: submit(transaction, [one])) == [Submitted(one.new_tasks.graph_id)]
        self.submissions.append(one)
        self.now().add(one.new_tasks.graph_id, tasks, one.new_tasks.ids, self.harness.now)

    def submit_again(self, pick: int) -> None:
        first, same = some(self.submissions, pick // 2), pick % 2 == 0
        one = first if same else replace(first, definition=(*first.definition[:5], "another body"))
        answer = self.harness.do(lambda transaction: submit(transaction, [one]))[0]
        if same:
            assert answer == Submitted(one.new_tasks.graph_id, echo=True)
        else:
            assert code(answer) is Code.CONFLICT
        self.count("a submission was repeated" if same else "another body was refused")

    def extend(self, graph: Graph, tasks: Mapping[str, TaskSpec]) -> None:
        one = self.harness.extension(graph.id, document(tasks))
        assert one is not None
        answer = self.harness.extend(one)
        if self.graph_states[graph.id] in OVER:
            assert code(answer) is Code.CONFLICT
            self.count("an extension was refused")
        else:
            assert answer == Submitted(graph.id)
            self.extensions.append((graph.id, document(tasks), one))
            self.now().add(graph.id, tasks, one.new_tasks.ids, self.harness.now)

    def extend_again(self, pick: int) -> None:
        graph, text, stale = some(self.extensions, pick)
        assert self.harness.extension(graph, text) is None, "the graph has all of these tasks"
        assert isinstance(self.harness.extend(stale), GraphChanged), "it was validated against an older graph"
        self.count("an extension was repeated")

    def cancel_task(self, task: Task) -> None:
        answer, state = self.carry_out(Cancel(task=task.id, actor="ann")), task.state
        if self.now().cancel([task]):
            assert answer == Done(task.id, task.state if state in LEASED else answer.state)
        elif state in {"stopping", "canceled"}:
            assert answer == Done(task.id, state, echo=True)
        else:
            assert code(answer) is Code.CONFLICT

    def cancel_subtree(self, task: Task) -> None:
        answer = self.carry_out(Cancel(task=task.id, subtree=True, actor="ann"))
        if self.can_cancel(task.graph, task.id, answer):
            self.check_bulk_outcome(answer, self.now().cancel(self.model.behind(task)))

    def cancel_graph(self, graph: Graph) -> None:
        answer = self.carry_out(Cancel(graph=graph.id, actor="ann"))
        if self.can_cancel(graph, graph.id, answer):
            graph.canceled = True
            self.check_bulk_outcome(answer, self.now().cancel(graph.tasks.values()))

    def can_cancel(self, graph: Graph, subject: int, answer: object) -> bool:
        """Whether a graph can be canceled; if not, the answer has to say so."""
        if self.graph_states[graph.id] is GraphState.FINISHED:
            assert code(answer) is Code.CONFLICT
        elif self.graph_states[graph.id] in {GraphState.CANCELING, GraphState.CANCELED}:
            assert answer == BulkOutcome(subject, 0, echo=True)
        return self.graph_states[graph.id] not in OVER

    def rerun_task(self, task: Task) -> None:
        answer = self.carry_out(Rerun(task=task.id, actor="ann"))
        if self.graph_states[task.graph.id] in OVER or task.past(self.harness.now):
            assert code(answer) is Code.CONFLICT
        elif task.state in {"unscheduled", "pending", "waiting", "running"}:
            assert answer == Done(task.id, task.state, echo=True)
        elif self.now().rerun([task]):
            assert isinstance(answer, Done | BulkOutcome)
        else:
            assert code(answer) is Code.CONFLICT

    def rerun_graph(self, graph: Graph) -> None:
        answer = self.carry_out(Rerun(graph=graph.id, actor="ann"))
        if self.graph_states[graph.id] in OVER:
            assert code(answer) is Code.CONFLICT
        else:
            self.check_bulk_outcome(answer, self.now().rerun(graph.tasks.values()))

    def carry_out(self, command: Cancel | Rerun) -> Any:
        """Carry out a command for the first time."""
        command = structs.struct_replace(command, key=f"key {len(self.commands)}")
        self.commands.append((command, self.answer_to(command)))
        return self.commands[-1][1]

    def carry_out_again(self, pick: int) -> None:
        command, first = some(self.commands, pick)
        assert self.answer_to(command) == first
        self.count("a command was repeated")

    def answer_to(self, command: Cancel | Rerun) -> object:
        return self.harness.carry_out(command)

    def check_bulk_outcome(self, answer: object, moved: int) -> None:
        """Check the number of moved tasks, unless a continuation moves them later."""
        assert isinstance(answer, BulkOutcome), answer
        assert answer.promised or answer.moved == moved

    # Bots.

    def hello(self, bot: str, anew: bool) -> None:
        if anew or not self.sessions[bot]:
            self.sessions[bot] += 1
            self.polled.pop(bot, None)
            self.count("a new session lost an attempt", len(self.leases(bot)))
        # Every other session knows what the one before had begun.
        begun = self.begun_by(bot) if self.sessions[bot] % 2 else None
        self.harness.say_hello(bot, self.session(bot), BOTS[bot], begun)
        self.now().hello(bot, self.session(bot), BOTS[bot], None if begun is None else {one.task for one in begun})

    def begun_by(self, bot: str) -> tuple[Begun, ...]:
        """What a bot has begun, and the first of the rest, which began without a word to the server."""
        leases = self.leases(bot)
        begun = [one for one in leases if self.model.tasks[one.lease.task].reason is not Reason.ASSIGNED]
        some_more = [one for one in leases if one not in begun][:1]
        return tuple(begun_of(one.lease) for one in begun + some_more)

    def goodbye(self, bot: str) -> None:
        self.harness.goodbye(bot, self.session(bot))
        self.now().goodbye(bot)

    def take(self, bot: str, want: int) -> list[GivenLease]:
        """Let a bot claim tasks: the same ones as in the model, in the same order."""
        poll = f"poll {next(self.numbers)}"
        at_once = next(self.numbers) % 2 == 0
        leases = self.poll(bot, want=want, poll=poll, begun=None if at_once else ()).leases
        expected = self.model.claim(bot, want, at_once)
        assert [lease.task for lease in leases] == [task.id for task in expected]
        for task, lease in zip(expected, leases, strict=True):
            assert (lease.attempt, lease.until_ms, lease.slice_index) == (task.attempt, task.until_ms, task.slice_index)
            assert task.slice.pool in BOTS[bot]
            self.given[lease.task, lease.attempt] = GivenLease(bot, self.session(bot), poll, lease)
        self.polled[bot] = (poll, want)
        return [self.given[lease.task, lease.attempt] for lease in leases]

    def poll_again(self, pick: int) -> None:
        bot = some(sorted(self.polled), pick)
        poll, want = self.polled[bot]
        held = [self.lease_now(one) for one in self.leases(bot) if one.poll == poll]
        assert sorted(self.poll(bot, want=want, poll=poll).leases, key=_task) == sorted(held, key=_task)
        self.count("a poll was repeated", len(held))

    def end(self, one: GivenLease, signal: Signal) -> None:
        """End an attempt; a failure past the deadline becomes the signal `deadline`, as bots report it."""
        if signal is Signal.FAIL and self.model.tasks[one.lease.task].past(self.harness.now):
            signal = Signal.DEADLINE
            self.count("a bot ended an attempt at its deadline")
        answer = self.poll(one.bot, reports=(report_of(one.lease, signal),)).reports[0]
        self.model.end(self.model.tasks[one.lease.task], signal)
        assert isinstance(answer, Done), answer
        assert not answer.echo

    def begin(self, one: GivenLease) -> None:
        """Let a bot report that it has begun an attempt, maybe again."""
        self.poll(one.bot, begun=(begun_of(one.lease),))
        self.model.starts(self.model.tasks[one.lease.task])
        self.count("a bot said that it had begun")

    def say_again(self, pick: int, signal: Signal) -> None:
        """Report an attempt that has ended or was given to another bot: an echo, or refused."""
        over = [one for one in self.given.values() if one not in self.leases()]
        if not over:
            return
        one = some(over, pick)
        task = self.model.tasks[one.lease.task]
        answer = self.poll(one.bot, reports=(report_of(one.lease, signal),)).reports[0]
        reported = task.ends.get(one.lease.attempt) is signal
        if reported:
            assert answer == Done(task.id, task.state, echo=True)
        else:
            assert code(answer) is Code.LEASE_LOST
        self.count("a report was repeated" if reported else "a late report was refused")

    def speak_for_an_old_session(self, pick: int) -> None:
        old = [one for one in self.given.values() if one.session != self.session(one.bot)]
        if old:
            one = some(old, pick)
            answer = self.harness.poll(one.bot, 1, one.session, reports=(report_of(one.lease, Signal.SUCCEED),))
            assert code(answer) is Code.SESSION_REPLACED
            self.count("an old session was refused")

    def renew(self, one: GivenLease) -> None:
        task = self.model.tasks[one.lease.task]
        answer = self.poll(one.bot, renewals=(Renewal(task.id, one.lease.attempt, one.lease.fence),)).renewals[0]
        self.model.renew(task)
        assert isinstance(answer, Renewed)
        assert (answer.attempt, answer.until_ms, answer.stop) == (task.attempt, task.until_ms, task.state == "stopping")
        self.count("a lease was not lengthened" if task.past(self.harness.now) else "a lease was renewed")

    def poll(self, bot: str, want: int = 0, **fields: Any) -> PollOutcome:
        answer = self.harness.poll(bot, want, self.session(bot), **fields)
        assert isinstance(answer, PollOutcome), answer
        self.now().mark_seen(bot)
        return answer

    # Time and the server.

    def pass_time(self, ms: int, awake: bool) -> None:
        """Let time pass with all its sweeps; if `awake`, bots renew their leases."""
        until = self.harness.now + ms
        while self.harness.now < until:
            self.harness.advance(min(OUTAGE, until - self.harness.now))
            self.now()
            for bot in self.model.bots if awake else ():
                self.poll(bot)
                for one in self.leases(bot):
                    self.renew(one)
            self.harness.sweep()
            self.now().sweep()

    def be_down(self, gap_ms: int) -> None:
        """Let no server run for a while; the next one knows only what is stored."""
        after = self.harness.now + gap_ms - GUARD
        late = [task for task in self.model.tasks.values() if task.until_ms is not None and task.until_ms <= after]
        self.harness.advance(gap_ms)
        self.harness.restart()
        self.harness.sweep()
        self.now().sweep()
        self.count("a lease outlived an outage", sum(task.state in LEASED for task in late))

    def schedule(self) -> None:
        self.harness.schedule()
        before, model = self.model.kept_back, self.now()
        model.schedule()
        self.count("a stake kept a task back", model.kept_back - before)

    def run_server_tasks(self) -> None:
        self.harness.run_server_tasks()
        self.now().run_server_tasks()

    # Reads.

    def now(self) -> Model:
        """The model, at the present time."""
        self.model.now = self.harness.now
        return self.model

    def count(self, what: str, times: int = 1) -> None:
        self.happened[what] += times

    def session(self, bot: str) -> str:
        return f"{bot} {self.sessions[bot]}"

    def lease_now(self, one: GivenLease) -> Lease:
        """A lease with its present end."""
        until = self.model.tasks[one.lease.task].until_ms
        assert until is not None
        return structs.struct_replace(one.lease, until_ms=Millis(until))

    def able(self) -> list[str]:
        """The bots that could claim something."""
        tasks, bots = self.model.tasks.values(), sorted(self.model.bots.items())
        return [name for name, bot in bots if any(self.model.fits(task, bot) for task in tasks)]

    def leases(self, bot: str | None = None) -> list[GivenLease]:
        """The leases of one bot or of all."""
        leased = [task for task in self.model.tasks.values() if task.state in LEASED]
        return [self.given[task.id, task.attempt] for task in leased if bot in {None, task.bot}]

    def some_graph(self, pick: int) -> Graph:
        return some(list(self.model.graphs.values()), pick)

    def task_under_way(self, pick: int) -> Task:
        """Choose a task that has not ended: often a leased one, preferably with a deadline."""
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
    """The code of a refusal."""
    assert isinstance(answer, Refusal), answer
    return answer.code


def begun_of(lease: Lease) -> Begun:
    return Begun(lease.task, lease.attempt, lease.fence)


def report_of(lease: Lease, signal: Signal) -> Report:
    return Report(lease.task, lease.attempt, lease.fence, signal, exit_code=1 if signal is Signal.FAIL else None)


def _task(lease: Lease) -> int:
    return lease.task
