"""Leases that are not renewed and cancels that come with renewals, at a server with short leases."""

import os
import shutil
import signal
import time
from pathlib import Path

from tests.cli.waiting import is_gone, until
from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.documents import call, gated, node, only, script
from tests.e2e.proxy import proxy
from tests.e2e.task_log import attempts_by_label, lines

#: Much longer than a lease of these servers and their guard time, and than the first pauses of a bot that retries.
AWAY_S = 13


def test_the_tasks_of_a_dead_machine_are_run_by_another(short_lease_cluster: Cluster, tmp_path: Path) -> None:
    file, gate = tmp_path / "task_log", tmp_path / "gate"
    lab = {"dimensions": {"lab": "cellar"}}
    dark = short_lease_cluster.bot("dark", "--dimension", "lab=cellar")
    graph = short_lease_cluster.submit({"work": call("logged_until", str(file), str(gate), task=lab)})
    until(lambda: len(lines(file)) == 1, "it has begun")
    other = short_lease_cluster.bot("other", "--dimension", "lab=cellar")
    dark.kill(also_runner=True)
    until(lambda: dark.marked() == {}, "a worker ends with its runner")
    until(lambda: len(lines(file)) == 2, "it has begun elsewhere")
    gate.touch()
    graph.finished()
    assert [(one.bot, one.signal, one.reason) for one in graph.attempts("work")] == [
        ("dark", "lose", "bot_lost"),
        ("other", "succeed", "done"),
    ]
    assert attempts_by_label(file) == {"work": [(1, "start"), (2, "start"), (2, "end")]}
    shown = wait_for(
        lambda: list(short_lease_cluster.client.bot_events("dark")),
        lambda events: "missing" in {one.kind for one in events},
        "it is missed",
    )
    assert [one.kind for one in shown if one.task is None] == ["missing", "connected"]
    assert other.program.poll() is None


def test_of_two_bots_with_one_name_the_first_is_replaced_and_ends(short_lease_cluster: Cluster, tmp_path: Path) -> None:
    first = short_lease_cluster.bot("twin", state="first")
    hang = f'[ "$TASKYARD_ATTEMPT" = 2 ] || {{ echo $$ > {tmp_path}/pid; sleep 600; }}'
    graph = short_lease_cluster.submit({"work": script(hang, task=only("twin"))})
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", "it runs")
    second = short_lease_cluster.bot("twin", state="second")
    assert first.ended() == 1
    assert "another bot has started under the same name; this one ends" in first.log()
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert first.marked() == {}
    graph.finished()
    assert [one.signal for one in graph.attempts("work")] == ["lose", "succeed"]
    assert second.program.poll() is None


def test_a_second_bot_of_a_name_does_other_work_while_the_first_is_frozen(
    short_lease_cluster: Cluster, tmp_path: Path
) -> None:
    """The first is frozen: only its runner can end what it runs, and does so before the lease is over."""
    first = short_lease_cluster.bot("double", state="double-1", slots=1)
    # The attempt and all its children hold the lock, until the last of them is gone.
    exclusive = (
        f'exec 9>{tmp_path}/lock; flock -n 9 || exit 9; [ "$TASKYARD_ATTEMPT" = 2 ] || {{ echo on; sleep 600; }}'
    )
    graph = short_lease_cluster.submit({"work": script(exclusive, task=only("double"))})
    until(lambda: graph.output("work") == b"on\n", "it runs")
    first.program.send_signal(signal.SIGSTOP)
    # A copied folder counts as another one, and a hello whose answer is lost is repeated.
    shutil.copytree(first.state, short_lease_cluster.folder / "bots" / "double-2")
    with proxy(short_lease_cluster.url) as wire:
        wire.loses_after = b"/bot/hello"
        short_lease_cluster.bot("double", state="double-2", slots=1, url=wire.url)
        other = short_lease_cluster.submit({"other": script("true", task=only("double"))})
        other.finished()
        assert len(wire.lost) == 1
        assert [one.signal for one in graph.attempts("work")] == [None]
        graph.finished()
    assert [(one.signal, one.exit_code) for one in graph.attempts("work")] == [("lose", None), ("succeed", 0)]
    first.program.send_signal(signal.SIGCONT)
    assert first.ended() == 1


