"""Launches on two servers: each update is made once, joined by all who need it, and no link is forgotten."""

from collections import Counter
from functools import partial
from typing import Any

import pytest

from taskyard.core.catalogue.launched import Wanted
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import canonical
from taskyard.engine.launch import TEMPLATE
from taskyard.lifecycle.commands import Cancel, Done, Hello
from taskyard.lifecycle.launch import LaunchStored
from taskyard.lifecycle.poll import PollOutcome
from tests.effort import SOAK
from tests.engine.harness import WAIT_S
from tests.engine.launch_history import Rules, Uses, check_updates, read_work
from tests.engine.launches import TOOLS, apply, job, project
from tests.lifecycle.harness import Labels
from tests.races.servers import COMMIT, Server, ended, run_concurrently, run_in_lockstep, wait_for_lock_wait, watched

ON_LAUNCH: dict[str, Any] = {"update_on_launch": True}
#: How often two servers launch the same at once.
PAIRS = 20
#: Jobs that are launched before any may run; the templates and the capacity that they share; threads at each server.
BACKLOG = 5_000 if SOAK else 240
TEMPLATES = BACKLOG // 20
CAPACITY = BACKLOG // 30
THREADS = 4
#: A look at many tasks takes longer than a commit.
WATCHED_EVERY = BACKLOG // 240
#: How long the launches, or the jobs, may take together.
BACKLOG_S = 10 * WAIT_S


@pytest.fixture
def pair(pair: tuple[Server, Server]) -> tuple[Server, Server]:
    """Two servers whose bots can update projects."""
    for server in pair:
        name = server.name
        server.engine.hello(Hello(name, "s1", canonical({"id": name, "pool": "default", **TOOLS}), 2_000))
    return pair


def launch(server: Server, name: str = "deploy") -> Labels:
    answer = server.engine.launch(Wanted(TEMPLATE, name), actor="ann")
    assert isinstance(answer, LaunchStored), answer
    return server.labels(answer.graph)


def linked(server: Server, labels: Labels) -> int:
    with server.store.read() as repo:
        return repo.launches.links([labels["project:web"]])[labels["project:web"]].update


def updates(server: Server) -> list[int]:
    with server.store.read() as repo:
        return [row.graph for row in repo.launches.page("project", "", None, -1, 1_000)]


def run_all(one: Server, two: Server) -> None:
    """Let everything come to its end."""
    for _ in range(100):
        one.settle()
        two.settle()
        leases = one.claim(1)
        if not leases:
            return
        one.end(leases[0])
    raise AssertionError("it never comes to an end")


def test_what_two_servers_launch_at_once_shares_one_update(pair: tuple[Server, Server]) -> None:
    one, two = pair
    apply(one.engine, project(**ON_LAUNCH), job(project="web", allow_simultaneous=True))
    for _ in range(PAIRS):
        before = len(updates(one))
        ((first, second),) = run_in_lockstep([lambda: launch(one)], [lambda: launch(two)])
        assert linked(one, first) == linked(one, second)
        assert len(updates(one)) == before + 1
        run_all(one, two)
        for labels in (first, second):
            assert set(one.states(labels).values()) == {"successful"}


def test_the_second_of_two_waits_for_the_first_to_be_stored_and_joins_it(pair: tuple[Server, Server]) -> None:
    one, two = pair
    apply(one.engine, project(**ON_LAUNCH), job(project="web"))
    with one.halted(COMMIT) as halt:
        first = one.in_thread(launch, one)
        halt.reached()
        second = two.in_thread(launch, two)
        wait_for_lock_wait(one.url)
    assert linked(one, first.result(WAIT_S)) == linked(one, second.result(WAIT_S))
    assert len(updates(one)) == 1


@pytest.mark.parametrize("ends_first", [True, False])
def test_a_launch_that_joins_an_update_while_it_ends_is_not_forgotten(
    pair: tuple[Server, Server], ends_first: bool
) -> None:
    one, two = pair
    apply(one.engine, project(update_cache_timeout="1h", **ON_LAUNCH), job(project="web"))
    update = linked(one, launch(one))
    one.settle()
    (lease,) = one.claim(1)
    assert lease.task == update
    first, second = (one, two) if ends_first else (two, one)
    with first.halted(COMMIT) as halt:
        ending = (lambda: one.end(lease)) if ends_first else (lambda: launch(two))
        begun = first.in_thread(ending)
        halt.reached()
        joining = (lambda: launch(two)) if ends_first else (lambda: one.end(lease))
        then = second.in_thread(joining)
        wait_for_lock_wait(one.url, or_else=then.done)
    found = {True: then, False: begun}[ends_first].result(WAIT_S)
    begun.result(WAIT_S), then.result(WAIT_S)
    assert isinstance(found, Labels)
    assert one.states(found)["project:web"] == "successful"
    run_all(one, two)


