"""What breaks, breaks: servers are killed, replies are lost, bots vanish. No task is lost, none runs twice at once."""

from pathlib import Path

from tests.cli.waiting import until
from tests.e2e.documents import call, node, script
from tests.e2e.proxy import proxy
from tests.e2e.witness import lives
from tests.e2e.yard import Yard

#: What a run before a witness leaves, if it is the only one.
ONCE = [(1, "start"), (1, "end")]


def test_a_server_that_is_killed_among_a_thousand_tasks_loses_none_and_runs_none_twice(
    alone: Yard, tmp_path: Path
) -> None:
    file = tmp_path / "witness"
    shell = "cut -d' ' -f1 /proc/uptime"
    say = f'echo "$TASKYARD_LABEL $TASKYARD_ATTEMPT %s $$ $({shell})" >> {file}'
    labels = [f"t{number}" for number in range(1000)]
    tasks = {
        label: script(f"{say % 'start'}\n{say % 'end'}") if number % 10 == 0 else call("witnessed", str(file), 0.003)
        for number, label in enumerate(labels)
    }
    for name in ("one", "two"):
        alone.bot(name)
    graph = alone.submit({**tasks, "last": node({"noop": True}, *labels)})
    for so_far in (200, 600):
        until(lambda so_far=so_far: len(lives(file)) >= so_far, f"{so_far} have begun")  # type: ignore[misc]
        alone.kill_server()
        assert len(lives(file)) < 1000, "it is killed in the middle"
        alone.serve()
    graph.finished()
    assert lives(file) == dict.fromkeys(labels, ONCE)
    assert graph.view().counts == {"successful": 1001}


def test_a_lost_reply_loses_no_lease_no_report_and_no_output(alone: Yard, tmp_path: Path) -> None:
    file = tmp_path / "witness"
    losses = [("loses", b'"leases"'), ("loses_after", b'"reports"'), ("loses_after", b'"outputs"')]
    with proxy(alone.url) as wire:
        bot = alone.bot("far", url=wire.url)
        for number, (which, what) in enumerate(losses):
            setattr(wire, which, what)
            graph = alone.submit({f"t{number}": call("witnessed", str(file)), "s": script("echo once")})
            graph.finished()
            # The graph can be seen to be finished before the reply comes by: it is lost on its way back.
            until(lambda lost=number + 1: len(wire.lost) == lost, "the reply to be lost")  # type: ignore[misc]
            assert graph.output("s") == b"once\n"
            assert [len(graph.attempts(label)) for label in graph.names] == [1, 1]
        bot.end()
    assert lives(file) == {f"t{number}": ONCE for number in range(len(losses))}
