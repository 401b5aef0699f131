"""Events at a real broker: where each goes, what it says, in which order, and what outages do."""

from collections.abc import Callable, Iterator

import msgspec
import pytest

from taskyard.cli.client import Server
from taskyard.cli.doctor_checks import WARNING, check_server
from taskyard.core.durations import DAY_MS
from taskyard.core.ids import Key, text_of
from taskyard.core.states import Signal
from taskyard.server.amqp import Link
from taskyard.wire.messages import GraphMessage, TaskMessage, exchange_of
from tests.amqp.subscriber import Received, Subscriber, in_order
from tests.amqp.yard import Yard, new_scheduler_id, opened_yard
from tests.brokers import RabbitMQ
from tests.cli.waiting import until
from tests.engine.harness import execute_raw, graph, noop, task
from tests.server.running_server import RunningServer


@pytest.fixture
def yard(database_url: str, rabbitmq: RabbitMQ) -> Iterator[Yard]:
    with opened_yard(database_url, rabbitmq.url) as made:
        made.until_link(Link.PUBLISHING)
        yield made


@pytest.fixture
def subscriber(yard: Yard, rabbitmq: RabbitMQ) -> Iterator[Subscriber]:
    with Subscriber(rabbitmq.url, yard.scheduler_id) as made:
        yield made


def has(kind: str, count: int = 1) -> Callable[[list[Received]], bool]:
    return lambda received: sum(one.kind == kind for one in received) >= count


def test_every_move_of_a_task_and_of_its_graph_is_published_once_and_in_order(
    yard: Yard, subscriber: Subscriber
) -> None:
    """`finished` comes once per transition, after everything else."""
    yard.hello()
    document = {"routing": "nightly", "tasks": {"a": task(routing="build"), "b": task("a")}}
    made = yard.submit(document)
    for _ in range(2):
        for lease in yard.claim():
            yard.end(lease)
    received = subscriber.until(has("graph.finished"))
    assert [one.id for one in received] == [one.body["id"] for one in received] == yard.logged(made)
    assert received[-1].kind == "graph.finished"
    prefix = f"{yard.scheduler_id}.{made.text}.nightly"
    assert {one.body.get("label"): one.routing_key for one in received} == {
        None: f"{prefix}._",
        "a": f"{prefix}.build",
        "b": f"{prefix}._",
    }
    assert all(one.exchange == exchange_of(yard.scheduler_id, one.kind) for one in received)


def test_every_message_has_the_published_shape(yard: Yard, subscriber: Subscriber) -> None:
    yard.hello()
    made = yard.submit(graph(a=task()))
    for lease in yard.claim():
        yard.end(lease, Signal.FAIL)
    yard.engine.extend(made.text, graph(b=noop()))
    for one in subscriber.until(has("task.successful")):
        shape = GraphMessage if one.kind.startswith("graph.") else TaskMessage
        msgspec.convert(one.body, shape, strict=True)


def test_a_blocked_graph_names_the_task_that_blocks_it_once_per_transition(yard: Yard, subscriber: Subscriber) -> None:
    yard.hello()
    made = yard.submit(graph(a=task(), b=task("a"), c=task()))
    for lease in yard.claim():
        yard.end(lease, Signal.FAIL if lease.task == made["a"] else Signal.SUCCEED)
    yard.engine.extend(made.text, graph(d=noop()))
    received = subscriber.until(has("task.successful", 2))
    (blocked,) = [one.body for one in received if one.kind == "graph.blocked"]
    assert blocked["blocked_by"] == {"task": text_of(Key(made["a"])), "label": "a"}
    assert [one.kind for one in received if one.kind.startswith("graph.")] == [
        "graph.running",
        "graph.blocked",
        "graph.extended",
    ]


def test_a_subscriber_chooses_by_the_routing_key(yard: Yard, rabbitmq: RabbitMQ) -> None:
    with Subscriber(rabbitmq.url, yard.scheduler_id, binding="*.*.nightly.#") as subscriber:
        yard.submit(graph(a=noop()))
        made = yard.submit({"routing": "nightly", **graph(a=noop())})
        received = subscriber.until(has("graph.finished"))
    assert {one.place[0] for one in received} == {made.text}


def test_a_broker_that_goes_away_in_the_middle_gets_the_backlog_in_order(sqlite_url: str) -> None:
    """Nothing is refused meanwhile, and what the broker had not confirmed comes again with the same id."""
    scheduler_id = new_scheduler_id()
    with RabbitMQ() as broker, opened_yard(sqlite_url, broker.url, scheduler_id) as yard:
        with Subscriber(broker.url, scheduler_id) as subscriber:
            made = [yard.submit(wide(noop(), 50)) for _ in range(5)]
            subscriber.until(bool)
            broker.stop()
            yard.until_link(Link.DOWN)
            made += [yard.submit(wide(noop(), 50)) for _ in range(5)]
            until(lambda: yard.backlog() > 0, "a backlog")
            broker.start()
            subscriber.until(lambda received: len({one.id for one in received if one.kind == "graph.finished"}) == 10)
            found = subscriber.first_deliveries()
        until(lambda: yard.backlog() == 0, "an empty backlog")
        assert in_order(found)
        assert sorted(one.id for one in found) == sorted(id for labels in made for id in yard.logged(labels))


def wide(node: object, count: int) -> dict[str, object]:
    return graph(**{f"t{number}": node for number in range(count)})


def test_only_one_of_two_publishes_and_the_other_follows_it(postgres_url: str, rabbitmq: RabbitMQ) -> None:
    scheduler_id = new_scheduler_id()
    with opened_yard(postgres_url, rabbitmq.url, scheduler_id) as one:
        one.until_link(Link.PUBLISHING)
        with (
            opened_yard(postgres_url, rabbitmq.url, scheduler_id) as two,
            Subscriber(rabbitmq.url, scheduler_id) as subscriber,
        ):
            two.until_link(Link.STANDBY)
            made = [two.submit(graph(a=noop()))]
            subscriber.until(has("graph.finished"))
            assert (one.amqp.published > 0, two.amqp.published) == (True, 0)
            one.amqp.stop()
            two.until_link(Link.PUBLISHING)
            made += [two.submit(graph(a=noop()))]
            subscriber.until(has("graph.finished", 2))
            assert in_order(subscriber.first_deliveries())
            assert sorted({one.id for one in subscriber.received}) == sorted(
                id for labels in made for id in two.logged(labels)
            )


def test_a_target_that_nobody_serves_is_seen_and_removed(sqlite_url: str) -> None:
    """The doctor warns of it, `taskyard targets` lists it, and an admin removes it."""
    with RunningServer(sqlite_url) as server:
        server.engine.relay.add_target("amqp")
        server.submit(graph(a=noop()))
        until(lambda: server.get("/api/v1/targets")["items"][0]["backlog"] > 0, "a backlog")
        execute_raw(sqlite_url, "UPDATE event SET at_ms = at_ms - 172800000")  # two days
        (target,) = server.get("/api/v1/targets")["items"]
        assert target["name"] == "amqp"
        assert target["oldest_ms"] > DAY_MS
        checks = {one.name: one for one in check_server(Server(url=server.http.url, token=server.admin))}
        assert checks["events"].verdict == WARNING
        assert "target amqp has not got" in checks["events"].text
        assert 'taskyard_event_backlog{target="amqp"}' in server.ask("GET", "/metrics").body.decode()
        assert [server.ask("DELETE", "/api/v1/targets/amqp").status for _ in range(2)] == [204, 404]
        assert server.get("/api/v1/targets")["items"] == []
