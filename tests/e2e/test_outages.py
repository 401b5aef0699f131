"""Servers are killed, replies are lost, bots vanish: no task is lost, and none runs twice at once."""

from pathlib import Path

from tests.cli.waiting import until
from tests.e2e.cluster import Cluster
from tests.e2e.documents import call, node, script
from tests.e2e.proxy import proxy
from tests.e2e.task_log import attempts_by_label

#: The log of a task that ran once.
ONCE = [(1, "start"), (1, "end")]


def test_a_server_that_is_killed_among_a_thousand_tasks_loses_none_and_runs_none_twice(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "task_log"
    shell = "cut -d' ' -f1 /proc/uptime"
    say = f'echo "$TASKYARD_LABEL $TASKYARD_ATTEMPT %s $$ $({shell})" >> {file}'
    labels = [f"t{number}" for number in range(1000)]
    tasks = {
        label: script(f"{say % 'start'}\n{say % 'end'}") if number % 10 == 0 else call("logged", str(file), 0.003)
        for number, label in enumerate(labels)
    }
    for name in ("one", "two"):
        own_cluster.bot(name)
    graph = own_cluster.submit({**tasks, "last": node({"noop": True}, *labels)})
    for so_far in (200, 600):
        until(lambda so_far=so_far: len(attempts_by_label(file)) >= so_far, f"{so_far} have begun")  # type: ignore[misc]
        own_cluster.kill_server()
        assert len(attempts_by_label(file)) < 1000, "it is killed in the middle"
        own_cluster.serve()
    graph.finished()
    assert attempts_by_label(file) == dict.fromkeys(labels, ONCE)
    assert graph.view().counts == {"successful": 1001}


def test_a_lost_reply_loses_no_lease_no_report_and_no_output(own_cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "task_log"
    losses = [("loses", b'"leases"'), ("loses_after", b'"reports"'), ("loses_after", b'"outputs"')]
    with proxy(own_cluster.url) as wire:
        bot = own_cluster.bot("far", url=wire.url)
        for number, (which, what) in enumerate(losses):
            setattr(wire, which, what)
            graph = own_cluster.submit({f"t{number}": call("logged", str(file)), "s": script("echo once")})
            graph.finished()
            # The graph can be seen to be finished before the reply comes by: it is lost on its way back.
            until(lambda lost=number + 1: len(wire.lost) == lost, "the reply to be lost")  # type: ignore[misc]
            assert graph.output("s") == b"once\n"
            assert [len(graph.attempts(label)) for label in graph.names] == [1, 1]
        bot.end()
    assert attempts_by_label(file) == {f"t{number}": ONCE for number in range(len(losses))}