def test_the_work_of_a_bot_whose_agent_and_runner_are_frozen_is_done_by_another_and_never_overlaps(
    guarded_cluster: Cluster, tmp_path: Path
) -> None:
    lab = {"dimensions": {"lab": "ice"}}
    frozen = guarded_cluster.bot("frozen", "--dimension", "lab=ice")
    # The attempt and all its children hold the lock, until the last of them is gone.
    exclusive = (
        f'exec 9>{tmp_path}/lock; flock -n 9 || exit 9; [ "$TASKYARD_ATTEMPT" = 2 ] || {{ echo on; sleep 600; }}'
    )
    graph = guarded_cluster.submit({"work": script(exclusive, task=lab)})
    until(lambda: graph.output("work") == b"on\n", "it runs")
    runner = frozen.runner
    for pid in (frozen.program.pid, runner):
        os.kill(pid, signal.SIGSTOP)
    try:
        guarded_cluster.bot("awake", "--dimension", "lab=ice")
        graph.finished()
    finally:
        for pid in (runner, frozen.program.pid):
            os.kill(pid, signal.SIGCONT)
    assert [(one.bot, one.signal, one.exit_code) for one in graph.attempts("work")] == [
        ("frozen", "lose", None),
        ("awake", "succeed", 0),
    ]


def test_a_running_task_is_canceled_within_its_grace(short_lease_cluster: Cluster, tmp_path: Path) -> None:
    short_lease_cluster.bot("polite")
    polite = f"trap 'echo bye; exit 0' TERM; echo $$ > {tmp_path}/pid"
    graph = short_lease_cluster.submit(
        {"long": gated(tmp_path / "never", polite, task=only("polite")), "behind": script("true", "long")}
    )
    until((tmp_path / "pid").exists, "it runs")
    short_lease_cluster.client.cancel_task(graph.names["long"], subtree=True)
    graph.settled()
    assert graph.states() == {"long": "canceled", "behind": "canceled"}
    assert graph.output("long").endswith(b"bye\n")
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_everything_that_runs_ends_when_its_graph_is_canceled(short_lease_cluster: Cluster, tmp_path: Path) -> None:
    bot = short_lease_cluster.bot("deaf")
    deaf = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.02; done"
    tasks = {
        "deaf": node({"script": deaf, "grace": "1s"}, task=only("deaf")),
        "call": call("hang", f"{tmp_path}/call", task=only("deaf")),
    }
    graph = short_lease_cluster.submit({**tasks, "behind": script("true", "deaf", "call")})
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "call").exists(), "both run")
    short_lease_cluster.client.cancel_graph(graph.id)
    assert graph.settled().state == "canceled"
    assert graph.states() == dict.fromkeys(["deaf", "call", "behind"], "canceled")
    pids = [*(tmp_path / "pid").read_text().split(), *(tmp_path / "call").read_text().split()]
    assert [pid for pid in pids if not is_gone(int(pid))] == []
    assert bot.program.poll() is None


def test_what_was_finished_while_the_server_was_away_for_longer_than_a_lease_is_not_run_again(
    short_lease_cluster: Cluster, tmp_path: Path
) -> None:
    file, gate = tmp_path / "task_log", tmp_path / "gate"
    short_lease_cluster.bot("patient", slots=6)
    labels = [f"t{number}" for number in range(6)]
    graph = short_lease_cluster.submit(
        {label: call("logged_until", str(file), str(gate), task=only("patient")) for label in labels}
    )
    until(lambda: len(lines(file)) == len(labels), "all have begun")
    short_lease_cluster.kill_server()
    killed = time.monotonic()
    gate.touch()
    until(lambda: len(lines(file)) == 2 * len(labels), "all have ended")
    until(lambda: time.monotonic() > killed + AWAY_S, "every lease is over for good")
    short_lease_cluster.serve()
    graph.finished()
    assert attempts_by_label(file) == {label: [(1, "start"), (1, "end")] for label in labels}
    assert [len(graph.attempts(label)) for label in labels] == [1] * len(labels)
