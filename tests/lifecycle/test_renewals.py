"""Renewals: a bot keeps its lease, and learns that it should stop."""

from taskyard.core.fleet import GUARD_MS, LEASE_MS
from taskyard.core.states import Millis, Signal, State
from taskyard.lifecycle.commands import Code, Done, Refusal, Renewed
from tests.lifecycle.graphs import chain, graph, node
from tests.lifecycle.harness import LifecycleHarness


def test_a_renewal_lengthens_the_lease_and_puts_off_the_clock(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.advance(50_000)
    assert harness.renew("rack1", lease) == Renewed(labels["a"], 1, Millis(harness.now + LEASE_MS))
    task = harness.task(labels["a"])
    assert (task.lease_until_ms, task.due_ms) == (harness.now + LEASE_MS, harness.now + LEASE_MS + GUARD_MS)


def test_a_lease_that_is_over_but_not_yet_noticed_can_still_be_renewed(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.sweep()
    harness.advance(LEASE_MS + 1)
    assert harness.renew("rack1", lease) == Renewed(labels["a"], 1, Millis(harness.now + LEASE_MS))
    harness.sweep()
    assert harness.state_names(labels) == {"a": "running"}


def test_a_renewal_after_its_own_result_is_an_echo(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.end("rack1", lease)
    assert harness.renew("rack1", lease) == Renewed(labels["a"], 1, None)


def test_a_renewal_of_an_older_attempt_is_refused(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns=1)))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.fail("rack1", lease)
    harness.claim("rack1")
    refused = harness.renew("rack1", lease)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.LEASE_LOST
    assert harness.task(labels["a"]).life.attempt == 2


def test_a_renewal_tells_a_bot_to_stop_its_task(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.cancel(labels["a"])
    assert harness.renew("rack1", lease) == Renewed(labels["a"], 1, Millis(harness.now + LEASE_MS), stop=True)


def test_a_lease_is_not_lengthened_past_the_deadline_and_stays_its_bots(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(deadline="90s")))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.advance(50_000)
    until = Millis(harness.now + LEASE_MS)
    assert harness.renew("rack1", lease) == Renewed(labels["a"], 1, until)
    harness.advance(40_000)
    assert harness.renew("rack1", lease) == Renewed(labels["a"], 1, until)
    harness.cancel(labels["a"])
    assert harness.renew("rack1", lease) == Renewed(labels["a"], 1, until, stop=True)
    assert harness.end("rack1", lease, Signal.DEADLINE) == Done(labels["a"], State.CANCELED)
