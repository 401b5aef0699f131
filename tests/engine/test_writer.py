"""Commands gather, are carried out in one transaction, and are answered after it."""

from collections import Counter
from threading import Thread

import pytest

from taskyard.core.states import Signal, State
from taskyard.engine import writer as loops
from taskyard.engine.errors import Failed, Overloaded, Unavailable
from taskyard.engine.failpoints import Boundary, arm
from taskyard.engine.writer import GONE_MAX_MS, RETRIES_MAX
from taskyard.lifecycle.commands import Cancel, Code, Done, Goodbye, Poll, Refusal
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.queries import DuplicateKey, StoreUnavailable, TransactionConflict
from tests.engine.harness import WAIT_S, EngineHarness, graph, report, task, wait_until, wide


def test_an_answered_command_is_stored(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=task()))
    harness.hello()
    seen: list[State] = []
    asked = harness.engine.writer_thread.put(harness.poll_command())
    asked.add_done_callback(lambda _: seen.append(harness.states(labels)["a"]))
    assert asked.result(WAIT_S).leases[0].task == labels["a"]
    wait_until(lambda: bool(seen))
    assert seen == [State.RUNNING]


def test_commands_that_arrive_together_share_a_transaction(harness: EngineHarness) -> None:
    labels = harness.submit(wide(40))
    harness.hello()
    before = harness.engine.commits
    with harness.writer_blocked():
        asked = [harness.engine.writer_thread.put(harness.poll_command()) for _ in range(40)]
    leases = [lease for each in asked for lease in each.result(WAIT_S).leases]
    assert {lease.task for lease in leases} == set(labels.values())
    assert harness.engine.commits - before == 2  # the one that held them up, and theirs


def test_a_large_batch_is_split_into_several_transactions(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "TOUCHED_MAX", 10)
    harness.submit(wide(40))
    harness.hello()
    before = harness.engine.commits
    with harness.writer_blocked():
        asked = [harness.engine.writer_thread.put(harness.poll_command(want=4)) for _ in range(8)]
    assert sum(len(each.result(WAIT_S).leases) for each in asked) == 32
    assert harness.engine.commits - before == 1 + 4  # two polls that touch five tasks each fit


def batches(harness: EngineHarness, commands: int) -> list[int]:
    """Let many commands of one task each gather; return how many shared each transaction."""
    done: list[int] = []
    with harness.writer_blocked():
        before = harness.engine.commits
        asked = [harness.engine.writer_thread.put(Goodbye("nobody", "s1")) for _ in range(commands)]
        for each in asked:
            each.add_done_callback(lambda _: done.append(harness.engine.commits - before - 1))
    for each in asked:
        assert each.result(WAIT_S) is None
    wait_until(lambda: len(done) == commands)
    return list(Counter(done).values())


