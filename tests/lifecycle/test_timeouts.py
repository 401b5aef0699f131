"""What the clock brings: lost leases, expired slices, deadlines, starts that were put off, outages."""

from typing import Any

import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MS, MISSING_WITHIN_MS, SWEEP_MS
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle.commands import Done, Refusal, Renewed
from taskyard.lifecycle.submit import begin
from taskyard.lifecycle.timeouts import AWAY_MAX_MS, OUTAGE_MS, apply_timeouts, heartbeat, mark_missing_bots
from taskyard.lifecycle.transaction import ServerIdentity
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.yard import chain

LOST_MS = LEASE_MS + GUARD_MS


def test_a_lost_lease_is_retried_elsewhere_and_then_an_error(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=1, reruns=5)))
    yard.hello("rack1")
    yard.hello("rack2")
    yard.sweep()
    first = yard.claim("rack1")[0]
    yard.wait(LOST_MS - 1, awake=["rack1", "rack2"])
    assert yard.words(labels) == {"a": "running"}
    yard.wait(1, awake=["rack1", "rack2"])
    task = yard.task(labels["a"])
    assert (str(task.state), task.avoid_bot, task.life.retries_used, task.life.reruns_used) == (
        "waiting",
        "rack1",
        1,
        0,
    )
    assert yard.claim("rack1") == ()
    assert isinstance(yard.end("rack1", first), Refusal)
    yard.claim("rack2")
    yard.wait(LOST_MS, awake=["rack1", "rack2"])
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)
    assert yard.verdict(labels) == "blocked"


