"""Care of bots: failures in a row, poison tasks, bots that are forgotten or deleted, old programs."""

import pytest

from taskyard.core.attempt_policy import POISON_BOTS
from taskyard.core.fleet import BOT_VERSION_MIN, FAILURES_MAX, GUARD_MS, LEASE_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Millis, Reason, Signal, State
from taskyard.lifecycle import bot_care
from taskyard.lifecycle.bot_sessions import hello
from taskyard.lifecycle.commands import Code, Hello, Refusal
from taskyard.store.repo.bots import BotRecord
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import LifecycleHarness

LOST_MS = LEASE_MS + GUARD_MS


def bot(harness: LifecycleHarness, name: str) -> BotRecord:
    with harness.store.read() as repo:
        return repo.bots.read([name])[name]


def come(
    harness: LifecycleHarness, name: str, pool: str = "default", session: str = "s1", version: str = ""
) -> Refusal | None:
    dimensions = canonical({"id": name, "pool": pool})
    (answer,) = harness.do(lambda transaction: hello(transaction, [Hello(name, session, dimensions, version=version)]))
    assert not isinstance(answer, tuple), "it adopts nothing"
    return answer


def lose(harness: LifecycleHarness, name: str) -> None:
    """Let a bot take a task, and report that it is lost."""
    harness.submit(graph(a=node(retries=0)))
    (lease,) = harness.claim(name)
    harness.end(name, lease, Signal.LOSE)


def forget(harness: LifecycleHarness, before: Millis) -> int:
    with harness.store.read() as repo:
        bots = [bot for bot, _ in repo.retention.bots("", 500)]
    return harness.do(lambda transaction: bot_care.forget_dead_bots(transaction, bots, before, 500))


def delete(harness: LifecycleHarness) -> Refusal | None:
    return harness.do(lambda transaction: bot_care.delete_bot(transaction, "rack1", "ann"))


def test_a_bot_that_loses_what_it_runs_again_and_again_is_quarantined_until_an_admin_trusts_it(
    harness: LifecycleHarness,
) -> None:
    harness.hello("rack1")
    for failures in range(1, FAILURES_MAX):
        lose(harness, "rack1")
        assert (bot(harness, "rack1").failures, bot(harness, "rack1").facts.quarantined) == (failures, None)
        harness.advance(LOST_MS + 1)
    lose(harness, "rack1")
    assert "5 times in a row" in (bot(harness, "rack1").facts.quarantined or "")
    assert harness.bot_events("rack1")[-1] == "quarantined"
    harness.submit(graph(a=node()))
    assert harness.claim("rack1") == ()


def test_losses_at_about_the_same_time_are_one_failure(harness: LifecycleHarness) -> None:
    harness.hello("rack1")
    lose(harness, "rack1")
    harness.advance(LOST_MS - 10)
    lose(harness, "rack1")
    assert bot(harness, "rack1").failures == 1


@pytest.mark.parametrize("signal", [Signal.SUCCEED, Signal.FAIL])
def test_an_attempt_that_ends_itself_begins_the_count_anew(harness: LifecycleHarness, signal: Signal) -> None:
    harness.hello("rack1")
    lose(harness, "rack1")
    harness.submit(graph(a=node()))
    (lease,) = harness.claim("rack1")
    harness.end("rack1", lease, signal, exit_code=None if signal is Signal.SUCCEED else 1)
    assert bot(harness, "rack1").failures == 0


def test_a_lease_that_runs_out_and_a_restart_are_failures_and_a_goodbye_is_none(harness: LifecycleHarness) -> None:
    for name in ("silent", "restarted", "leaving"):
        come(harness, name, session=f"{name}/1")
        harness.submit(graph(a=node(dimensions={"pool": "default", "id": name})))
        harness.claim(name, session=f"{name}/1")
    come(harness, "restarted", session="restarted/2")
    harness.goodbye("leaving", "leaving/1")
    harness.wait(LOST_MS + 10_000)
    assert {name: bot(harness, name).failures for name in ("silent", "restarted", "leaving")} == {
        "silent": 1,
        "restarted": 1,
        "leaving": 0,
    }


def test_a_task_that_loses_one_bot_after_the_other_is_not_tried_again_whatever_its_retries(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(graph(a=node(retries=100)))
    for number in range(1, POISON_BOTS + 1):
        assert harness.states(labels) == {"a": State.WAITING}
        harness.hello(f"rack{number}")
        (lease,) = harness.claim(f"rack{number}")
        harness.end(f"rack{number}", lease, Signal.LOSE)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.POISON)
    harness.rerun(labels["a"])
    assert harness.states(labels) == {"a": State.WAITING}, "a person may try it again"


def test_one_bot_that_is_lost_again_and_again_makes_no_task_poison(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=100)))
    harness.hello("rack1")
    for _ in range(POISON_BOTS + 1):
        (lease,) = harness.claim("rack1")
        harness.end("rack1", lease, Signal.LOSE)
        harness.do(lambda transaction: bot_care.forget_failures(transaction, ["rack1"]))
    assert harness.states(labels) == {"a": State.WAITING}


