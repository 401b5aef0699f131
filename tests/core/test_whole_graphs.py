"""Whole graphs on the core alone: gates, transitions, mends and graph states have to fit together.

`World` is the smallest possible transaction: it carries out transitions by `step`, propagates by `effects`, and checks
gates. Hypothesis draws graphs and events; the tests check what may never happen and how graphs must end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskyard.core.graph.gate import Edges, EdgeState, edge_after, gate, known, signals
from taskyard.core.graph.state import (
    Handler,
    Handlers,
    Member,
    Tally,
    counted,
    handlers_of,
    settled,
    tally,
    unhandled,
    verdict,
)
from taskyard.core.states import (
    ACTIVE,
    BEHIND,
    ENDED,
    UNSUCCESSFUL,
    GraphState,
    Impossible,
    Join,
    On,
    Outcome,
    Propagation,
    Signal,
    State,
    effects,
    step,
)
from tests.effort import tries

S, G = State, Signal


@dataclass
class Node:
    requires: list[tuple[int, On]]
    join: Join = Join.ALL
    policy: Impossible = Impossible.HOLD
    state: State = S.UNSCHEDULED
    round: int = 1
    ran: bool = False
    handled_round: dict[int, int] = field(default_factory=dict)  # by prerequisite: its round in which this one ran
    edges: list[EdgeState] = field(default_factory=list)
    handlers: Handlers = field(default_factory=Handlers)
    history: list[tuple[State, Signal, State]] = field(default_factory=list)


class World:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        self.active, self.behind, self.unhandled = 0, len(nodes), 0
        self.canceled = False
        self.dependents: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(nodes))}
        for number, node in enumerate(nodes):
            node.edges = [EdgeState.AWAITED] * len(node.requires)
            for place, (prerequisite, _) in enumerate(node.requires):
                self.dependents[prerequisite].append((number, place))
        for number in range(len(nodes)):
            self.ask_gate(number)

    def send(self, number: int, signal: Signal, again: bool = False) -> Outcome:
        node = self.nodes[number]
        answer = step(node.state, signal, again)
        if answer.outcome is Outcome.MOVE:
            self.carry(number, signal, answer.target)
        return answer.outcome

    def carry(self, number: int, signal: Signal, target: State) -> None:
        node = self.nodes[number]
        source, follows = node.state, effects(node.state, target)
        before, was_unhandled = dict(self.handlers_before(number)), unhandled(node.state, node.handlers)
        node.history.append((source, signal, target))
        node.state, node.round = target, node.round + follows.new_round
        node.ran = (node.ran and not follows.new_round) or follows.leased > 0 or signal is G.REUSE
        if node.ran and target in ENDED:
            failed = (one for one, _ in node.requires if self.nodes[one].state in UNSUCCESSFUL)
            node.handled_round |= {one: self.nodes[one].round for one in failed}
        if target in UNSUCCESSFUL:
            node.handlers = handlers_of(Member(target, node.round), self.handlers(number))
        self.active += follows.active
        self.behind += follows.behind
        self.unhandled += unhandled(node.state, node.handlers) - was_unhandled
        self.tell_prerequisites(number, before)
        self.propagate(number, follows.propagates)
        if signal is G.RERUN:
            node.edges = [known(on, self.nodes[one].state) for one, on in node.requires]
        if target is S.UNSCHEDULED:
            self.ask_gate(number)

    def propagate(self, number: int, propagation: Propagation | None) -> None:
        for dependent, place in self.dependents[number] if propagation else ():
            other = self.nodes[dependent]
            assert propagation
            under_way = other.state in ACTIVE
            other.edges[place] = edge_after(other.edges[place], other.requires[place][1], propagation, under_way)
            self.ask_gate(dependent)

    def handlers_before(self, number: int) -> list[tuple[int, Handlers]]:
        """What this node adds to each failure it handles, as things are."""
        node = self.nodes[number]
        failed = {one for one, on in node.requires if on is not On.SUCCESS and self.nodes[one].state in UNSUCCESSFUL}
        return [
            (one, counted(Handler(node.state, node.handled_round.get(one)), self.nodes[one].round)) for one in failed
        ]

    def tell_prerequisites(self, number: int, before: dict[int, Handlers]) -> None:
        """Move the counters of the failures that this node handles."""
        for one, now in self.handlers_before(number):
            other, was = self.nodes[one], before[one]
            was_unhandled, had = unhandled(other.state, other.handlers), other.handlers
            other.handlers = Handlers(had.ran + now.ran - was.ran, had.open + now.open - was.open)
            self.unhandled += unhandled(other.state, other.handlers) - was_unhandled

    def handlers(self, number: int) -> list[Handler]:
        named = {one for one, place in self.dependents[number] if self.nodes[one].requires[place][1] is not On.SUCCESS}
        return [Handler(self.nodes[one].state, self.nodes[one].handled_round.get(number)) for one in named]

    def asked(self, number: int) -> Signal | None:
        node = self.nodes[number]
        return gate(Edges(*(node.edges.count(state) for state in EdgeState)), node.join, node.policy)

    def ask_gate(self, number: int) -> None:
        for signal in signals(self.nodes[number].state, self.asked(number), self.canceled):
            # A mend leads to unscheduled, where the gate is checked again: then the second signal is an echo.
            assert self.send(number, signal) is not Outcome.ILLEGAL

    def tally(self) -> Tally:
        members = {str(number): Member(node.state, node.round) for number, node in enumerate(self.nodes)}
        return tally(members, {str(number): self.handlers(number) for number in self.dependents})

    def in_state(self, *states: State) -> list[int]:
        return [number for number, node in enumerate(self.nodes) if node.state in states]

    def run_one(self, number: int, end: Signal) -> None:
        for signal in (G.ADMIT, G.CLAIM, end):
            assert self.send(number, signal) is Outcome.MOVE


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    nodes = []
    for number in range(draw(st.integers(1, 9))):
        one = st.tuples(st.integers(0, max(number - 1, 0)), st.sampled_from(On))
        requires = draw(st.lists(one, max_size=3 if number else 0, unique=True))
        nodes.append(Node(requires, draw(st.sampled_from(Join)), draw(st.sampled_from(Impossible))))
    return nodes


ENDS = [G.SUCCEED, G.FAIL, G.LOSE, G.DEADLINE]
PEOPLE = [G.CANCEL, G.RERUN]


def play(world: World, choices: st.DataObject, turns: int) -> None:
    """Let attempts end in any way and people interfere, with checks after every step."""
    for _ in range(turns):
        moves = [(n, end) for n in world.in_state(S.PENDING) for end in ENDS]
        moves += [(n, G.CANCEL) for n in world.in_state(S.UNSCHEDULED, S.BLOCKED, S.PENDING)]
        moves += [(n, G.RERUN) for n in world.in_state(*UNSUCCESSFUL)]
        if not moves:
            break
        number, signal = choices.draw(st.sampled_from(moves))
        if signal in PEOPLE:
            world.send(number, signal)
        else:
            world.run_one(number, signal)
        check(world)


def check(world: World) -> None:
    """What may never be seen between two moves."""
    wanted = {S.UNSCHEDULED: None, S.BLOCKED: G.BLOCK, S.SKIPPED: G.SKIP}
    for number, node in enumerate(world.nodes):
        if node.state in wanted:
            assert world.asked(number) is wanted[node.state], "a task waits for what already happened"
            assert node.edges == [known(on, world.nodes[one].state) for one, on in node.requires]
        for source, signal, target in node.history:
            if target is S.UNSCHEDULED:
                assert signal in {G.MEND, G.RERUN}, "a released task was called back"
            assert source is not S.SUCCESSFUL
    afresh = world.tally()
    assert Tally(world.active, world.behind, world.unhandled) == afresh
    if verdict(afresh) is GraphState.FINISHED:
        assert all(node.state in ENDED for node in world.nodes)


@settings(max_examples=tries(100))
@given(graphs(), st.data())
def test_nothing_waits_for_what_already_happened(nodes: list[Node], choices: st.DataObject) -> None:
    world = World(nodes)
    check(world)
    play(world, choices, turns=25)


@settings(max_examples=tries(100))
@given(graphs(), st.data())
def test_every_graph_settles_finished_or_blocked_and_never_runs_for_ever(
    nodes: list[Node], choices: st.DataObject
) -> None:
    world = World(nodes)
    while pending := world.in_state(S.PENDING):
        world.run_one(choices.draw(st.sampled_from(pending)), choices.draw(st.sampled_from(ENDS)))
    assert bool(world.in_state(*BEHIND)) <= bool(world.in_state(S.BLOCKED)), "a task waits for nothing"
    assert settled(world.tally())
    assert verdict(world.tally()) in {GraphState.FINISHED, GraphState.BLOCKED}


@settings(max_examples=tries(100))
@given(graphs(), st.data())
def test_reruns_that_succeed_finish_any_graph(nodes: list[Node], choices: st.DataObject) -> None:
    world = World(nodes)
    play(world, choices, turns=15)
    for _ in range(10 * len(nodes) + 10):
        for number in world.in_state(*UNSUCCESSFUL):
            world.send(number, G.RERUN)
        for number in world.in_state(S.PENDING):
            world.run_one(number, G.SUCCEED)
        check(world)
    assert verdict(world.tally()) is GraphState.FINISHED
    assert not world.in_state(*UNSUCCESSFUL, *ACTIVE, *BEHIND)


def test_a_diamond_runs_its_last_task_once() -> None:
    world = World(
        [Node([]), Node([(0, On.SUCCESS)]), Node([(0, On.SUCCESS)]), Node([(1, On.SUCCESS), (2, On.SUCCESS)])]
    )
    for number in (0, 1, 2, 3):
        world.run_one(number, G.SUCCEED)
    assert [entry[1] for entry in world.nodes[3].history].count(G.RELEASE) == 1
    assert verdict(world.tally()) is GraphState.FINISHED


def test_two_failures_and_one_mended_leave_the_dependent_blocked() -> None:
    world = World([Node([]), Node([]), Node([(0, On.SUCCESS), (1, On.SUCCESS)])])
    world.run_one(0, G.FAIL)
    world.run_one(1, G.FAIL)
    world.send(0, G.RERUN)
    world.run_one(0, G.SUCCEED)
    assert world.nodes[2].state is S.BLOCKED
    assert verdict(world.tally()) is GraphState.BLOCKED


def test_a_handled_failure_finishes_the_graph() -> None:
    world = World([Node([]), Node([(0, On.FAILURE)])])
    world.run_one(0, G.FAIL)
    assert verdict(world.tally()) is GraphState.RUNNING
    world.run_one(1, G.SUCCEED)
    assert verdict(world.tally()) is GraphState.FINISHED


def test_a_handler_of_a_success_is_skipped_and_the_graph_finishes() -> None:
    world = World([Node([]), Node([(0, On.FAILURE)]), Node([(1, On.ALWAYS)])])
    world.run_one(0, G.SUCCEED)
    assert [node.state for node in world.nodes] == [S.SUCCESSFUL, S.SKIPPED, S.SKIPPED]
    assert verdict(world.tally()) is GraphState.FINISHED


def test_a_handler_that_was_skipped_does_not_count_as_having_handled() -> None:
    world = World([Node([]), Node([]), Node([(0, On.FAILURE), (1, On.FAILURE)])])
    world.run_one(1, G.SUCCEED)
    world.run_one(0, G.FAIL)
    assert world.nodes[2].state is S.SKIPPED
    assert verdict(world.tally()) is GraphState.BLOCKED


def test_a_mended_skip_mends_its_skipped_dependents() -> None:
    world = World([Node([]), Node([(0, On.SUCCESS)], policy=Impossible.SKIP), Node([(1, On.ALWAYS)])])
    world.run_one(0, G.FAIL)
    assert world.in_state(S.SKIPPED) == [1, 2]
    world.send(0, G.RERUN)
    assert world.in_state(S.UNSCHEDULED) == [1, 2]


def test_what_failed_by_policy_stays_failed_until_a_person_reruns_it() -> None:
    world = World([Node([]), Node([(0, On.SUCCESS)], policy=Impossible.FAIL)])
    world.run_one(0, G.FAIL)
    world.send(0, G.RERUN)
    world.run_one(0, G.SUCCEED)
    assert world.in_state(S.FAILED) == [1]
    world.send(1, G.RERUN)
    assert world.in_state(S.PENDING) == [1]


def test_what_hangs_behind_a_blocked_task_settles_the_graph_as_blocked() -> None:
    world = World([Node([]), Node([(0, On.SUCCESS)]), Node([(1, On.SUCCESS)])])
    world.run_one(0, G.FAIL)
    assert [node.state for node in world.nodes] == [S.FAILED, S.BLOCKED, S.UNSCHEDULED]
    assert settled(world.tally())
    assert verdict(world.tally()) is GraphState.BLOCKED


@settings(max_examples=tries(100))
@given(graphs(), st.data())
def test_a_canceled_graph_ends_in_any_order_of_pages_and_starts_no_handler(
    nodes: list[Node], choices: st.DataObject
) -> None:
    world = World(nodes)
    play(world, choices, turns=5)
    for number in world.in_state(S.PENDING)[:2]:
        world.send(number, G.ADMIT)
        world.send(number, G.CLAIM)
    ran = [node.ran for node in world.nodes]
    world.canceled = True  # a fact of the graph, stored before the first page
    for number in choices.draw(st.permutations(world.in_state(*ACTIVE, *BEHIND))):
        world.send(number, G.CANCEL)
    for number in world.in_state(S.STOPPING):
        world.send(number, choices.draw(st.sampled_from(ENDS)))
    assert [node.ran for node in world.nodes] == ran
    assert not world.in_state(*ACTIVE, *BEHIND)
    assert settled(world.tally())
    assert verdict(world.tally(), canceled=True) is GraphState.CANCELED


def test_a_second_failure_is_not_handled_by_what_ran_for_the_first() -> None:
    world = World([Node([]), Node([(0, On.FAILURE)])])
    world.run_one(0, G.FAIL)
    world.run_one(1, G.SUCCEED)
    world.send(0, G.RERUN)
    world.run_one(0, G.FAIL)
    assert [node.state for node in world.nodes] == [S.FAILED, S.SUCCESSFUL]
    assert verdict(world.tally()) is GraphState.BLOCKED


def test_a_task_that_still_waits_waits_for_a_rerun_too() -> None:
    cleanup = Node([(0, On.ALWAYS), (1, On.ALWAYS)])
    world = World([Node([]), Node([]), cleanup])
    world.run_one(0, G.FAIL)
    world.send(0, G.RERUN)
    world.run_one(1, G.SUCCEED)
    assert world.in_state(S.UNSCHEDULED) == [2]
    world.run_one(0, G.SUCCEED)
    assert world.in_state(S.PENDING) == [2]


@pytest.mark.parametrize(
    ("old", "on", "becomes"),
    [
        (S.RUNNING, On.SUCCESS, []),
        (S.SUCCESSFUL, On.SUCCESS, [G.RELEASE]),
        (S.FAILED, On.SUCCESS, [G.BLOCK]),
        (S.ERROR, On.FAILURE, [G.RELEASE]),
        (S.SKIPPED, On.ALWAYS, [G.SKIP]),
        (S.SUCCESSFUL, On.FAILURE, [G.SKIP]),
        (S.BLOCKED, On.SUCCESS, []),
    ],
)
def test_a_task_that_is_added_later_starts_from_where_its_prerequisite_is(
    old: State, on: On, becomes: list[Signal]
) -> None:
    edges = Edges(*(int(known(on, old) is state) for state in EdgeState))
    assert list(signals(S.UNSCHEDULED, gate(edges))) == becomes