def test_a_renewed_lease_is_not_lost(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.sweep()
    lease = yard.claim("rack1")[0]
    for _ in range(5):
        yard.wait(30_000)
        assert isinstance(yard.renew("rack1", lease), Renewed)
    assert yard.words(labels) == {"a": "running"}


def test_a_stopping_task_whose_bot_is_lost_is_canceled(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.sweep()
    yard.claim("rack1")
    yard.cancel(labels["a"])
    yard.wait(LOST_MS)
    assert yard.why(labels["a"]) == (State.CANCELED, Reason.ASKED)


def test_after_an_outage_a_bot_has_one_full_lease_to_come_back(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node()))
    yard.hello("rack1")
    yard.sweep()
    leases = yard.start("rack1", labels)
    yard.later(3_600_000)  # nobody sweeps
    assert yard.sweep() == 2
    back = yard.now
    task = yard.task(labels["a"])
    assert (task.lease_until_ms, task.due_ms) == (back + LEASE_MS, back + LOST_MS)
    yard.wait(LEASE_MS - 1)
    assert yard.words(labels) == {"a": "running", "b": "running"}
    assert isinstance(yard.renew("rack1", leases["a"]), Renewed)
    yard.wait(GUARD_MS + 1)
    assert yard.words(labels) == {"a": "running", "b": "waiting"}


def test_the_first_sweep_after_an_outage_ends_no_lease(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0), b=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    yard.start("rack1", labels)
    yard.later(600_000)  # and the beat of this turn has failed, or was ten minutes ago
    assert [yard.do(lambda transaction: apply_timeouts(transaction, 1)) for _ in range(3)] == [1, 1, 0]
    assert yard.do(mark_missing_bots) == 0
    assert yard.words(labels) == {"a": "running", "b": "running"}
    assert {yard.task(id).lease_until_ms for id in labels.values()} == {yard.now + LEASE_MS}
    yard.wait(LOST_MS)
    assert yard.words(labels) == {"a": "error", "b": "error"}


def test_the_first_look_after_an_outage_marks_no_bot_as_missing(yard: Grounds) -> None:
    yard.sweep()
    yard.wait(MISSING_WITHIN_MS)
    yard.hello("rack1")
    yard.later(600_000)
    assert yard.do(mark_missing_bots) == 0
    yard.wait(MISSING_WITHIN_MS + SWEEP_MS)
    assert yard.bot_events("rack1") == ["connected", "missing"]


def test_a_late_sweep_is_no_outage(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    yard.claim("rack1")
    yard.wait(LOST_MS - OUTAGE_MS)
    yard.later(OUTAGE_MS)
    yard.sweep()
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_servers_whose_clocks_are_apart_do_not_take_each_other_for_an_outage(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    yard.claim("rack1")
    ahead = OUTAGE_MS - 1
    for _ in range(0, 2 * LOST_MS, SWEEP_MS):
        yard.later(SWEEP_MS // 2)
        yard.sweep()
        yard.later(SWEEP_MS // 2 + ahead)
        yard.sweep()
        yard.later(-ahead)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_clock_that_was_set_back_is_an_outage_and_makes_no_lease_immortal(yard: Grounds) -> None:
    yard.sweep()
    yard.later(-3_600_000)
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    yard.claim("rack1")
    yard.wait(LOST_MS)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


@pytest.mark.parametrize("away_ms", [580_000, 3_600_000])
def test_the_grace_after_an_outage_is_a_full_one_whatever_the_deadline(yard: Grounds, away_ms: int) -> None:
    labels = yard.submit(graph(a=node(deadline="10m"), b=node(deadline="10m")))
    yard.hello("rack1")
    yard.sweep()
    leases = yard.start("rack1", labels)
    yard.later(away_ms)
    yard.sweep()
    assert yard.task(labels["a"]).lease_until_ms == yard.now + LEASE_MS
    # What ended before its deadline, and could only be told now, is not thrown away.
    assert yard.end("rack1", leases["b"]) == Done(labels["b"], State.SUCCESSFUL)
    yard.wait(LOST_MS - 1)
    assert yard.words(labels)["a"] == "running"
    yard.wait(1)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.DEADLINE)


def test_a_server_that_is_started_again_gives_leases_their_full_time_however_short_it_was_away(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    yard.claim("rack1")
    yard.wait(LOST_MS - 2_000)
    yard.later(2_000)
    yard.server = ServerIdentity(began_ms=yard.now)
    yard.sweep()
    assert yard.task(labels["a"]).lease_until_ms == yard.now + LEASE_MS
    yard.wait(LOST_MS - 1)
    assert yard.words(labels) == {"a": "running"}
    yard.wait(1)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


@pytest.mark.parametrize("lease_ms", [2_000, 5_000, 10_000, 20_000, LEASE_MS])
def test_a_server_that_stood_still_for_as_long_as_its_leases_can_bear_loses_none(yard: Grounds, lease_ms: int) -> None:
    yard.lease_ms = lease_ms
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    lease = yard.claim("rack1")[0]
    # A bot renews after a third of its lease: from then on it cannot.
    yard.later(lease_ms // 3)
    yard.sweep()
    yard.later(lease_ms - lease_ms // 3 + GUARD_MS)
    yard.sweep()
    assert yard.words(labels) == {"a": "running"}
    assert isinstance(yard.end("rack1", lease), Done)


def test_another_server_waits_for_the_one_that_a_bot_speaks_to(yard: Grounds) -> None:
    ours, other = ServerIdentity("ours"), ServerIdentity("other")
    yard.server = other
    yard.hello("rack2")
    yard.sweep()
    yard.server = ours
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    lease = yard.claim("rack1")[0]
    yard.server = other
    yard.wait(LOST_MS + 60_000)
    assert yard.words(labels) == {"a": "running"}
    yard.server = ServerIdentity("ours", yard.now)
    yard.sweep()
    yard.server = other
    yard.wait(OUTAGE_MS)
    assert isinstance(yard.end("rack1", lease), Done)


def test_another_server_does_not_wait_for_ever(yard: Grounds) -> None:
    yard.server = ServerIdentity("ours")
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    yard.claim("rack1")
    yard.server = ServerIdentity("other")
    yard.sweep()
    yard.wait(AWAY_MAX_MS - SWEEP_MS)
    assert yard.words(labels) == {"a": "running"}
    yard.wait(SWEEP_MS + GUARD_MS + SWEEP_MS)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_lease_that_was_over_before_its_server_went_away_is_lost(yard: Grounds) -> None:
    yard.server = ServerIdentity("other")
    yard.sweep()
    yard.server = ServerIdentity("ours")
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    yard.claim("rack1")
    for _ in range(0, LOST_MS, SWEEP_MS):
        yard.later(SWEEP_MS)
        yard.do(heartbeat)
    yard.server = ServerIdentity("other")
    yard.later(OUTAGE_MS + 1)
    yard.sweep()
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_bot_that_speaks_to_another_server_is_judged_by_that_one(yard: Grounds) -> None:
    yard.server = ServerIdentity("ours")
    labels = yard.submit(graph(a=node(retries=0)))
    yard.hello("rack1")
    yard.sweep()
    lease = yard.claim("rack1")[0]
    yard.server = ServerIdentity("other")
    yard.sweep()
    yard.renew("rack1", lease)
    yard.wait(LOST_MS)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_slice_that_waits_too_long_gives_way_to_the_next_and_the_last_one_to_an_error(yard: Grounds) -> None:
    slices = [
        {"dimensions": {"pool": "lab"}, "expires": "10s", "wait_for_capacity": True},
        {"dimensions": {"pool": "gone"}, "expires": "10s"},
        {"dimensions": {"pool": "default"}, "expires": "20s"},
    ]
    labels = yard.submit(graph(a=node(slices=slices)))
    first = yard.task(labels["a"]).queue
    yard.wait(10_000)
    task = yard.task(labels["a"])
    assert (str(task.state), task.life.slice_index) == ("waiting", 2)  # nobody could serve the one between
    assert task.queue != first
    assert task.due_ms == yard.now + 20_000
    yard.wait(20_000)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.EXPIRED)


def test_a_task_on_its_next_slice_is_served_by_another_bot(yard: Grounds) -> None:
    slices = [
        {"dimensions": {"pool": "lab"}, "expires": "10s", "wait_for_capacity": True},
        {"dimensions": {"pool": "default"}},
    ]
    labels = yard.submit(graph(a=node(slices=slices)))
    yard.hello("rack1")
    assert yard.claim("rack1") == ()
    yard.wait(10_000)
    lease = yard.claim("rack1")[0]
    assert (lease.task, lease.slice_index) == (labels["a"], 1)
    yard.end("rack1", lease)
    assert yard.verdict(labels) == "finished"


def test_a_retry_without_a_bot_ends_with_the_loss_as_its_reason(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(expires="60s")))
    yard.hello("rack1")
    yard.sweep()
    yard.claim("rack1")
    yard.wait(LOST_MS + 60_000)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


@pytest.mark.parametrize("state", ["unscheduled", "blocked", "pending", "waiting", "running", "stopping"])
def test_a_deadline_ends_a_task_wherever_it_is(yard: Grounds, state: str) -> None:
    held: dict[str, Any] = {"mutexes": [{"key": "repo"}]} if state == "pending" else {}  # no pass lets it in
    after = ["first"] if state in {"unscheduled", "blocked"} else []
    labels = yard.submit(graph(first=node(dimensions={"pool": "lab"}), a=node(*after, deadline="30s", **held)))
    yard.hello("rack1")
    yard.sweep()
    if state == "blocked":
        yard.cancel(labels["first"])
    leases = yard.claim("rack1") if state in {"running", "stopping"} else ()
    if state == "stopping":
        yard.cancel(labels["a"])
    assert yard.words(labels)["a"] == state
    yard.wait((LOST_MS if leases else 30_000) - 2)
    assert yard.words(labels)["a"] == state  # while a process may live there is no error
    yard.wait(2)
    expected = (State.CANCELED, Reason.ASKED) if state == "stopping" else (State.ERROR, Reason.DEADLINE)
    assert yard.why(labels["a"]) == expected
    assert yard.task(labels["a"]).due_ms is None


def test_a_bot_that_ends_a_task_at_its_deadline_is_believed_at_once(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(deadline="30s", reruns=3, retries=3)))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.later(30_000)
    assert yard.end("rack1", lease, Signal.DEADLINE) == Done(labels["a"], State.ERROR)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.DEADLINE)
    life = yard.task(labels["a"]).life
    assert (life.attempt, life.reruns_used, life.retries_used) == (1, 0, 0)
    assert yard.end("rack1", lease, Signal.DEADLINE) == Done(labels["a"], State.ERROR, echo=True)


def test_what_is_lost_with_its_bot_past_the_deadline_is_not_tried_again(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(deadline="30s", retries=3)))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.later(30_000)
    assert yard.end("rack1", lease, Signal.LOSE) == Done(labels["a"], State.ERROR)
    assert yard.why(labels["a"]) == (State.ERROR, Reason.DEADLINE)


def test_a_deadline_counts_as_a_failure_for_dependents(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(deadline="30s", reruns=3), b=node("a"), page=node(failure=["a"])))
    yard.wait(30_000)
    assert yard.words(labels) == {"a": "error", "b": "blocked", "page": "waiting"}


def test_a_start_that_is_put_off_begins_on_time(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(not_before="30s"), b=node("a")))
    yard.hello("rack1")
    yard.wait(29_999, awake=["rack1"])
    assert yard.words(labels)["a"] == "pending"
    yard.wait(1, awake=["rack1"])
    assert yard.run("rack1", labels) == ["a"]


