"""Graphs that are submitted and grow on several servers at once: one answer each, and nothing is lost between them."""

from collections.abc import Callable
from typing import Any

import pytest

from taskyard.core.ids import LAST_MS
from taskyard.core.states import Millis, State
from taskyard.engine.errors import Unavailable
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Done, Refusal
from taskyard.lifecycle.submit import Submitted
from tests.crash.small_pages import PLACES
from tests.engine.harness import WAIT_S, graph, task, wide
from tests.lifecycle.harness import Labels
from tests.races.conftest import Open
from tests.races.servers import COMMIT, Server, run_concurrently, wait_for_lock_wait

Pair = tuple[Server, Server]
#: How many races run without a halt.
ROUNDS = 60
#: How many tasks fit into one transaction with small pages, and how many do not.
PAGE = 5
LARGE = 12


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in PLACES:
        monkeypatch.setattr(module, name, PAGE)


def refused(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.code is Code.CONFLICT


def extending(server: Server, labels: Labels, document: object) -> Callable[[], Submitted | Refusal]:
    return lambda: server.engine.extend(labels.text, document)


# An extension against the end of the graph.


@pytest.mark.parametrize("requires", [(), ("a",)])
def test_a_graph_is_extended_or_finished_and_never_both(pair: Pair, requires: tuple[str, ...]) -> None:
    one, two = pair
    for _ in range(ROUNDS):
        labels = one.submit(graph(a=task()))
        (lease,) = one.claim()
        ended, answer = run_concurrently(lambda: one.end(lease), extending(two, labels, graph(b=task(*requires))))  # noqa: B023
        assert ended == Done(labels["a"], State.SUCCESSFUL)
        states = one.states(one.labels(labels.graph))
        if answer == Submitted(labels.graph):
            assert (one.graph_state(labels.graph), states) == ("running", {"a": "successful", "b": "waiting"})
            assert one.end(one.claim()[0]) == Done(one.labels(labels.graph)["b"], State.SUCCESSFUL)
        else:
            assert refused(answer)
            assert states == {"a": "successful"}
        assert one.graph_state(labels.graph) == "finished"


@pytest.mark.parametrize("requires", [(), ("a",)])
def test_an_extension_that_comes_first_keeps_the_graph_running(pair: Pair, requires: tuple[str, ...]) -> None:
    one, two = pair
    labels = one.submit(graph(a=task()))
    (lease,) = one.claim()
    with two.halted(COMMIT) as halt:
        growing = two.in_thread(extending(two, labels, graph(b=task(*requires))))
        halt.reached()
        ending = one.in_thread(one.end, lease)
        wait_for_lock_wait(one.url)
    assert growing.result(WAIT_S) == Submitted(labels.graph)
    assert ending.result(WAIT_S) == Done(labels["a"], State.SUCCESSFUL)
    assert one.states(one.labels(labels.graph)) == {"a": "successful", "b": "waiting"}
    assert one.graph_state(labels.graph) == "running"


@pytest.mark.parametrize("requires", [(), ("a",)])
def test_an_extension_that_comes_too_late_is_refused(pair: Pair, requires: tuple[str, ...]) -> None:
    one, two = pair
    labels = one.submit(graph(a=task()))
    (lease,) = one.claim()
    with one.halted(COMMIT) as halt:
        ending = one.in_thread(one.end, lease)
        halt.reached()
        growing = two.in_thread(extending(two, labels, graph(b=task(*requires))))
        wait_for_lock_wait(one.url)
    assert ending.result(WAIT_S) == Done(labels["a"], State.SUCCESSFUL)
    assert refused(growing.result(WAIT_S))
    assert one.states(one.labels(labels.graph)) == {"a": "successful"}
    assert one.graph_state(labels.graph) == "finished"


def growth(prefix: str = "x") -> dict[str, object]:
    """An extension that does not fit into one transaction, and requires an existing task."""
    return graph(**{f"{prefix}{number}": task("a") for number in range(LARGE)})


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("page", [1, 2, 3])
@pytest.mark.parametrize("place", ["insert_edges", "select_edges_into", COMMIT])
def test_a_task_that_ends_while_others_are_hung_on_it_releases_them_all(pair: Pair, place: str, page: int) -> None:
    one, two = pair
    labels = one.submit(graph(a=task()))
    (lease,) = one.claim()
    with two.halted(place, page + (place == COMMIT)) as halt:  # the first commit is only the beginning
        growing = two.in_thread(extending(two, labels, growth()))
        halt.reached()
        ending = one.in_thread(one.end, lease)
        if place == "insert_edges":
            ending.result(WAIT_S)  # nothing of this page hangs on it yet, so it need not wait
        else:
            wait_for_lock_wait(one.url)
    assert ending.result(WAIT_S) == Done(labels["a"], State.SUCCESSFUL)
    assert growing.result(WAIT_S) == Submitted(labels.graph)
    one.settle()
    states = one.states(one.labels(labels.graph))
    assert states == {"a": "successful"} | {f"x{number}": "waiting" for number in range(LARGE)}


@pytest.mark.usefixtures("small_pages")
def test_two_large_extensions_at_once_are_both_there_in_the_end(pair: Pair) -> None:
    one, two = pair
    labels = one.submit(graph(a=task()))
    wanted = {one: growth("x"), two: growth("y")}
    for _ in range(5):
        answers = run_concurrently(*(persistent(server, labels, document) for server, document in wanted.items()))
        one.settle()
        if all(isinstance(answer, Submitted) for answer in answers):
            break
    assert len(one.labels(labels.graph)) == 1 + 2 * LARGE
    assert isinstance(one.end(one.claim()[0]), Done)
    one.settle()
    assert set(one.states(one.labels(labels.graph)).values()) == {"successful", "waiting"}


def persistent(server: Server, labels: Labels, document: object) -> Callable[[], object]:
    """Extend; repeat the request while another extension is in progress."""

    def act() -> object:
        try:
            return server.engine.extend(labels.text, document)
        except Unavailable as trouble:
            return trouble

    return act


# The same again, from everywhere at once.


def echoes(answers: list[Submitted | Refusal]) -> list[bool]:
    """Return the server that was first: all answers name one graph."""
    assert all(isinstance(answer, Submitted) for answer in answers), answers
    assert len({answer.graph for answer in answers if isinstance(answer, Submitted)}) == 1
    return sorted(answer.echo for answer in answers if isinstance(answer, Submitted))


@pytest.mark.parametrize("named", ["graph_id", "key"])
def test_one_graph_submitted_from_everywhere_at_once_is_one_graph(servers: Open, named: str) -> None:
    four = servers(4)
    for number in range(ROUNDS // 2):
        said = {named: f"{0x6000000000000008 + 16 * number:016x}"}
        document = graph(**{f"t{number}": task(), "end": task(f"t{number}")})
        answers = run_concurrently(*(lambda server=server: server.engine.submit(document, **said) for server in four))  # noqa: B023
        assert echoes(answers) == [False, True, True, True]
    assert len(four[0].audit().graphs) == ROUNDS // 2


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("named", ["graph_id", "key"])
def test_one_large_graph_submitted_from_everywhere_at_once_is_one_graph(servers: Open, named: str) -> None:
    four = servers(4)
    said: dict[str, Any] = {named: "6000000000000008"}
    answers = run_concurrently(*(lambda server=server: server.engine.submit(wide(LARGE), **said) for server in four))
    stored = [answer for answer in answers if isinstance(answer, Submitted)]
    others = [answer for answer in answers if isinstance(answer, Refusal)]
    assert len([answer for answer in stored if not answer.echo]) == 1
    assert {answer.code for answer in others} <= {Code.LOADING}
    again = four[3].engine.submit(wide(LARGE), **said)
    assert again == Submitted(stored[0].graph, echo=True)
    four[0].settle()
    found = four[0].audit()
    assert (len(found.graphs), len(found.tasks)) == (1, LARGE)
    with four[0].store.read() as repo:
        assert repo.graphs.loading(Millis(LAST_MS), 9) == []


def test_one_command_under_one_key_from_all_servers_at_once_has_one_answer(servers: Open) -> None:
    four = servers(4)
    for number in range(ROUNDS // 2):
        labels = four[0].submit(wide(3))
        command = Cancel(graph=labels.graph, actor="ann", key=f"wish{number}")
        answers = run_concurrently(*(lambda server=server: server.engine.cancel(command) for server in four))  # noqa: B023
        assert answers == [BulkOutcome(labels.graph, 3)] * 4
        with four[0].store.read() as repo:
            audits = [row.action for row in repo.events.audits_of(labels.graph, 9)]
        assert audits == ["submit", "cancel"]


# Queues.


def queues_of(server: Server, pool: str) -> int:
    with server.store.read() as repo:
        return sum(queue.pool == pool for queue in repo.queues.after(-1))


def test_new_dimensions_that_come_from_all_servers_at_once_are_one_queue(servers: Open) -> None:
    four = servers(4)
    for number in range(ROUNDS // 2):
        pool = f"pool{number}"
        run_concurrently(*(lambda server=server: server.submit(graph(a=on(pool))) for server in four))  # noqa: B023
        assert queues_of(four[0], pool) == 1
    for server in four:
        server.hello(pool="pool0")
    assert [len(server.claim()) for server in four] == [1, 1, 1, 1]


def test_a_transaction_that_makes_a_queue_waits_for_another_that_is_making_one(pair: Pair) -> None:
    one, two = pair
    with one.halted(COMMIT) as halt:
        making = one.in_thread(one.submit, graph(a=on("same")))
        halt.reached()
        following = two.in_thread(two.submit, graph(a=on("same"), b=on("other")))
        wait_for_lock_wait(one.url)
    making.result(WAIT_S)
    following.result(WAIT_S)
    assert (queues_of(one, "same"), queues_of(one, "other")) == (1, 1)


def on(pool: str) -> dict[str, object]:
    return task(dimensions={"pool": pool})
