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
from tests.engine.rig import SOON_S, Rig, graph, report, soon, task, wide


def test_an_answered_command_is_stored(rig: Rig) -> None:
    labels = rig.submit(graph(a=task()))
    rig.hello()
    seen: list[State] = []
    asked = rig.engine.writer_thread.put(rig.wish())
    asked.add_done_callback(lambda _: seen.append(rig.states(labels)["a"]))
    assert asked.result(SOON_S).leases[0].task == labels["a"]
    soon(lambda: bool(seen))
    assert seen == [State.RUNNING]


def test_commands_that_arrive_together_share_a_transaction(rig: Rig) -> None:
    labels = rig.submit(wide(40))
    rig.hello()
    before = rig.engine.commits
    with rig.held_up():
        asked = [rig.engine.writer_thread.put(rig.wish()) for _ in range(40)]
    leases = [lease for each in asked for lease in each.result(SOON_S).leases]
    assert {lease.task for lease in leases} == set(labels.values())
    assert rig.engine.commits - before == 2  # the one that held them up, and theirs


def test_a_large_batch_is_split_into_several_transactions(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "TOUCHED_MAX", 10)
    rig.submit(wide(40))
    rig.hello()
    before = rig.engine.commits
    with rig.held_up():
        asked = [rig.engine.writer_thread.put(rig.wish(want=4)) for _ in range(8)]
    assert sum(len(each.result(SOON_S).leases) for each in asked) == 32
    assert rig.engine.commits - before == 1 + 4  # two polls that touch five tasks each fit


def batches(rig: Rig, commands: int) -> list[int]:
    """Have as many commands that touch one task each gather; say how many shared each transaction."""
    done: list[int] = []
    with rig.held_up():
        before = rig.engine.commits
        asked = [rig.engine.writer_thread.put(Goodbye("nobody", "s1")) for _ in range(commands)]
        for each in asked:
            each.add_done_callback(lambda _: done.append(rig.engine.commits - before - 1))
    for each in asked:
        assert each.result(SOON_S) is None
    soon(lambda: len(done) == commands)
    return list(Counter(done).values())