def test_a_start_that_is_put_off_and_contends_is_left_to_a_pass(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(not_before="30s", mutexes=[{"key": "repo"}])))
    with yard.store.write() as repo:
        repo.admission.delete_dirty([number for number, _ in repo.admission.dirty(0, 100)])
    yard.wait(30_000)
    with yard.store.read() as repo:
        assert [task for _, task in repo.admission.dirty(0, 100)] == [labels["a"]]
    assert yard.words(labels) == {"a": "pending"}
    assert yard.sweep() == 0


def test_every_page_of_what_is_due_is_another_one(yard: Grounds) -> None:
    labels = yard.submit(graph(**{f"t{place}": node(deadline="10s") for place in range(5)}))
    yard.later(10_000)
    dealt = [yard.do(lambda transaction: apply_timeouts(transaction, 2)) for _ in range(4)]
    assert dealt == [2, 2, 1, 0]
    assert yard.census(labels) == {"error": 5}


def test_what_is_still_being_loaded_is_left_alone(yard: Grounds) -> None:
    late = yard.prepared(graph(a=node(deadline="10s")))

    def load(transaction: object) -> None:
        loading = begin(transaction, late)  # type: ignore[arg-type]
        rows = late.new_tasks.rows(slice(None), loading.queues, yard.now)  # type: ignore[union-attr]
        transaction.repo.tasks.add(rows.tasks)  # type: ignore[attr-defined]

    yard.do(load)
    yard.later(10_000)
    assert yard.sweep() == 1
    task = yard.task(late.new_tasks.ids["a"])
    assert (str(task.state), task.due_ms) == ("unscheduled", yard.now + SWEEP_MS)
    assert yard.sweep() == 0


