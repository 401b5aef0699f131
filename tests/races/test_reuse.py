"""Equal tasks on several servers: one of them leads, the first one, and no follower is forgotten."""

from collections.abc import Callable, Sequence

import pytest

from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Cancel, Lease
from tests.engine.harness import WAIT_S, graph, task
from tests.lifecycle.harness import Labels
from tests.races.conftest import Open
from tests.races.servers import COMMIT, Server, ended, run_in_lockstep, wait_for_lock_wait

#: How many equal tasks each of two servers submits at once.
PAIRS = 60


def same(name: str = "same", *requires: str, **fields: object) -> dict[str, object]:
    return task(*requires, idempotent=True, payload={"command": ["make", name]}, **fields)


def states(server: Server, *all_labels: Labels) -> list[str]:
    return [server.states(labels)["a"] for labels in all_labels]


def submitting(server: Server, name: str) -> Callable[[], Labels]:
    return lambda: server.submit(graph(a=same(name)))


def ending(server: Server, leases: Sequence[Lease]) -> Callable[[], object]:
    return lambda: server.poll(reports=tuple(map(ended, leases)))


def test_of_equal_tasks_submitted_at_once_one_leads(pair: tuple[Server, Server]) -> None:
    one, two = pair
    made = run_in_lockstep(
        [submitting(one, f"{number}") for number in range(PAIRS)],
        [submitting(two, f"{number}") for number in range(PAIRS)],
    )
    one.settle()
    assert {tuple(sorted(states(one, *both))) for both in made} == {("pending", "waiting")}
    leases = one.claim_all()
    assert len(leases) == PAIRS
    for lease in leases.values():
        one.end(lease)
    assert {tuple(states(one, *both)) for both in made} == {("successful", "successful")}


def test_the_second_of_two_waits_for_the_first_to_be_stored_and_follows_it(pair: tuple[Server, Server]) -> None:
    one, two = pair
    with one.halted(COMMIT) as halt:
        first = one.in_thread(one.submit, graph(a=same()))
        halt.reached()
        second = two.in_thread(two.submit, graph(a=same()))
        wait_for_lock_wait(one.url)
    assert states(one, first.result(WAIT_S), second.result(WAIT_S)) == ["waiting", "pending"]


@pytest.mark.parametrize("released_first", [True, False])
def test_a_key_is_led_once_while_its_task_is_released_and_another_takes_it(
    pair: tuple[Server, Server], released_first: bool
) -> None:
    one, two = pair
    waiting = one.submit(graph(build=task(), a=same("same", "build")))
    (lease,) = one.claim()
    early, late = (one, two) if released_first else (two, one)
    acts: list[Callable[[], object]] = [lambda: one.end(lease), submitting(two, "same")]
    first_act, then_act = acts if released_first else acts[::-1]
    with early.halted(COMMIT) as halt:
        earlier = early.in_thread(first_act)
        halt.reached()
        later = late.in_thread(then_act)
        wait_for_lock_wait(one.url)
    answers = [earlier.result(WAIT_S), later.result(WAIT_S)]
    (other,) = (answer for answer in answers if isinstance(answer, Labels))
    both = [waiting, other] if released_first else [other, waiting]
    assert states(one, *both) == ["waiting", "pending"]
    for lease in one.claim():
        one.end(lease)
    assert states(one, *both) == ["successful", "successful"]


def test_graphs_that_wait_for_equal_tasks_and_are_released_at_once_run_each_once(pair: tuple[Server, Server]) -> None:
    one, two = pair
    nodes = {f"t{number}": same(f"{number}", "build") for number in range(PAIRS)}
    graphs = [server.submit(graph(build=task(), **nodes)) for server in (one, two, one, two)]
    leases = [one.claim(2), two.claim(2)]
    run_in_lockstep(
        [ending(one, leases[0][:1]), ending(one, leases[0][1:])],
        [ending(two, leases[1][:1]), ending(two, leases[1][1:])],
    )
    one.settle()
    seen = [[found[name] for name in nodes] for found in map(one.states, graphs)]
    assert {tuple(sorted(column)) for column in zip(*seen, strict=True)} == {("pending",) * 3 + ("waiting",)}


@pytest.mark.parametrize("ends_first", [True, False])
def test_a_task_that_follows_while_its_leader_ends_has_the_result(
    pair: tuple[Server, Server], ends_first: bool
) -> None:
    one, two = pair
    first = one.submit(graph(a=same()))
    (lease,) = one.claim()
    early, late = (one, two) if ends_first else (two, one)
    acts: list[Callable[[], object]] = [lambda: one.end(lease), submitting(two, "same")]
    first_act, then_act = acts if ends_first else acts[::-1]
    with early.halted(COMMIT) as halt:
        earlier = early.in_thread(first_act)
        halt.reached()
        later = late.in_thread(then_act)
        wait_for_lock_wait(one.url)
    answers = [earlier.result(WAIT_S), later.result(WAIT_S)]
    (second,) = (answer for answer in answers if isinstance(answer, Labels))
    one.settle()
    assert states(one, first, second) == ["successful", "successful"]


def test_a_follower_canceled_while_its_leader_fails_passes_the_lead_on(pair: tuple[Server, Server]) -> None:
    one, two = pair
    first, second, third = (one.submit(graph(a=same())) for _ in range(3))
    (lease,) = one.claim()
    with two.halted(COMMIT) as halt:
        canceling = two.in_thread(two.engine.cancel, Cancel(task=second["a"], actor="ann"))
        halt.reached()
        ending = one.in_thread(one.end, lease, Signal.FAIL)
        wait_for_lock_wait(one.url)
    canceling.result(WAIT_S)
    ending.result(WAIT_S)
    one.settle()
    assert states(one, first, second, third) == ["failed", "canceled", "waiting"]


def test_leaders_that_end_at_once_serve_all_their_followers(servers: Open) -> None:
    both = servers(2)
    for server in both:
        server.hello()
    leaders = both[0].submit(graph(**{f"t{number}": same(f"{number}") for number in range(PAIRS)}))
    followers = [
        both[1].submit(graph(**{f"t{number}": same(f"{number}") for number in range(PAIRS)})) for _ in range(2)
    ]
    leases = [both[0].claim(PAIRS // 2), both[1].claim(PAIRS)]
    run_in_lockstep(
        [ending(both[0], leases[0][place::10]) for place in range(10)],
        [ending(both[1], leases[1][place::10]) for place in range(10)],
    )
    both[0].settle()
    for labels in (leaders, *followers):
        assert set(both[0].states(labels).values()) == {"successful"}
