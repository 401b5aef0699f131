"""Deletion between servers: a queue is not deleted from under the task that comes into it."""

import pytest

from taskyard.core.durations import DAY_MS
from taskyard.core.ids import Key, text_of
from taskyard.core.retention import ALL_POOLS, Kept
from taskyard.lifecycle.commands import Cancel
from tests.races.servers import COMMIT, Server, wait_for_lock_wait

Pair = tuple[Server, Server]


def on(kind: str) -> dict[str, object]:
    return {"tasks": {"a": {"task": {"dimensions": {"kind": kind}, "payload": {"command": ["true"]}}}}}


def leave_queue(server: Server) -> None:
    """Leave a queue without tasks that is due."""
    made = server.submit(on("left"))
    server.submit(on("newest"))
    server.engine.cancel(Cancel(graph=made.graph))
    assert server.engine.delete_graph(text_of(Key(made.graph))) is None
    with server.store.write() as repo:
        repo.retention.set_times([(ALL_POOLS, Kept.QUEUES.value, DAY_MS)])
    server.run_for(2 * DAY_MS)


@pytest.mark.parametrize("place", ["purge_queues", COMMIT])
def test_a_task_comes_into_a_queue_that_is_being_deleted(pair: Pair, place: str) -> None:
    one, two = pair
    leave_queue(one)
    with one.halted("purge_queues") as halt:
        purging = one.in_thread(one.engine.retention.run_once)
        halt.reached()
        if place == COMMIT:
            with one.halted(COMMIT) as before_commit:
                halt.release()
                before_commit.reached()
                submitting = two.in_thread(two.submit, on("left"))
                wait_for_lock_wait(one.url, submitting.done)
        else:
            submitting = two.in_thread(two.submit, on("left"))
            submitting.result()
    purging.result()
    made = submitting.result()
    assert two.states(made) == {"a": "waiting"}
