"""Background work leads to the same end by hints alone, by the clock alone, or by both."""

import pytest

from taskyard.core.admission.rules import STAKE_AFTER_MS
from taskyard.core.fleet import SWEEP_MS
from taskyard.core.states import GraphState, Reason, Signal, State
from taskyard.engine import background
from taskyard.engine.background import ANSWERS_STORED_MS, Job
from taskyard.lifecycle.admission.scheduler import AGING_MS
from taskyard.lifecycle.commands import Cancel, Done, Lease, Poll, Renewal, Renewed
from taskyard.lifecycle.failure_handlers import PROPAGATE
from taskyard.lifecycle.poll import PollOutcome
from taskyard.store.queries import StoreUnavailable
from tests.engine.harness import EngineHarness, graph, noop, task
from tests.lifecycle.harness import Labels

#: More dependents than one transaction propagates to.
STAR = 1_100
#: How often a transaction is tried at most while the database is gone, and how long it was gone by then.
GIVES_UP_AFTER = 20
OUTAGE_MS = 120_000
#: A graph that is not done after so many steps never will be.
STEPS_MAX = 400


def document() -> dict[str, object]:
    """All continuations that are still open."""
    leaves = {f"n{number}": noop("root") for number in range(STAR)}
    held = {f"m{number}": task(mutexes=[{"key": "device"}]) for number in range(3)}
    flaky = task() | {"reruns": {"count": 2, "delay": "30s"}}
    late = task(not_before="10m")
    return graph(
        root=task(), **leaves, end=task(*leaves), **held, flaky=flaky, lost=task(), late=late, last=noop("end", "flaky")
    )


def play(harness: EngineHarness, labels: Labels) -> None:
    """Be a bot until the graph is finished: it fails once, and once it forgets what it has."""
    names = {id: label for label, id in labels.items()}
    for _ in range(STEPS_MAX):
        harness.settle()
        leases = harness.claim(want=8)
        for lease in leases:
            act(harness, names[lease.task], lease)
        if harness.graph(labels.graph).state is GraphState.FINISHED:
            return
        if not leases:
            harness.clock.advance(SWEEP_MS)
    raise AssertionError({label: state for label, state in harness.states(labels).items() if state != "successful"})


def act(harness: EngineHarness, label: str, lease: Lease) -> None:
    if label == "lost" and lease.attempt == 1:
        return
    fails = label == "flaky" and lease.attempt == 1
    assert isinstance(harness.end(lease, Signal.FAIL if fails else Signal.SUCCEED), Done)


@pytest.mark.parametrize(
    ("events", "ticks"), [(True, False), (False, True), (True, True)], ids=["hints", "sweeps", "both"]
)
def test_hints_alone_and_sweeps_alone_reach_the_same_end(database_url: str, events: bool, ticks: bool) -> None:
    with EngineHarness(database_url, events, ticks) as harness:
        harness.hello()
        labels = harness.submit(document())
        play(harness, labels)
        lives = {label: task.life for label, task in harness.tasks(labels).items()}
    assert {life.state for life in lives.values()} == {State.SUCCESSFUL}
    tried = {label: (life.attempt, life.reruns_used, life.retries_used) for label, life in lives.items()}
    assert {label: each for label, each in tried.items() if each != (1, 0, 0)} == {
        "flaky": (2, 1, 0),
        "lost": (2, 0, 1),
    }


def test_a_task_is_admitted_as_soon_as_its_mutex_is_free(harness: EngineHarness) -> None:
    harness.hello()
    labels = harness.submit(graph(a=task(mutexes=[{"key": "k"}]), b=task(mutexes=[{"key": "k"}])))
    harness.settle()
    assert harness.states(labels) == {"a": State.WAITING, "b": State.PENDING}
    harness.end(harness.claim()[0])
    harness.settle()
    assert harness.states(labels)["b"] is State.WAITING


def test_a_delayed_start_happens_at_its_moment_and_not_at_the_next_sweep(harness: EngineHarness) -> None:
    harness.settle()
    labels = harness.submit(graph(a=task(not_before="1s")))
    assert harness.settle() == 0
    harness.clock.advance(1_001)
    harness.settle()
    assert harness.states(labels) == {"a": State.WAITING}


def test_a_key_that_is_staked_by_age_is_noticed_without_a_sweep(database_url: str) -> None:
    with EngineHarness(database_url, events=True, ticks=False) as harness:
        harness.hello()
        shared, lab = [{"key": "k", "party": "x"}], {"dimensions": {"pool": "lab"}}
        harness.submit(graph(first=task(mutexes=shared), alone=task(mutexes=[{"key": "k"}])))
        harness.settle()
        labels = harness.submit(graph(away=task(mutexes=shared, **lab)))
        harness.settle()

        def reason() -> Reason:
            with harness.store.read() as repo:
                return repo.admission.holds_of([labels["away"]])[labels["away"]].reason

        assert reason() is Reason.NO_BOT
        harness.clock.advance(STAKE_AFTER_MS + AGING_MS)
        harness.settle()
        assert reason() is Reason.MUTEX


