"""How leases go on: a bot says that it is still at it, and hears if it should stop."""

from taskyard.core.fleet import GUARD_MS, LEASE_MS
from taskyard.core.states import Millis, Signal, State
from taskyard.lifecycle.commands import Code, Done, Refusal, Renewed
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.yard import chain


def test_a_renewal_lengthens_the_lease_and_puts_off_the_clock(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.later(50_000)
    assert yard.renew("rack1", lease) == Renewed(labels["a"], 1, Millis(yard.now + LEASE_MS))
    task = yard.task(labels["a"])
    assert (task.lease_until_ms, task.due_ms) == (yard.now + LEASE_MS, yard.now + LEASE_MS + GUARD_MS)


def test_a_lease_that_is_over_but_not_yet_noticed_can_still_be_renewed(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.sweep()
    yard.later(LEASE_MS + 1)
    assert yard.renew("rack1", lease) == Renewed(labels["a"], 1, Millis(yard.now + LEASE_MS))
    yard.sweep()
    assert yard.words(labels) == {"a": "running"}


def test_a_renewal_after_its_own_result_is_an_echo(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.end("rack1", lease)
    assert yard.renew("rack1", lease) == Renewed(labels["a"], 1, None)


def test_a_renewal_of_an_older_attempt_is_refused(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns=1)))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.fail("rack1", lease)
    yard.claim("rack1")
    refused = yard.renew("rack1", lease)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.LEASE_LOST
    assert yard.task(labels["a"]).life.attempt == 2


def test_a_renewal_tells_a_bot_to_stop_its_task(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.cancel(labels["a"])
    assert yard.renew("rack1", lease) == Renewed(labels["a"], 1, Millis(yard.now + LEASE_MS), stop=True)


def test_a_lease_is_not_lengthened_past_the_deadline_and_stays_its_bots(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(deadline="90s")))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.later(50_000)
    until = Millis(yard.now + LEASE_MS)
    assert yard.renew("rack1", lease) == Renewed(labels["a"], 1, until)
    yard.later(40_000)
    assert yard.renew("rack1", lease) == Renewed(labels["a"], 1, until)
    yard.cancel(labels["a"])
    assert yard.renew("rack1", lease) == Renewed(labels["a"], 1, until, stop=True)
    assert yard.end("rack1", lease, Signal.DEADLINE) == Done(labels["a"], State.CANCELED)
