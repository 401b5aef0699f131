"""External pools at a real broker: tasks are announced to workers behind it, which report with messages."""

from collections.abc import Collection, Iterator

import msgspec
import pytest

from taskyard.core.fleet import external_bot
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.matching import canonical
from taskyard.core.states import Reason, State
from taskyard.engine.engine import Engine
from taskyard.lifecycle.admission.pools import set_pool
from taskyard.lifecycle.commands import Cancel, Hello, Poll, Refusal
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.server.amqp import TARGET, Link
from taskyard.server.settings import load_signer
from taskyard.store.repo.admission import PoolRow
from taskyard.store.rows import TaskRecord
from taskyard.views.explain import explain_task
from taskyard.wire.messages import Announcement, reports_queue
from tests.amqp.subscriber import ExternalWorker, Subscriber
from tests.amqp.yard import Yard, opened_yard
from tests.brokers import RabbitMQ
from tests.cli.waiting import until
from tests.engine.harness import graph
from tests.lifecycle.harness import Labels

POOL = "lab"


def make_external(engine: Engine) -> None:
    engine.transact(lambda transaction: set_pool(transaction, PoolRow(POOL, None, False, external=True), "ada"))


@pytest.fixture
def yard(database_url: str, rabbitmq: RabbitMQ) -> Iterator[Yard]:
    with opened_yard(database_url, rabbitmq.url, before=make_external) as made:
        made.until_link(Link.PUBLISHING)
        yield made


@pytest.fixture
def worker(yard: Yard, rabbitmq: RabbitMQ) -> Iterator[ExternalWorker]:
    with ExternalWorker(rabbitmq.url, yard.scheduler_id, POOL) as made:
        yield made


def external(*requires: str, **said: object) -> dict[str, object]:
    """A node of a document, for the external pool."""
    payload = {"command": ["make"], "timeout": "10m"}
    return {"requires": list(requires), "task": {"dimensions": {"pool": POOL}, "payload": payload} | said}


def state(yard: Yard, labels: Labels, label: str = "a") -> TaskRecord:
    with yard.engine.store.read() as repo:
        return repo.tasks.read([labels[label]])[0]


def until_state(yard: Yard, labels: Labels, wanted: State, label: str = "a") -> TaskRecord:
    until(lambda: state(yard, labels, label).state is wanted, f"{label} to be {wanted}")
    return state(yard, labels, label)


def test_a_task_is_announced_with_its_definition_and_its_result_comes_back(
    yard: Yard, worker: ExternalWorker, rabbitmq: RabbitMQ
) -> None:
    with Subscriber(rabbitmq.url, yard.scheduler_id) as subscriber:
        made = yard.submit(graph(a=external(), b=external("a")))
        first = worker.next()
        msgspec.json.decode(worker.messages[0].body, type=Announcement)
        assert (first["task"], first["label"], first["pool"]) == (text_of(Key(made["a"])), "a", POOL)
        assert first["payload"]["command"] == ["make"]
        assert 0 < first["lease_ms"] <= 600_000
        assert worker.messages[0].message_id == f"{first['task']}-1"
        assert worker.messages[0].reply_to == reports_queue(yard.scheduler_id)
        assert state(yard, made).reason == Reason.ASSIGNED.text
        assert "attempt 1 waits for an external worker of pool lab for" in why(yard.engine, made)
        worker.report("heartbeat", first)
        until(lambda: state(yard, made).reason == Reason.UNDER_WAY.text, "the attempt to begin")
        worker.report("completed", first, result={"built": 7})
        second = worker.next(2)
        assert second["inputs"] == {"a": {"built": 7}}
        worker.report("completed", second)
        received = subscriber.until(lambda found: any(one.kind == "graph.finished" for one in found))
    assert not any(first["token"] in str(one.body) or "payload" in one.body for one in received)
    assert until_state(yard, made, State.SUCCESSFUL, "b").life.attempt == 1


class Everything:
    """The rights of an admin."""

    def graph(self, graph: int) -> bool:
        return graph > 0

    def bots_of(self, pools: Collection[str]) -> bool:
        return len(pools) >= 0


def why(engine: Engine, labels: Labels) -> str:
    with engine.store.read() as repo:
        record = repo.tasks.read([labels["a"]])[0]
        return explain_task(repo, record, engine.clock.now(), Everything()).sentence


def test_without_a_broker_a_task_says_that_it_waits_for_external_workers(sqlite_url: str) -> None:
    """Nothing is claimed, so nothing is lost."""
    with Engine.open(sqlite_url) as engine:
        make_external(engine)
        answer = engine.submit(graph(a=external()))
        assert isinstance(answer, Submitted)
        with engine.store.read() as repo:
            labels = Labels(answer.graph, {label: id for id, label, *_ in repo.tasks.definitions_of(answer.graph)})
        text = "it waits for the external workers of pool lab, and no server reaches their message broker"
        assert text in why(engine, labels)


