"""What bots have left, between servers: a bot is never given more than it has, and one bot is kept free for a task."""

from taskyard.core.admission.rules import RESERVE_AFTER_MS
from taskyard.core.states import State
from taskyard.lifecycle.commands import Cancel
from tests.races.servers import Server, run_concurrently

Pair = tuple[Server, Server]
ROUNDS = 20


def tasks(count: int, slots: int) -> dict[str, object]:
    task = {"slots": slots, "payload": {"command": ["true"]}}
    return {"tasks": {f"t{number}": {"task": task} for number in range(count)}}


def kept_free(server: Server) -> dict[str, int]:
    with server.store.read() as repo:
        return {bot: task for bot, task, _ in repo.bots.reservations(["b1", "b2"], State)}


def test_polls_of_one_bot_at_two_servers_share_its_room(pair: Pair) -> None:
    one, two = pair
    one.hello(slots=4)
    one.submit(tasks(3 * ROUNDS, slots=3))
    for _ in range(ROUNDS):
        leases = run_concurrently(lambda: one.claim(3), lambda: two.claim(3, bot="b1"))
        assert sorted(map(len, leases)) == [0, 1]
        for lease in (*leases[0], *leases[1]):
            one.end(lease)


def test_bots_at_two_servers_are_never_kept_free_for_the_same_task(pair: Pair) -> None:
    one, two = pair
    one.submit(tasks(2, slots=1))
    for server in pair:
        server.hello(slots=4)
        assert len(server.claim()) == 1
    for _ in range(ROUNDS):
        labels = one.submit(tasks(1, slots=4))
        one.run_for(RESERVE_AFTER_MS)
        assert run_concurrently(one.claim, two.claim) == [(), ()]
        assert list(kept_free(one).values()) == [labels["t0"]]
        one.engine.cancel(Cancel(graph=labels.graph, actor="ann"))
        assert (one.claim(), two.claim(), kept_free(one)) == ((), (), {})