def test_a_silent_bot_is_noticed_once(yard: Grounds) -> None:
    yard.sweep()
    yard.wait(MISSING_WITHIN_MS)
    yard.hello("rack1")
    yard.hello("rack2")
    yard.wait(LOST_MS, awake=["rack2"])
    assert yard.bot_events("rack1") == ["connected"]
    yard.wait(SWEEP_MS, awake=["rack2"])
    assert (yard.bot_events("rack1"), yard.bot_events("rack2")) == (["connected", "missing"], ["connected"])
    yard.poll("rack1", 0)
    yard.wait(MISSING_WITHIN_MS + 1)
    assert yard.bot_events("rack1") == ["connected", "missing", "missing"]


@pytest.mark.parametrize("phase_ms", [0, 1, SWEEP_MS // 2, SWEEP_MS - 1])
def test_a_silent_bot_is_marked_missing_within_seventy_seconds(yard: Grounds, phase_ms: int) -> None:
    yard.sweep()
    yard.wait(MISSING_WITHIN_MS)
    yard.hello("rack1")
    heard = yard.now
    yard.later(phase_ms)
    while yard.bot_events("rack1") == ["connected"]:
        assert yard.now <= heard + MISSING_WITHIN_MS
        yard.sweep()
        yard.later(SWEEP_MS)
    marked = yard.now - SWEEP_MS
    assert LOST_MS < marked - heard <= 70_000


def test_only_a_live_bot_is_capacity(yard: Grounds) -> None:
    slices = [{"dimensions": {"pool": "lab"}, "wait_for_capacity": False}, {"dimensions": {"pool": "default"}}]
    yard.sweep()
    yard.wait(MISSING_WITHIN_MS)
    yard.hello("lab1", pool="lab")
    yard.wait(LOST_MS)

    def chosen() -> int:
        return yard.task(yard.submit(graph(a=node(slices=slices)))["a"]).life.slice_index

    assert chosen() == 0
    yard.wait(SWEEP_MS)
    assert (yard.bot_events("lab1"), chosen()) == (["connected", "missing"], 1)
    yard.poll("lab1", 0)
    assert chosen() == 0
    yard.goodbye("lab1")
    assert chosen() == 1


def test_no_bot_is_missing_because_the_service_was_down(yard: Grounds) -> None:
    yard.sweep()
    yard.wait(MISSING_WITHIN_MS)
    yard.hello("rack1")
    yard.later(3_600_000)
    yard.wait(LOST_MS - SWEEP_MS)
    assert yard.bot_events("rack1") == ["connected"]
    yard.wait(3 * SWEEP_MS)
    assert yard.bot_events("rack1") == ["connected", "missing"]


def test_a_task_that_was_lost_and_ended_elsewhere_is_done(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.hello("rack2")
    yard.sweep()
    yard.claim("rack1")
    yard.wait(LOST_MS, awake=["rack2"])
    assert yard.end("rack2", yard.claim("rack2")[0]) == Done(labels["a"], State.SUCCESSFUL)
    assert yard.verdict(labels) == "finished"
