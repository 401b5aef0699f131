"""Leases between servers: given once, kept or lost but never both, and never ended or given to another bot."""

from collections import Counter
from collections.abc import Callable

import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MS, MISSING_WITHIN_MS
from taskyard.core.states import Millis, State
from taskyard.core.structs import struct_replace
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.commands import Begun, Code, Done, Goodbye, Lease, Refusal, Renewed
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.timeouts import mark_missing_bots
from tests.engine.harness import WAIT_S, wide
from tests.races.servers import COMMIT, Server, ended, run_concurrently, wait_for_lock_wait

Pair = tuple[Server, Server]
#: A lease is over, and its task may be leased again.
OVER_MS = LEASE_MS + GUARD_MS
#: How many races run without a halt.
ROUNDS = 60


def lost(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.code is Code.LEASE_LOST


def bots(server: Server, task: int) -> list[tuple[str, str | None]]:
    """The bots of a task, and how each attempt ended."""
    with server.store.read() as repo:
        return [(one.bot, one.signal) for one in repo.attempts.of(task)]


# A renewal against the end of the lease.


def test_a_lease_is_renewed_or_lost_and_never_both(pair: Pair) -> None:
    one, two = pair
    one.submit(wide(ROUNDS))
    outcomes: Counter[bool] = Counter()
    for _ in range(ROUNDS):
        (lease,) = one.claim()
        one.run_for(OVER_MS)
        renewed, _ = run_concurrently(lambda lease=lease: one.renew(lease), two.run_timeouts)  # type: ignore[misc]
        outcomes[lost(renewed)] += 1
        if lost(renewed):
            assert bots(one, lease.task)[-1] == ("b1", "lose")
        else:
            assert renewed == Renewed(lease.task, lease.attempt, Millis(one.clock.now() + LEASE_MS))
            assert one.end(lease) == Done(lease.task, State.SUCCESSFUL)
    assert sum(outcomes.values()) == ROUNDS


def test_a_renewal_that_comes_first_keeps_the_lease(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    (lease,) = one.claim()
    one.run_for(OVER_MS)
    with one.halted(COMMIT) as halt:
        renewing = one.in_thread(one.renew, lease)
        halt.reached()
        lapsing = two.in_thread(two.run_timeouts)
        wait_for_lock_wait(one.url)
    assert isinstance(renewing.result(WAIT_S), Renewed)
    assert lapsing.result(WAIT_S) == 1
    assert one.states(labels) == {"t0": "running"}
    assert one.end(lease) == Done(lease.task, State.SUCCESSFUL)


def test_a_renewal_that_comes_too_late_is_refused(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    (lease,) = one.claim()
    one.run_for(OVER_MS)
    with two.halted(COMMIT) as halt:
        lapsing = two.in_thread(two.run_timeouts)
        halt.reached()
        renewing = one.in_thread(one.renew, lease)
        wait_for_lock_wait(one.url)
    assert lapsing.result(WAIT_S) == 1
    assert lost(renewing.result(WAIT_S))
    assert lost(one.end(lease))
    assert one.states(labels) == {"t0": "waiting"}


@pytest.mark.parametrize("early", ["result", "clock"])
def test_a_result_and_the_end_of_its_lease_are_one_outcome(pair: Pair, early: str) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    (lease,) = one.claim()
    one.run_for(OVER_MS)
    acts: list[tuple[Server, Callable[[], object]]] = [(one, lambda: one.end(lease)), (two, two.run_timeouts)]
    (first, act), (then, other) = acts if early == "result" else reversed(acts)
    with first.halted(COMMIT) as halt:
        acting = first.in_thread(act)
        halt.reached()
        following = then.in_thread(other)
        wait_for_lock_wait(one.url)
    answers = {early: acting.result(WAIT_S), "other": following.result(WAIT_S)}
    if early == "result":
        assert answers == {"result": Done(lease.task, State.SUCCESSFUL), "other": 1}
        assert bots(one, labels["t0"]) == [("b1", "succeed")]
    else:
        assert answers["clock"] == 1
        assert lost(answers["other"])
        assert bots(one, labels["t0"]) == [("b1", "lose")]


# Claims.


def test_what_many_servers_take_at_once_is_given_once(servers: Callable[[int], list[Server]]) -> None:
    four = servers(4)
    for server in four:
        server.hello()
    labels = four[0].submit(wide(900))
    taken = run_concurrently(*(lambda server=server: take_all(server, 7) for server in four))
    given = Counter(lease.task for leases in taken for lease in leases)
    assert given == dict.fromkeys(labels.values(), 1)
    assert set(four[0].states(labels).values()) == {"running"}


def take_all(server: Server, want: int) -> list[Lease]:
    """Take what there is in small portions."""
    found: list[Lease] = []
    while leases := server.claim(want):
        found += leases
    return found


def test_a_task_that_another_transaction_claims_is_skipped_without_waiting(pair: Pair) -> None:
    one, two = pair
    first, second, third = (one.submit(wide(1))["t0"] for _ in range(3))
    with one.halted(COMMIT) as halt:
        taking = one.in_thread(one.claim, 2)
        halt.reached()
        assert [lease.task for lease in two.claim(3)] == [third]
    assert [lease.task for lease in taking.result(WAIT_S)] == [first, second]


def test_a_poll_that_is_repeated_on_two_servers_at_once_is_given_one_share(pair: Pair) -> None:
    one, two = pair
    one.submit(wide(2 * ROUNDS))
    for number in range(ROUNDS // 2):
        said = {"bot": "b1", "poll": f"again{number}"}
        first, second = run_concurrently(lambda: one.claim(2, **said), lambda: two.claim(2, **said))  # noqa: B023
        assert first == second
        assert len(first) == 2
        assert {lease.attempt for lease in first} == {1}


def test_a_repeated_poll_is_never_given_what_another_bot_has_by_now(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    assert len(one.claim(poll="again")) == 1
    one.run_for(OVER_MS)
    with one.halted("lock_tasks") as halt:  # it has read the leases of its poll, and is about to check them
        repeating = one.in_thread(lambda: one.claim(poll="again"))
        halt.reached()
        two.run_timeouts()
        (lease,) = two.claim()
    assert lease.task == labels["t0"]
    assert repeating.result(WAIT_S) == ()
    assert two.end(lease) == Done(lease.task, State.SUCCESSFUL)


# Sessions.


def test_a_bot_that_begins_anew_ends_nothing_that_another_bot_has_by_now(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    one.claim()
    one.run_for(OVER_MS)
    with one.halted("lock_tasks") as halt:  # it has read the leases of its last session, and is about to check them
        greeting = one.in_thread(one.hello, "s2")
        halt.reached()
        two.run_timeouts()
        (lease,) = two.claim()
    greeting.result(WAIT_S)
    assert bots(one, labels["t0"]) == [("b1", "lose"), ("b2", None)]
    assert two.end(lease) == Done(lease.task, State.SUCCESSFUL)


def test_a_session_that_is_replaced_while_it_reports_has_one_outcome(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(ROUNDS))
    for number in range(ROUNDS):
        (lease,) = one.claim(session=f"s{number + 1}")
        polled, _ = run_concurrently(
            lambda lease=lease, number=number: one.poll(reports=(ended(lease),), session=f"s{number + 1}"),  # type: ignore[misc]
            lambda number=number: two.hello(f"s{number + 2}", bot="b1"),  # type: ignore[misc]
        )
        came_in_time = isinstance(polled, PollOutcome)
        assert came_in_time or (isinstance(polled, Refusal) and polled.code is Code.SESSION_REPLACED)
        assert bots(one, lease.task)[-1] == ("b1", "succeed" if came_in_time else "lose")
    assert "running" not in one.states(labels).values()


@pytest.mark.parametrize("early", ["report", "hello"])
def test_a_report_and_a_new_session_follow_one_another(pair: Pair, early: str) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    (lease,) = one.claim()
    acts: list[tuple[Server, Callable[[], object]]] = [
        (one, lambda: one.poll(reports=(ended(lease),))),
        (two, lambda: two.hello("s2", bot="b1")),
    ]
    (first, act), (then, other) = acts if early == "report" else reversed(acts)
    with first.halted(COMMIT) as halt:
        acting = first.in_thread(act)
        halt.reached()
        following = then.in_thread(other)
        wait_for_lock_wait(one.url)
    answers = [acting.result(WAIT_S), following.result(WAIT_S)]
    if early == "report":
        assert answers == [PollOutcome((Done(lease.task, State.SUCCESSFUL),), (), ()), None]
    else:
        assert isinstance(answers[1], Refusal)
        assert answers[1].code is Code.SESSION_REPLACED
        assert bots(one, labels["t0"]) == [("b1", "lose")]


def test_an_attempt_is_adopted_or_ends_with_its_lease_and_never_both(pair: Pair) -> None:
    one, two = pair
    one.submit(wide(ROUNDS))
    one.hello("here/0")
    outcomes: Counter[bool] = Counter()
    for number in range(ROUNDS):
        (lease,) = one.claim(session=f"here/{number}")
        one.run_for(OVER_MS)
        adopted, _ = run_concurrently(lambda lease=lease, number=number: adopt(one, lease, number), two.run_timeouts)  # type: ignore[misc]
        assert isinstance(adopted, list)
        outcomes[bool(adopted)] += 1
        outcome = bots(one, lease.task)[lease.attempt - 1]
        assert outcome == ("b1", None if adopted else "lose")
        if adopted:
            assert one.end(adopted[0], session=f"here/{number + 1}") == Done(lease.task, State.SUCCESSFUL)
        else:
            two.claim()  # so that the next round takes another task
    assert sum(outcomes.values()) == ROUNDS


def test_a_hello_that_is_repeated_at_another_server_adopts_once(pair: Pair) -> None:
    one, two = pair
    one.submit(wide(ROUNDS))
    one.hello("here/0")
    for number in range(ROUNDS // 4):
        (lease,) = one.claim(session=f"here/{number}")
        first, second = run_concurrently(lambda: adopt(one, lease, number), lambda: adopt(two, lease, number))  # noqa: B023
        assert first == second
        assert first[0].fence > lease.fence
        assert one.end(first[0], session=f"here/{number + 1}") == Done(lease.task, State.SUCCESSFUL)


def adopt(server: Server, lease: Lease, number: int) -> list[Lease]:
    """Begin the next session of b1 in its folder, which goes on with a lease."""
    said = struct_replace(
        server.greeting(f"here/{number + 1}", "b1"),
        begun=(),
        replaces=f"here/{number}",
        adopts=(Begun(lease.task, lease.attempt, lease.fence),),
    )
    answer = server.engine.hello(said)
    assert isinstance(answer, tuple), answer
    return [Lease(found.task, found.attempt, found.fence, found.lease_until_ms) for found in answer]


def test_of_two_first_sessions_of_a_bot_the_later_ends_what_the_earlier_took(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    with one.halted("begin_bot_sessions") as halt:  # it knows of no session before
        greeting = one.in_thread(lambda: one.hello("late", bot="b9"))
        halt.reached()
        two.hello("early", bot="b9")
        assert len(two.claim(bot="b9", session="early")) == 1
    greeting.result(WAIT_S)
    assert bots(one, labels["t0"]) == [("b9", "lose")]
    assert one.states(labels) == {"t0": "waiting"}


def test_a_bot_that_polls_while_it_is_being_marked_missing_is_not_missing(pair: Pair) -> None:
    one, two = pair
    one.run_for(MISSING_WITHIN_MS + 1)
    two.poll()
    with two.halted("mark_bots_missing") as halt:
        noticing = two.in_thread(
            lambda: two.engine.transact(lambda transaction: mark_missing_bots(transaction, 9), Boundary.SILENCE)
        )
        halt.reached()
        hearing = one.in_thread(one.poll)
        wait_for_lock_wait(one.url, hearing.done)
    noticing.result(WAIT_S)
    assert isinstance(hearing.result(WAIT_S), PollOutcome)
    with one.store.read() as repo:
        (bot,) = repo.bots.read(["b1"]).values()
        noted = [row[3] for row in repo.bots.events("b1", 9)]
    assert (bot.facts.missing, bot.facts.last_seen_ms) == (False, one.clock.now())
    assert noted in (["connected"], ["missing", "connected"])


# Twins: two bots of one name, each at a server of its own.


@pytest.mark.parametrize("early", ["claim", "twin"])
def test_what_a_bot_claims_while_another_of_its_name_connects_is_never_given_to_that_one(
    pair: Pair, early: str
) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    one.hello("here/1", "b")
    acts: list[tuple[Server, Callable[[], object]]] = [
        (one, lambda: one.poll(1, bot="b", session="here/1")),
        (two, lambda: two.hello("there/1", "b")),
    ]
    (first, act), (then, other) = acts if early == "claim" else reversed(acts)
    with first.halted(COMMIT) as halt:
        acting = first.in_thread(act)
        halt.reached()
        following = then.in_thread(other)
        wait_for_lock_wait(one.url)
    answers = {early: acting.result(WAIT_S), "other": following.result(WAIT_S)}
    if early == "claim":
        assert isinstance(answers["claim"], PollOutcome)
        assert two.claim(1, bot="b", session="there/1") == ()
        assert bots(one, labels["t0"]) == [("b", None)]
    else:
        assert isinstance(answers["other"], Refusal)
        assert len(two.claim(1, bot="b", session="there/1")) == 1
    one.engine.goodbye(Goodbye("b", "here/1"))
    assert one.states(labels) == {"t0": "waiting" if early == "claim" else "running"}


def test_of_two_first_sessions_at_once_neither_takes_anything_from_the_other(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(wide(1))
    with one.halted(COMMIT) as halt:
        first = one.in_thread(lambda: one.hello("here/1", "b"))
        halt.reached()
        second = two.in_thread(lambda: two.hello("there/1", "b"))
        wait_for_lock_wait(one.url)
    first.result(WAIT_S)
    second.result(WAIT_S)
    refused = one.poll(1, bot="b", session="here/1")
    assert isinstance(refused, Refusal)
    assert len(two.claim(1, bot="b", session="there/1")) == 1
    one.engine.goodbye(Goodbye("b", "here/1"))
    assert one.states(labels) == {"t0": "running"}