def test_what_is_missing_is_no_fault_of_the_bot_and_is_not_tried_again(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=100)))
    harness.hello("rack1")
    (lease,) = harness.claim("rack1")
    harness.end("rack1", lease, Signal.LOSE, reason=Reason.MISSING)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.MISSING)
    assert bot(harness, "rack1").failures == 0
    harness.rerun(labels["a"])
    assert harness.states(labels) == {"a": State.WAITING}, "a person may try it again"
    (lease,) = harness.claim("rack1")
    harness.cancel(labels["a"])
    harness.end("rack1", lease, Signal.LOSE, reason=Reason.MISSING)
    assert harness.why(labels["a"]) == (State.CANCELED, Reason.ASKED)


def test_what_a_bot_cannot_run_goes_elsewhere_and_counts_against_the_bot(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=1)))
    for name in ("rack1", "rack2"):
        harness.hello(name)
        (lease,) = harness.claim(name)
        harness.end(name, lease, Signal.LOSE, reason=Reason.BOT_FAILED)
        assert bot(harness, name).failures == 1
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_FAILED)


def test_dead_bots_are_forgotten_and_their_names_stay_with_their_pools(harness: LifecycleHarness) -> None:
    for name in ("gone", "missed", "alive"):
        come(harness, name, "lab")
    harness.goodbye("gone")
    harness.wait(LOST_MS + 10_000, awake=["alive"])
    before = harness.now
    assert forget(harness, before) > 0
    assert forget(harness, before) == 0
    with harness.store.read() as repo:
        assert set(repo.bots.read(["gone", "missed", "alive"])) == {"alive"}
        assert repo.bots.events("gone", 9) == []
    answer = come(harness, "gone", "other")
    assert isinstance(answer, Refusal)
    assert answer.code is Code.FORBIDDEN
    assert come(harness, "gone", "lab") is None
    with harness.store.read() as repo:
        assert repo.bots.bound_names(["gone", "missed"]) == {"missed": "lab"}


def test_a_bot_that_holds_a_task_or_was_seen_lately_is_not_deleted(harness: LifecycleHarness) -> None:
    harness.submit(graph(a=node()))
    harness.hello("holder")
    harness.claim("holder")
    harness.hello("young")
    harness.goodbye("young")
    with harness.store.write() as repo:
        repo.bots.mark_missing(["holder"])
    assert forget(harness, harness.now) == 0


def test_an_admin_deletes_a_dead_bot_with_its_name(harness: LifecycleHarness) -> None:
    come(harness, "rack1", "lab")
    alive = delete(harness)
    assert isinstance(alive, Refusal)
    assert (alive.code, alive.text) == (
        Code.CONFLICT,
        "cannot delete the bot rack1: the bot is alive; end it first",
    )
    harness.goodbye("rack1")
    assert delete(harness) is None
    unknown = delete(harness)
    assert isinstance(unknown, Refusal)
    assert unknown.code is Code.NOT_FOUND
    assert come(harness, "rack1", "other") is None


def test_an_admin_frees_the_name_of_a_forgotten_bot_by_deleting_it(harness: LifecycleHarness) -> None:
    come(harness, "rack1", "lab")
    harness.goodbye("rack1")
    harness.advance(1)
    forget(harness, harness.now)
    assert delete(harness) is None
    assert come(harness, "rack1", "other") is None


def test_an_old_bot_is_refused_and_an_unreadable_version_is_accepted(harness: LifecycleHarness) -> None:
    answer = come(harness, "rack1", version="0.0.9")
    assert isinstance(answer, Refusal)
    assert answer.code is Code.OUTDATED
    assert answer.text == (
        f"bot rack1 has version 0.0.9, and this server needs {BOT_VERSION_MIN} or newer: "
        "update taskyard on the machine of the bot, and start it again"
    )
    for version in ("", "nightly", BOT_VERSION_MIN, f"{BOT_VERSION_MIN}.dev3", "99.1"):
        assert come(harness, "rack2", version=version) is None, version


def test_an_attempt_knows_what_its_bot_was_when_it_began(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node()))
    for version in ("1.0", "1.1"):
        assert come(harness, "rack1", version=version) is None
        harness.claim("rack1")
    with harness.store.read() as repo:
        kept = [repo.attempts.of(id)[0].snapshot for id in labels.values()]
        found = repo.bots.snapshots([id for id in kept if id is not None])
    assert sorted(one.version for one in found.values()) == ["1.0", "1.1"]
    assert {one.dimensions for one in found.values()} == {canonical({"id": "rack1", "pool": "default", "slots": "1"})}
    harness.advance(1)
    assert harness.do(lambda transaction: bot_care.purge_snapshots(transaction, harness.now, 500)) == 1