def test_a_busy_bot_gives_the_background_thread_nothing_to_do(harness: EngineHarness) -> None:
    harness.hello()
    harness.settle()
    harness.submit(graph(a=task(), b=task("a")))
    for _ in range(2):
        harness.end(harness.claim()[0])
    assert harness.settle() == 0


def test_a_continuation_that_fails_is_deferred_and_the_others_run(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.hello()
    labels = harness.submit(graph(root=task(), **{f"n{number}": noop("root") for number in range(STAR)}))
    unused = (PROPAGATE, labels.graph, 7, str(State.RUNNING), str(State.SUCCESSFUL), "", "")
    harness.engine.transact(lambda transaction: transaction.repo.continuations.add([unused]))
    harness.settle()
    harness.end(harness.claim()[0])
    harness.settle()
    assert set(harness.states(labels).values()) == {State.SUCCESSFUL}
    assert "is left for the next sweep" in caplog.text
    with harness.store.read() as repo:
        (note,) = repo.continuations.after(0, 9)
    harness.engine.transact(lambda transaction: transaction.repo.continuations.delete(note.id))


def test_a_graph_that_is_canceled_in_pages_ends_by_itself(harness: EngineHarness) -> None:
    labels = harness.submit(graph(**{f"t{number}": task() for number in range(STAR)}))
    harness.settle()
    harness.engine.cancel(Cancel(graph=labels.graph))
    harness.settle()
    assert set(harness.states(labels).values()) == {State.CANCELED}
    assert harness.graph(labels.graph).state is GraphState.CANCELED


def test_old_answers_are_deleted_but_not_the_graphs_of_their_keys(harness: EngineHarness) -> None:
    made = harness.submit(graph(a=task()), key="mine")
    command = Cancel(graph=made.graph, actor="ann", key="end it")
    first = harness.engine.cancel(command)
    harness.settle()
    harness.clock.advance(ANSWERS_STORED_MS - SWEEP_MS)
    harness.settle()
    assert harness.engine.cancel(command) == first
    harness.clock.advance(2 * SWEEP_MS)
    harness.settle()
    assert harness.engine.cancel(command) != first  # a new request has nothing left to end
    assert harness.submit(graph(a=task()), key="mine").graph == made.graph


def test_many_old_answers_are_deleted_in_pages_over_several_sweeps(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "ROWS_MAX", 10)
    monkeypatch.setattr(background, "PAGES_MAX", 3)
    keys = [f"k{number:02}" for number in range(65)]
    rows = [(key, "", "", harness.clock.now()) for key in keys]
    harness.engine.transact(lambda transaction: transaction.repo.events.add_answers(rows))
    harness.clock.advance(ANSWERS_STORED_MS + 1)
    for left in (35, 5, 0):
        harness.settle()
        with harness.store.read() as repo:
            assert len(repo.events.answers(keys)) == left
        harness.clock.advance(SWEEP_MS)


def test_the_server_stores_its_heartbeat(harness: EngineHarness) -> None:
    harness.settle()
    began = harness.clock.now()
    harness.clock.advance(SWEEP_MS)
    harness.settle()
    with harness.store.read() as repo:
        (service,) = repo.servers.all().values()
    assert (service.since_ms, service.seen_ms) == (began, began + SWEEP_MS)


# Outages.


def renew(harness: EngineHarness, lease: Lease) -> object:
    answer = harness.engine.poll(Poll("b1", "s1", renewals=(Renewal(lease.task, lease.attempt, lease.fence),)))
    assert isinstance(answer, PollOutcome), answer
    return answer.renewals[0]


def test_wherever_in_a_run_the_database_returns_every_lease_is_spared(harness: EngineHarness) -> None:
    harness.hello()
    harness.settle()
    labels = harness.submit(graph(a=task(retries=0)))
    (lease,) = harness.claim()
    for failing in range(GIVES_UP_AFTER * 4):
        harness.clock.advance(OUTAGE_MS)
        harness.store.before = [StoreUnavailable("away")] * failing
        while harness.store.before:
            harness.engine.background.run_once()
        harness.settle()
        assert harness.states(labels) == {"a": State.RUNNING}
        assert isinstance(renew(harness, lease), Renewed)


def test_a_server_frozen_between_its_heartbeat_and_its_timeouts_loses_no_lease(harness: EngineHarness) -> None:
    harness.hello()
    harness.settle()
    labels = harness.submit(graph(a=task(retries=0)))
    (lease,) = harness.claim()
    doing = harness.engine.background._jobs
    doing.beat()
    harness.clock.advance(10 * 60_000)
    assert doing.do(Job.TIMEOUTS)
    assert harness.states(labels) == {"a": State.RUNNING}
    assert isinstance(renew(harness, lease), Renewed)