@pytest.mark.parametrize("cancels_first", [True, False])
def test_an_update_is_not_canceled_under_a_launch_that_joins_it(
    pair: tuple[Server, Server], cancels_first: bool
) -> None:
    one, two = pair
    apply(one.engine, project(**ON_LAUNCH), job(project="web", allow_simultaneous=True))
    labels = launch(one)
    one.engine.cancel(Cancel(graph=labels.graph, actor="ann"))  # a continuation is to release the update
    first, second = (one, two) if cancels_first else (two, one)
    with first.halted(COMMIT) as halt:
        acts = {True: one.settle, False: lambda: launch(two)}
        begun = first.in_thread(acts[cancels_first])
        halt.reached()
        then = second.in_thread(acts[not cancels_first])
        wait_for_lock_wait(one.url, or_else=then.done)
    found = (then if cancels_first else begun).result(WAIT_S)
    begun.result(WAIT_S), then.result(WAIT_S)
    assert isinstance(found, Labels)
    run_all(one, two)
    assert set(one.states(found).values()) == {"successful"}, text_of(Key(found.graph))


def test_a_backlog_of_launched_jobs_drains_in_order_on_two_servers(pair: tuple[Server, Server]) -> None:
    one, _ = pair
    limited = {"kind": "pool", "name": "default", "capacity": CAPACITY}
    resources = [project(f"p{number}", update_cache_timeout="1h", **ON_LAUNCH) for number in range(TEMPLATES)]
    jobs = [job(f"t{number}", **uses_of(number)) for number in range(TEMPLATES)]
    apply(one.engine, limited, *resources, *jobs)
    each = BACKLOG // (2 * THREADS)

    def launch_some(server: Server, first: int) -> None:
        for number in range(each):
            launch(server, f"t{(first + number) % TEMPLATES}")

    run_concurrently(
        *(partial(launch_some, pair[place % 2], place) for place in range(2 * THREADS)), within_s=BACKLOG_S
    )
    one.clock.advance(1_000)
    done: list[int] = []  # extended by all threads

    def work(server: Server, sees_to_links: bool) -> None:
        while len(done) < each * 2 * THREADS + TEMPLATES:
            if sees_to_links:
                server.settle()
            server.clock.tick()
            server.engine.schedule()
            server.clock.tick()
            leases = server.claim(CAPACITY)
            answer = server.poll(reports=tuple(map(ended, leases)))
            assert isinstance(answer, PollOutcome), answer
            assert all(isinstance(one, Done) for one in answer.reports)
            done.extend(lease.task for lease in leases)

    found: list[object] = []
    with watched([*pair], found, every=WATCHED_EVERY):
        acts = [partial(work, pair[place % 2], place < 2) for place in range(2 * THREADS)]
        run_concurrently(*acts, within_s=BACKLOG_S)
    assert found == []
    one.settle()
    uses = {
        f"t{number}": Uses(f"p{number}", resources=frozenset({f"project:p{number}"})) for number in range(TEMPLATES)
    }
    with one.store.read() as repo:
        works = read_work(repo, 0)
        check_updates(repo, works, Rules(uses, {}))
    assert Counter((work.state, len(work.held)) for work in works) == {("successful", 1): len(done)}
    for name in uses:
        in_order = sorted((work for work in works if work.name == name), key=lambda work: work.turn)
        begun = [work.held[0].since for work in in_order]
        assert begun == sorted(begun), f"jobs of {name} did not begin in the order of their creation"


def uses_of(number: int) -> dict[str, object]:
    """Every third template allows several jobs at once, and one weighs more than the pool carries."""
    weight = {1: 2, 2: CAPACITY + 1}.get(number, 1)
    return {"project": f"p{number}", "allow_simultaneous": number % 3 == 0, "weight": weight}