def test_a_batch_is_as_large_as_fits_into_its_time(file_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = file_rig
    monkeypatch.setattr(loops, "TOUCHED_MIN", 2)
    assert batches(rig, 300) == [loops.BATCH_MAX, 300 - loops.BATCH_MAX]
    rig.store.meanwhile = lambda: rig.clock.later(8 * loops.BATCH_MAX_MS)
    # Each takes eight times as long as it should, whatever is in it: down to the least, and no further.
    assert batches(rig, 64) == [64]
    assert batches(rig, 19) == [8, 2, 2, 2, 2, 2, 1]
    rig.store.meanwhile = lambda: None
    assert batches(rig, 31) == [2, 4, 8, 16, 1]
    assert batches(rig, 64) == [32, 32]


def test_a_small_batch_that_is_slow_makes_no_larger_one_smaller_than_the_least(file_rig: Rig) -> None:
    file_rig.store.meanwhile = lambda: file_rig.clock.later(60_000)  # a disk that hangs
    assert batches(file_rig, 1) == [1]
    file_rig.store.meanwhile = lambda: None
    assert batches(file_rig, 40) == [loops.TOUCHED_MIN, 24]


def test_the_longest_transaction_is_remembered(file_rig: Rig) -> None:
    rig = file_rig
    assert rig.engine.longest_ms == 0
    for took in (30, 80, 50):
        rig.engine.transact(lambda _: rig.clock.later(took))  # noqa: B023 - it is carried out before the next
    assert rig.engine.longest_ms == 80
    rig.store.before = [TransactionConflict("a deadlock")]
    rig.engine.transact(lambda _: None)
    assert rig.engine.longest_ms == 80  # a pause between two tries is no transaction


def test_a_bad_command_among_good_ones_is_refused_alone(rig: Rig) -> None:
    rig.submit(wide(2))
    rig.hello()
    before = rig.engine.commits
    with rig.held_up():
        good = [rig.engine.writer_thread.put(rig.wish()) for _ in range(2)]
        bad = rig.engine.writer_thread.put(Poll("nobody", "s1", "p", want=1))
    assert [len(each.result(SOON_S).leases) for each in good] == [1, 1]
    assert bad.result(SOON_S).code is Code.NOT_FOUND
    assert rig.engine.commits - before == 2


def test_a_bug_in_one_command_fails_that_one_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    labels = rig.submit(wide(3))
    rig.hello()
    first, second, third = rig.claim(want=3)
    with rig.held_up():
        good = rig.engine.writer_thread.put(rig.wish(0, reports=(report(first),)))
        bad = rig.engine.writer_thread.put(rig.wish(0, reports=(report(second, result='"\ud800"'),)))
        late = rig.engine.writer_thread.put(rig.wish(0, reports=(report(third, Signal.FAIL),)))
    assert good.result(SOON_S).reports == (Done(first.task, State.SUCCESSFUL),)
    assert late.result(SOON_S).reports == (Done(third.task, State.FAILED),)
    with pytest.raises(Failed) as failed:
        bad.result(SOON_S)
    assert isinstance(failed.value.__cause__, UnicodeDecodeError)
    assert "Poll failed" in caplog.text
    states = rig.states(labels)
    assert sorted(states.values()) == [State.FAILED, State.RUNNING, State.SUCCESSFUL]
    assert rig.end(second) == Done(second.task, State.SUCCESSFUL)


def test_the_writer_goes_on_whatever_happens_to_it(file_rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    file_rig.hello()
    labels = file_rig.submit(wide(1))

    def act(_: Transaction) -> None:
        raise SystemExit("whoever wrote this did not know where it runs")

    with pytest.raises(Unavailable, match="may or may not"):
        file_rig.engine.transact(act)
    assert "the writer goes on" in caplog.text
    assert [lease.task for lease in file_rig.claim()] == [labels["t0"]]


def test_a_value_that_is_no_command_fails_before_it_is_queued(file_rig: Rig) -> None:
    file_rig.hello()
    labels = file_rig.submit(wide(1))
    with pytest.raises(TypeError):
        file_rig.engine.writer_thread.put(Poll("b1", "s1", "p", want=None))  # type: ignore[arg-type]
    assert [lease.task for lease in file_rig.claim()] == [labels["t0"]]


def test_text_that_postgresql_refuses_fails_alone(postgres_url: str) -> None:
    with Rig(postgres_url) as rig:
        rig.submit(wide(2))
        rig.hello()
        first, second = rig.claim(want=2)
        with rig.held_up():
            bad = rig.engine.writer_thread.put(rig.wish(0, reports=(report(first, result='"\0"'),)))
            good = rig.engine.writer_thread.put(rig.wish(0, reports=(report(second),)))
        assert good.result(SOON_S).reports == (Done(second.task, State.SUCCESSFUL),)
        with pytest.raises(Failed):
            bad.result(SOON_S)


def test_a_function_that_loses_races_is_retried(file_rig: Rig) -> None:
    tries = iter([TransactionConflict("one"), TransactionConflict("two"), StoreUnavailable("three"), None])

    def act(_: Transaction) -> str:
        fault = next(tries)
        if fault is not None:
            raise fault
        return "done"

    assert file_rig.engine.transact(act) == "done"


def test_commands_that_lose_a_race_are_tried_again_together(rig: Rig) -> None:
    rig.submit(wide(2))
    rig.hello()
    rig.store.before = [TransactionConflict("a deadlock")] * RETRIES_MAX
    assert len(rig.claim(want=2)) == 2
    assert rig.store.before == []


def test_commands_that_lose_every_race_together_are_tried_alone(rig: Rig) -> None:
    rig.submit(wide(2))
    rig.hello()
    rig.store.before = [TransactionConflict("a deadlock")] * (RETRIES_MAX + 1)
    assert len(rig.claim(want=2)) == 2


def test_a_command_that_loses_every_race_is_unavailable(file_rig: Rig) -> None:
    file_rig.store.before = [TransactionConflict("a deadlock")] * (2 * RETRIES_MAX + 2)
    with pytest.raises(Unavailable):
        file_rig.hello()
    file_rig.hello()


def test_a_short_outage_of_the_database_is_waited_for(rig: Rig) -> None:
    rig.hello()
    rig.store.before = [StoreUnavailable("it restarts")] * 5
    labels = rig.submit(graph(a=task()))
    assert rig.states(labels) == {"a": State.WAITING}


def test_a_long_outage_of_the_database_is_unavailable(file_rig: Rig) -> None:
    began = file_rig.clock.now()
    file_rig.store.before = [StoreUnavailable("the disk is full")] * 1_000
    with pytest.raises(Unavailable):
        file_rig.hello()
    assert GONE_MAX_MS <= file_rig.clock.now() - began <= 2 * GONE_MAX_MS
    file_rig.store.before.clear()
    file_rig.hello()
    assert file_rig.claim() == ()


def test_after_a_commit_whose_reply_was_lost_every_command_is_answered(rig: Rig) -> None:
    cut = StoreUnavailable("the line was cut")
    rig.store.after = [cut]
    labels = rig.submit(wide(1))
    rig.store.after = [cut]
    rig.hello()
    rig.store.after = [cut]
    (lease,) = rig.claim()
    rig.store.after = [cut]
    assert rig.end(lease) == Done(lease.task, State.SUCCESSFUL, echo=True)
    rig.store.after = [cut]
    assert rig.engine.cancel(Cancel(graph=labels.graph)) == rig.engine.cancel(Cancel(graph=labels.graph))
    with rig.store.read() as repo:
        assert [(row.number, row.signal) for row in repo.attempts.of(lease.task)] == [(1, Signal.SUCCEED)]
        assert len(repo.bots.events("b1", 9)) == 1


@pytest.mark.parametrize("side", ["before", "after"])
def test_answers_are_right_after_every_failure_around_a_commit(rig: Rig, side: str) -> None:
    rig.hello()
    arm(f"batch.{side}:raise@1")
    try:
        labels = rig.submit(graph(a=task()))
        assert rig.states(labels) == {"a": State.WAITING}
        arm(f"batch.{side}:raise@1")
        (lease,) = rig.claim()
        assert lease.attempt == 1
        arm(f"batch.{side}:raise@1")
        done = rig.end(lease)
    finally:
        arm(None)
    assert done == Done(lease.task, State.SUCCESSFUL, echo=side == "after")


def test_a_full_queue_refuses_commands(file_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "QUEUE_MAX", 10)
    with file_rig.held_up():
        accepted = [file_rig.engine.writer_thread.put(Goodbye("nobody", "s1")) for _ in range(10)]
        with pytest.raises(Overloaded):
            file_rig.engine.writer_thread.put(Goodbye("nobody", "s1"))
    assert [each.result(SOON_S) for each in accepted] == [None] * 10
    file_rig.hello()


def test_polls_do_not_wait_behind_pages_of_a_large_graph(file_rig: Rig) -> None:
    rig = file_rig
    rig.hello()
    order: list[str] = []
    with rig.held_up():
        pages = [Thread(target=rig.engine.transact, args=(lambda _: order.append("page"),)) for _ in range(3)]
        for thread in pages:
            thread.start()
        soon(lambda: rig.engine.writer_thread.waiting == 3)
        asked = rig.engine.writer_thread.put(rig.wish())
        asked.add_done_callback(lambda _: order.append("poll"))
    for thread in pages:
        thread.join(SOON_S)
    assert asked.result(SOON_S).leases == ()
    assert order == ["poll", "page", "page", "page"]


def test_a_command_canceled_in_time_does_not_run(file_rig: Rig) -> None:
    labels = file_rig.submit(graph(a=task()))
    file_rig.hello()
    with file_rig.held_up():
        asked = file_rig.engine.writer_thread.put(file_rig.wish())
        assert asked.cancel()
    file_rig.hello()
    assert file_rig.states(labels) == {"a": State.WAITING}


def test_a_stop_answers_what_was_accepted_and_takes_nothing_more(sqlite_url: str) -> None:
    rig = Rig(sqlite_url)
    labels = rig.submit(wide(5))
    rig.hello()
    with rig.held_up():
        asked = [rig.engine.writer_thread.put(rig.wish()) for _ in range(5)]
        stopping = Thread(target=rig.engine.writer_thread.stop)
        stopping.start()
        soon(lambda: rig.engine.writer_thread._closed)
        with pytest.raises(Unavailable):
            rig.engine.writer_thread.put(rig.wish())
    stopping.join(SOON_S)
    answers = [each.result(SOON_S) for each in asked]
    assert all(isinstance(one, PollOutcome) for one in answers)
    assert {lease.task for one in answers for lease in one.leases} == set(labels.values())
    rig.close()
    rig.engine.stop()


def test_a_stop_that_takes_too_long_fails_what_still_waits(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "STOP_MAX_S", 0)
    rig = Rig(sqlite_url)
    with rig.held_up():
        asked = rig.engine.writer_thread.put(Goodbye("nobody", "s1"))
        assert not rig.engine.writer_thread.stop()
    with pytest.raises(Unavailable):
        asked.result(SOON_S)
    rig.engine.writer_thread._thread.join(SOON_S)
    rig.close()


def test_a_duplicate_key_is_raised_as_it_is(file_rig: Rig) -> None:
    def act(_: Transaction) -> None:
        raise DuplicateKey("a key")

    with pytest.raises(DuplicateKey):
        file_rig.engine.transact(act, Boundary.OTHER)


def test_a_command_with_an_idempotency_key_runs_once(rig: Rig) -> None:
    labels = rig.submit(graph(a=task(), b=task()))
    first = rig.engine.cancel(Cancel(task=labels["a"], key="k"))
    assert first == Done(labels["a"], State.CANCELED)
    assert rig.engine.cancel(Cancel(task=labels["a"], key="k")) == first
    other = rig.engine.cancel(Cancel(task=labels["b"], key="k"))
    assert isinstance(other, Refusal)
    assert other.code is Code.CONFLICT
