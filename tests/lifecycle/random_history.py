"""Random graphs, and random steps of bots and people on them."""

from random import Random
from typing import TYPE_CHECKING

from taskyard.core.states import Signal
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.commands import Cancel, Lease, Poll, Report, Rerun
from taskyard.lifecycle.continuations import run_page
from taskyard.lifecycle.poll import poll
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.timeouts import apply_timeouts
from taskyard.lifecycle.transaction import Transaction
from tests.lifecycle.harness import BaseHarness, Labels

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = {"dimensions": {"pool": "default"}, "payload": {"command": ["true"]}}


def random_history(harness: BaseHarness, chance: Random) -> None:
    """Make 80 random steps with four graphs and three bots."""
    graphs = [harness.submit(random_graph(chance)) for _ in range(4)]
    bots = [f"b{number}" for number in range(3)]
    for bot in bots:
        harness.hello(bot)
    steps: list[Callable[[], object]] = [
        lambda: harness.claim(chance.choice(bots), chance.randint(1, 4)),
        lambda: end_random_lease(harness, chance, bots),
        lambda: end_random_lease(harness, chance, bots),
        lambda: rerun_or_cancel(harness, chance, graphs),
        lambda: harness.hello(chance.choice(bots)),
        lambda: harness.advance(chance.randint(1, 50_000)),
        lambda: harness.do(apply_timeouts),
        lambda: run_continuations(harness),
    ]
    for _ in range(80):
        chance.choice(steps)()


def random_graph(chance: Random) -> dict[str, object]:
    """Make a graph with every sort of edge, join and policy."""
    tasks: dict[str, object] = {}
    for place in range(10):
        before = chance.sample(range(place), min(place, chance.randint(0, 3)))
        tasks[f"t{place}"] = {
            "requires": [
                {"task": f"t{one}", "on": chance.choice(["success", "success", "failure", "always"])} for one in before
            ],
            "join": chance.choice(["all", "any"]),
            "on_impossible": chance.choice(["hold", "fail", "skip"]),
            "reruns": chance.randint(0, 1),
            "task": COMMAND | ({"mutexes": [{"key": "door"}]} if chance.random() < 0.1 else {}),
        }
    return {"tasks": tasks}


def end_random_lease(harness: BaseHarness, chance: Random, bots: list[str]) -> None:
    bot = chance.choice(bots)
    leases = leases_of(harness, bot)
    if not leases:
        return
    lease, signal = chance.choice(leases), chance.choice([Signal.SUCCEED, Signal.FAIL, Signal.FAIL, Signal.LOSE])

    def act(transaction: Transaction) -> None:
        transaction.edge_budget = chance.choice([0, 1, 1_000])
        report = Report(lease.task, lease.attempt, lease.fence, signal, exit_code=int(signal is Signal.FAIL))
        poll(transaction, [Poll(bot, "s1", reports=(report,))])

    harness.do(act)


def rerun_or_cancel(harness: BaseHarness, chance: Random, graphs: list[Labels]) -> None:
    """Rerun or cancel something at random: mostly a rerun."""
    labels = chance.choice(graphs)
    task, edge_budget = chance.choice(list(labels.values())), chance.choice([0, 1, 1_000])

    def act(transaction: Transaction) -> None:
        transaction.edge_budget = edge_budget
        match chance.choice(["rerun", "rerun", "rerun", "rerun all", "cancel", "cancel behind", "cancel all"]):
            case "rerun":
                rerun(transaction, [Rerun(task=task)])
            case "rerun all":
                rerun(transaction, [Rerun(graph=labels.graph)])
            case "cancel":
                cancel(transaction, [Cancel(task=task)])
            case "cancel behind":
                cancel(transaction, [Cancel(task=task, subtree=True)])
            case _:
                if chance.random() < 0.2:
                    cancel(transaction, [Cancel(graph=labels.graph)])

    harness.do(act)


def leases_of(harness: BaseHarness, bot: str) -> list[Lease]:
    with harness.store.read() as repo:
        tasks = repo.tasks.read([id for id, _ in repo.tasks.leased_by([bot], 9)])
    return [Lease(task.id, task.life.attempt, task.fence, harness.now) for task in tasks]


def run_continuations(harness: BaseHarness) -> None:
    with harness.store.read() as repo:
        open_continuations = repo.continuations.after(0, 100)
    for one in open_continuations:
        harness.do(lambda transaction, id=one.id: run_page(transaction, id))  # type: ignore[misc]
