"""Two servers on one database: one ends the last inner task, the other the outer one; two decisions at once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from taskyard.core.states import ENDED
from taskyard.lifecycle.commands import Approve, Cancel, Done, Refusal
from tests.engine.harness import EngineHarness, graph, task

#: Often enough that each comes first now and then.
ROUNDS: Final = 6


def test_whichever_transaction_comes_first_the_task_and_its_graph_end_together(postgres_url: str) -> None:
    with EngineHarness(postgres_url) as one, EngineHarness(postgres_url) as two, ThreadPoolExecutor(2) as both:
        two.hello()
        for _ in range(ROUNDS):
            outer = one.submit(graph(outer=task(payload={"graph": graph(a=task())})))
            one.settle()
            (lease,) = two.claim()
            ended = both.submit(two.end, lease)
            canceled = both.submit(one.engine.cancel, Cancel(task=outer["outer"]))
            assert isinstance(ended.result(), Done)
            canceled.result()
            settled = [both.submit(harness.settle) for harness in (one, two)]
            assert all(turns.result() >= 0 for turns in settled)
            # What one of them found done by the other is swept up by either.
            for harness in (one, two):
                harness.clock.advance(5_000)
                harness.settle()
            with one.store.read() as repo:
                (inner,) = repo.graphs.subgraphs([outer["outer"]]).values()
            assert one.states(outer)["outer"] in ENDED
            assert one.graph(inner).tally.active == 0


def test_of_two_decisions_at_once_one_is_taken(postgres_url: str) -> None:
    with EngineHarness(postgres_url) as one, EngineHarness(postgres_url) as two, ThreadPoolExecutor(2) as both:
        for _ in range(ROUNDS):
            asked = one.submit(graph(ask=task(payload={"approval": "Ship it?"})))
            one.settle()
            yes = both.submit(one.engine.approve, Approve(asked["ask"], approved=True, actor="ann"))
            no = both.submit(two.engine.approve, Approve(asked["ask"], approved=False, actor="bob"))
            answers = {type(yes.result()), type(no.result())}
            assert answers == {Done, Refusal}