def test_a_batch_is_as_large_as_fits_into_its_time(
    sqlite_harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = sqlite_harness
    monkeypatch.setattr(loops, "TOUCHED_MIN", 2)
    assert batches(harness, 300) == [loops.BATCH_MAX, 300 - loops.BATCH_MAX]
    harness.store.meanwhile = lambda: harness.clock.advance(8 * loops.BATCH_MAX_MS)
    # Each takes eight times as long as it should, whatever is in it: down to the least, and no further.
    assert batches(harness, 64) == [64]
    assert batches(harness, 19) == [8, 2, 2, 2, 2, 2, 1]
    harness.store.meanwhile = lambda: None
    assert batches(harness, 31) == [2, 4, 8, 16, 1]
    assert batches(harness, 64) == [32, 32]


def test_a_small_batch_that_is_slow_makes_no_larger_one_smaller_than_the_least(sqlite_harness: EngineHarness) -> None:
    sqlite_harness.store.meanwhile = lambda: sqlite_harness.clock.advance(60_000)  # a disk that hangs
    assert batches(sqlite_harness, 1) == [1]
    sqlite_harness.store.meanwhile = lambda: None
    assert batches(sqlite_harness, 40) == [loops.TOUCHED_MIN, 24]


def test_the_longest_transaction_is_remembered(sqlite_harness: EngineHarness) -> None:
    harness = sqlite_harness
    assert harness.engine.longest_ms == 0
    for took in (30, 80, 50):
        harness.engine.transact(lambda _: harness.clock.advance(took))  # noqa: B023 - it is carried out before the next
    assert harness.engine.longest_ms == 80
    harness.store.before = [TransactionConflict("a deadlock")]
    harness.engine.transact(lambda _: None)
    assert harness.engine.longest_ms == 80  # a pause between two tries is no transaction


def test_a_bad_command_among_good_ones_is_refused_alone(harness: EngineHarness) -> None:
    harness.submit(wide(2))
    harness.hello()
    before = harness.engine.commits
    with harness.writer_blocked():
        good = [harness.engine.writer_thread.put(harness.poll_command()) for _ in range(2)]
        bad = harness.engine.writer_thread.put(Poll("nobody", "s1", "p", want=1))
    assert [len(each.result(WAIT_S).leases) for each in good] == [1, 1]
    assert bad.result(WAIT_S).code is Code.NOT_FOUND
    assert harness.engine.commits - before == 2


def test_a_bug_in_one_command_fails_that_one_alone(harness: EngineHarness, caplog: pytest.LogCaptureFixture) -> None:
    labels = harness.submit(wide(3))
    harness.hello()
    first, second, third = harness.claim(want=3)
    with harness.writer_blocked():
        good = harness.engine.writer_thread.put(harness.poll_command(0, reports=(report(first),)))
        bad = harness.engine.writer_thread.put(harness.poll_command(0, reports=(report(second, result='"\ud800"'),)))
        late = harness.engine.writer_thread.put(harness.poll_command(0, reports=(report(third, Signal.FAIL),)))
    assert good.result(WAIT_S).reports == (Done(first.task, State.SUCCESSFUL),)
    assert late.result(WAIT_S).reports == (Done(third.task, State.FAILED),)
    with pytest.raises(Failed) as failed:
        bad.result(WAIT_S)
    assert isinstance(failed.value.__cause__, UnicodeDecodeError)
    assert "Poll failed" in caplog.text
    states = harness.states(labels)
    assert sorted(states.values()) == [State.FAILED, State.RUNNING, State.SUCCESSFUL]
    assert harness.end(second) == Done(second.task, State.SUCCESSFUL)


def test_the_writer_goes_on_whatever_happens_to_it(
    sqlite_harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite_harness.hello()
    labels = sqlite_harness.submit(wide(1))

    def act(_: Transaction) -> None:
        raise SystemExit("this runs on the thread of the writer")

    with pytest.raises(Unavailable, match="may or may not"):
        sqlite_harness.engine.transact(act)
    assert "the writer goes on" in caplog.text
    assert [lease.task for lease in sqlite_harness.claim()] == [labels["t0"]]


def test_a_value_that_is_no_command_fails_before_it_is_queued(sqlite_harness: EngineHarness) -> None:
    sqlite_harness.hello()
    labels = sqlite_harness.submit(wide(1))
    with pytest.raises(TypeError):
        sqlite_harness.engine.writer_thread.put(Poll("b1", "s1", "p", want=None))  # type: ignore[arg-type]
    assert [lease.task for lease in sqlite_harness.claim()] == [labels["t0"]]


def test_text_that_postgresql_refuses_fails_alone(postgres_url: str) -> None:
    with EngineHarness(postgres_url) as harness:
        harness.submit(wide(2))
        harness.hello()
        first, second = harness.claim(want=2)
        with harness.writer_blocked():
            bad = harness.engine.writer_thread.put(harness.poll_command(0, reports=(report(first, result='"\0"'),)))
            good = harness.engine.writer_thread.put(harness.poll_command(0, reports=(report(second),)))
        assert good.result(WAIT_S).reports == (Done(second.task, State.SUCCESSFUL),)
        with pytest.raises(Failed):
            bad.result(WAIT_S)


def test_a_function_that_loses_races_is_retried(sqlite_harness: EngineHarness) -> None:
    tries = iter([TransactionConflict("one"), TransactionConflict("two"), StoreUnavailable("three"), None])

    def act(_: Transaction) -> str:
        fault = next(tries)
        if fault is not None:
            raise fault
        return "done"

    assert sqlite_harness.engine.transact(act) == "done"


def test_commands_that_lose_a_race_are_tried_again_together(harness: EngineHarness) -> None:
    harness.submit(wide(2))
    harness.hello()
    harness.store.before = [TransactionConflict("a deadlock")] * RETRIES_MAX
    assert len(harness.claim(want=2)) == 2
    assert harness.store.before == []


def test_commands_that_lose_every_race_together_are_tried_alone(harness: EngineHarness) -> None:
    harness.submit(wide(2))
    harness.hello()
    harness.store.before = [TransactionConflict("a deadlock")] * (RETRIES_MAX + 1)
    assert len(harness.claim(want=2)) == 2


def test_a_command_that_loses_every_race_is_unavailable(sqlite_harness: EngineHarness) -> None:
    sqlite_harness.store.before = [TransactionConflict("a deadlock")] * (2 * RETRIES_MAX + 2)
    with pytest.raises(Unavailable):
        sqlite_harness.hello()
    sqlite_harness.hello()


def test_a_short_outage_of_the_database_is_waited_for(harness: EngineHarness) -> None:
    harness.hello()
    harness.store.before = [StoreUnavailable("it restarts")] * 5
    labels = harness.submit(graph(a=task()))
    assert harness.states(labels) == {"a": State.WAITING}


def test_a_long_outage_of_the_database_is_unavailable(sqlite_harness: EngineHarness) -> None:
    began = sqlite_harness.clock.now()
    sqlite_harness.store.before = [StoreUnavailable("the disk is full")] * 1_000
    with pytest.raises(Unavailable):
        sqlite_harness.hello()
    assert GONE_MAX_MS <= sqlite_harness.clock.now() - began <= 2 * GONE_MAX_MS
    sqlite_harness.store.before.clear()
    sqlite_harness.hello()
    assert sqlite_harness.claim() == ()


def test_after_a_commit_whose_reply_was_lost_every_command_is_answered(harness: EngineHarness) -> None:
    cut = StoreUnavailable("the line was cut")
    harness.store.after = [cut]
    labels = harness.submit(wide(1))
    harness.store.after = [cut]
    harness.hello()
    harness.store.after = [cut]
    (lease,) = harness.claim()
    harness.store.after = [cut]
    assert harness.end(lease) == Done(lease.task, State.SUCCESSFUL, echo=True)
    harness.store.after = [cut]
    assert harness.engine.cancel(Cancel(graph=labels.graph)) == harness.engine.cancel(Cancel(graph=labels.graph))
    with harness.store.read() as repo:
        assert [(row.number, row.signal) for row in repo.attempts.of(lease.task)] == [(1, Signal.SUCCEED)]
        assert len(repo.bots.events("b1", 9)) == 1


@pytest.mark.parametrize("side", ["before", "after"])
def test_answers_are_right_after_every_failure_around_a_commit(harness: EngineHarness, side: str) -> None:
    harness.hello()
    arm(f"batch.{side}:raise@1")
    try:
        labels = harness.submit(graph(a=task()))
        assert harness.states(labels) == {"a": State.WAITING}
        arm(f"batch.{side}:raise@1")
        (lease,) = harness.claim()
        assert lease.attempt == 1
        arm(f"batch.{side}:raise@1")
        done = harness.end(lease)
    finally:
        arm(None)
    assert done == Done(lease.task, State.SUCCESSFUL, echo=side == "after")


def test_a_full_queue_refuses_commands(sqlite_harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "QUEUE_MAX", 10)
    with sqlite_harness.writer_blocked():
        accepted = [sqlite_harness.engine.writer_thread.put(Goodbye("nobody", "s1")) for _ in range(10)]
        with pytest.raises(Overloaded):
            sqlite_harness.engine.writer_thread.put(Goodbye("nobody", "s1"))
    assert [each.result(WAIT_S) for each in accepted] == [None] * 10
    sqlite_harness.hello()


def test_polls_do_not_wait_behind_pages_of_a_large_graph(sqlite_harness: EngineHarness) -> None:
    harness = sqlite_harness
    harness.hello()
    order: list[str] = []
    with harness.writer_blocked():
        pages = [Thread(target=harness.engine.transact, args=(lambda _: order.append("page"),)) for _ in range(3)]
        for thread in pages:
            thread.start()
        wait_until(lambda: harness.engine.writer_thread.waiting == 3)
        asked = harness.engine.writer_thread.put(harness.poll_command())
        asked.add_done_callback(lambda _: order.append("poll"))
    for thread in pages:
        thread.join(WAIT_S)
    assert asked.result(WAIT_S).leases == ()
    assert order == ["poll", "page", "page", "page"]


def test_a_command_canceled_in_time_does_not_run(sqlite_harness: EngineHarness) -> None:
    labels = sqlite_harness.submit(graph(a=task()))
    sqlite_harness.hello()
    with sqlite_harness.writer_blocked():
        asked = sqlite_harness.engine.writer_thread.put(sqlite_harness.poll_command())
        assert asked.cancel()
    sqlite_harness.hello()
    assert sqlite_harness.states(labels) == {"a": State.WAITING}


def test_a_stop_answers_what_was_accepted_and_takes_nothing_more(sqlite_url: str) -> None:
    harness = EngineHarness(sqlite_url)
    labels = harness.submit(wide(5))
    harness.hello()
    with harness.writer_blocked():
        asked = [harness.engine.writer_thread.put(harness.poll_command()) for _ in range(5)]
        stopping = Thread(target=harness.engine.writer_thread.stop)
        stopping.start()
        wait_until(lambda: harness.engine.writer_thread._closed)
        with pytest.raises(Unavailable):
            harness.engine.writer_thread.put(harness.poll_command())
    stopping.join(WAIT_S)
    answers = [each.result(WAIT_S) for each in asked]
    assert all(isinstance(one, PollOutcome) for one in answers)
    assert {lease.task for one in answers for lease in one.leases} == set(labels.values())
    harness.close()
    harness.engine.stop()


def test_a_stop_that_takes_too_long_fails_what_still_waits(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "STOP_MAX_S", 0)
    harness = EngineHarness(sqlite_url)
    with harness.writer_blocked():
        asked = harness.engine.writer_thread.put(Goodbye("nobody", "s1"))
        assert not harness.engine.writer_thread.stop()
    with pytest.raises(Unavailable):
        asked.result(WAIT_S)
    harness.engine.writer_thread._thread.join(WAIT_S)
    harness.close()


def test_a_duplicate_key_is_raised_as_it_is(sqlite_harness: EngineHarness) -> None:
    def act(_: Transaction) -> None:
        raise DuplicateKey("a key")

    with pytest.raises(DuplicateKey):
        sqlite_harness.engine.transact(act, Boundary.OTHER)


def test_a_command_with_an_idempotency_key_runs_once(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=task(), b=task()))
    first = harness.engine.cancel(Cancel(task=labels["a"], key="k"))
    assert first == Done(labels["a"], State.CANCELED)
    assert harness.engine.cancel(Cancel(task=labels["a"], key="k")) == first
    other = harness.engine.cancel(Cancel(task=labels["b"], key="k"))
    assert isinstance(other, Refusal)
    assert other.code is Code.CONFLICT