def test_reports_may_come_twice_and_in_any_order(yard: Yard, worker: ExternalWorker) -> None:
    made = yard.submit(graph(a={**external(), "reruns": 1}))
    first = worker.next()
    for _ in range(2):
        worker.report("failed", first, exit_code=3)
    second = worker.next(2)
    assert (second["attempt"], second["task"]) == (2, first["task"])
    for stale in ("completed", "failed", "heartbeat"):
        worker.report(stale, first)
    worker.report("completed", second)
    worker.report("heartbeat", second)
    worker.report("completed", second)
    last = yard.submit(graph(a=external()))
    worker.report("completed", worker.next(3))  # everything before it has been taken
    until_state(yard, last, State.SUCCESSFUL)
    ended = state(yard, made)
    assert (ended.state, ended.life.attempt, ended.life.reruns_used) == (State.SUCCESSFUL, 2, 1)
    assert len(worker.announced) == 3
    assert worker.unreadable == []


def test_a_heartbeat_gives_the_lease_its_full_length_again(yard: Yard, worker: ExternalWorker) -> None:
    made = yard.submit(graph(a=external()))
    announced = worker.next()
    before = state(yard, made).lease_until_ms
    assert before is not None
    worker.report("heartbeat", announced, progress="half")
    until(lambda: (state(yard, made).lease_until_ms or 0) > before, "a longer lease")


def test_what_cannot_be_read_is_put_aside_with_the_fault(yard: Yard, worker: ExternalWorker) -> None:
    made = yard.submit(graph(a=external()))
    announced = worker.next()
    worker.send(b"no JSON")
    worker.send(b'{"kind": "exploded"}')
    worker.report("completed", announced | {"fence": announced["fence"] + 1})
    worker.report("completed", announced | {"token": "ty_run_" + "0" * 16})
    worker.report("heartbeat", announced, progress="a\0b")
    until(lambda: len(worker.unreadable) == 5, "five reports that cannot be read")
    faults = [fault for fault, _ in worker.unreadable]
    assert "progress" in faults.pop()
    assert "JSON is malformed" in faults[0]
    assert "exploded" in faults[1]
    assert all("token" in fault for fault in faults[2:])
    assert worker.unreadable[0][1] == b"no JSON"
    assert state(yard, made).state is State.RUNNING


def test_a_task_of_an_external_pool_needs_a_timeout_and_asks_for_nothing_else(yard: Yard) -> None:
    node = {"task": {"dimensions": {"pool": POOL, "os": "Linux"}, "payload": {"command": ["make"]}}}
    answer = yard.engine.submit(graph(a=node, b=node))
    assert isinstance(answer, Refusal)
    assert [fault.path for fault in answer.faults] == [
        "tasks.a.task.payload.timeout",
        "tasks.a.task.dimensions",
        "tasks.b.task.payload.timeout",
        "tasks.b.task.dimensions",
    ]


def test_what_a_server_claimed_before_it_died_is_announced_by_the_next(sqlite_url: str, rabbitmq: RabbitMQ) -> None:
    """A claim is an event, and what is announced follows from events that the broker has not got."""

    def claim_and_die(engine: Engine) -> None:
        make_external(engine)
        engine.relay.add_target(TARGET)
        assert isinstance(engine.submit(graph(a=external())), Submitted)
        bot = external_bot(POOL)
        session = f"{load_signer(engine).derive('of a key that was changed').hex()}/external"
        engine.hello(Hello(bot, session, canonical({"id": bot, "pool": POOL}), external=True))
        answer = engine.poll(Poll(bot, session, "p1", want=1, begun=()))
        assert isinstance(answer, PollOutcome)
        assert len(answer.leases) == 1

    with (
        opened_yard(sqlite_url, rabbitmq.url, before=claim_and_die) as yard,
        ExternalWorker(rabbitmq.url, yard.scheduler_id, POOL) as worker,
    ):
        announced = worker.next()
        worker.report("completed", announced)
        task = int(key_of(announced["task"]))
        until(lambda: _state_of(yard, task) is State.SUCCESSFUL, "the end of the task")
    assert [one["attempt"] for one in worker.announced] == [1]


def _state_of(yard: Yard, task: int) -> State:
    with yard.engine.store.read() as repo:
        return repo.tasks.read([task])[0].state


def test_a_canceled_task_ends_with_the_report_of_its_worker(yard: Yard, worker: ExternalWorker) -> None:
    made = yard.submit(graph(a=external()))
    announced = worker.next()
    yard.engine.cancel(Cancel(graph=made.graph))
    assert state(yard, made).state is State.STOPPING
    worker.report("completed", announced)
    until_state(yard, made, State.CANCELED)
