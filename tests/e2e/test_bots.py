"""Bots connect, change and end: no other bot runs their tasks, and no process is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taskyard.core.fleet import LEASE_MS
from tests.cli.waiting import until
from tests.e2e.cluster import ROOT, USUAL, Cluster, started, wait_for
from tests.e2e.documents import call, gated, node, only, script
from tests.e2e.task_log import attempts_by_label

#: Where the clock is found that is wrong by years.
SHIFTED = Path(__file__).parent / "shifted"
SECONDS_OF_A_YEAR = 365 * 86_400
PAYLOADS = {"call": {"python": "time:time"}, "script": {"script": "echo told", "timeout": "10m", "io_timeout": "10m"}}


def test_a_pinned_task_waits_for_its_bot_though_others_are_idle(shared_cluster: Cluster) -> None:
    graph = shared_cluster.submit({f"t{number}": script("true", task=only("pinned")) for number in range(6)})
    shared_cluster.submit({"other": script("true", task=only("main"))}).finished()
    assert set(graph.states().values()) == {"waiting"}
    shared_cluster.bot("pinned", slots=1)
    graph.finished()
    assert {one.bot for label in graph.names for one in graph.attempts(label)} == {"pinned"}


def test_nothing_survives_a_bot_that_is_killed_and_the_restarted_bot_works_at_once(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    # Children that leave their session and their parent are the hardest to find.
    first = (
        f'[ "$TASKYARD_ATTEMPT" = 2 ] || {{ setsid sh -c "sleep 600 & sleep 600" & echo $$ > {tmp_path}/pid; wait; }}'
    )
    bot = shared_cluster.bot("mortal")
    graph = shared_cluster.submit(
        {"script": script(first, task=only("mortal")), "call": call("hang", f"{tmp_path}/call", task=only("mortal"))}
    )
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "call").exists(), "both run")
    assert len(bot.marked()) >= 6, "runner, worker and its child, shell and what it left"
    bot.kill()
    until(lambda: bot.marked() == {}, "the runner ends everything, and itself")
    (tmp_path / "call").unlink()
    shared_cluster.bot("mortal")
    until((tmp_path / "call").exists, "the call is made again")
    graph.until("script", "successful")
    assert [(one.bot, one.signal) for one in graph.attempts("script")] == [("mortal", "lose"), ("mortal", "succeed")]
    assert [one.signal for one in graph.attempts("call")] == ["lose", None]


def test_a_terminated_bot_ends_after_its_tasks_and_the_next_one_works(shared_cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    bot = shared_cluster.bot("spent", slots=1)
    graph = shared_cluster.submit({"had": gated(gate, task=only("spent")), "later": script("true", task=only("spent"))})
    graph.until("had", "running")
    command = [sys.executable, "-m", "taskyard", "bots", "set", "spent", "--terminate"]
    env = shared_cluster.env() | {"TASKYARD_URL": shared_cluster.url, "TASKYARD_TOKEN": shared_cluster.token}
    assert b"ending" in subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout
    until(lambda: shared_cluster.client.bot("spent").draining, "it has heard")
    gate.touch()
    assert bot.ended() == 0
    shown = shared_cluster.client.bot("spent")
    assert (shown.terminated, shown.ending, graph.states()["had"]) == (True, True, "successful")
    assert graph.task("later").attempt == 0
    shared_cluster.bot("spent", slots=1)
    graph.finished()
    assert shared_cluster.client.bot("spent").ending is False


def test_nothing_survives_an_agent_and_a_runner_that_are_killed_at_once(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    bot = shared_cluster.bot("doomed")
    hang = (
        f'[ "$TASKYARD_ATTEMPT" = 2 ] || {{ setsid sh -c "sleep 600 & sleep 600" & echo $$ > {tmp_path}/pid; wait; }}'
    )
    graph = shared_cluster.submit({"work": script(hang, task=only("doomed"))})
    until(lambda: (tmp_path / "pid").exists() and len(bot.marked()) >= 5, "runner, watchdog, shell and what it left")
    bot.kill(also_runner=True)
    until(lambda: bot.marked() == {}, "the watchdog ends everything, and itself")
    shared_cluster.bot("doomed")
    graph.finished()


def test_a_second_bot_of_a_name_gets_what_the_first_has_returned_long_before_its_lease_is_over(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    first = shared_cluster.bot("twofold", state="twofold-1")
    hang = f'[ "$TASKYARD_ATTEMPT" = 2 ] || {{ echo $$ > {tmp_path}/pid; sleep 600; }}'
    graph = shared_cluster.submit({"work": script(hang, task=only("twofold"))})
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", "it runs")
    shared_cluster.bot("twofold", state="twofold-2")
    graph.finished()
    assert first.ended() == 1
    one, two = graph.attempts("work")
    assert (one.signal, two.signal) == ("lose", "succeed")
    connected = next(event for event in shared_cluster.client.bot_events("twofold") if event.kind == "connected")
    assert one.ended_ms is not None
    assert connected.at_ms <= one.ended_ms < one.claimed_ms + LEASE_MS, "by its goodbye, not by the clock"
    assert connected.note.startswith("in another folder or on another machine")


def test_errors_of_a_bot_are_listed_between_its_tasks(shared_cluster: Cluster, tmp_path: Path) -> None:
    runner = shared_cluster.bot("ailing", slots=1).runner
    shared_cluster.submit({"none": node({"command": ["no-such-program"]}, task=only("ailing"))}).settled()
    shared_cluster.submit({"gone": node({"python": "os:_exit", "args": [3]}, task=only("ailing"))}).settled()
    graph = shared_cluster.submit({"work": gated(tmp_path / "gate", task=only("ailing"))})
    graph.until("work", "running")
    os.kill(runner, signal.SIGKILL)
    (tmp_path / "gate").touch()
    graph.finished()
    errors = {
        "cannot start 'no-such-program': there is no such program": True,
        "a warm worker died during a call (exit code 3)": True,
        "the runner died; what it ran is lost": False,
    }

    def listed() -> dict[str, bool]:
        return {
            one.note: one.task is not None for one in shared_cluster.client.bot_events("ailing") if one.kind == "error"
        }

    wait_for(listed, lambda found: found == errors, "all three are told")
    notes = [one.note for one in shared_cluster.client.bot_events("ailing") if one.kind == "task_ended"]
    assert notes == ["succeed: done", "lose: bot_lost", "fail: exit_code", "fail: exit_code"]


def test_a_terminated_bot_finishes_its_tasks_and_takes_no_more(shared_cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    bot = shared_cluster.bot("drained")
    graph = shared_cluster.submit({"runs": gated(gate, after="echo whole", task=only("drained"))})
    graph.until("runs", "running")
    bot.program.send_signal(signal.SIGTERM)
    wait_for(lambda: shared_cluster.client.bot("drained"), lambda one: one.draining, "it says that it drains")
    late = shared_cluster.submit({"late": script("true", task=only("drained"))})
    gate.touch()
    assert bot.ended() == 0
    assert (graph.settled().state, graph.output("runs")) == ("finished", b"whole\n")
    assert (late.states(), late.attempts("late")) == ({"late": "waiting"}, [])
    assert shared_cluster.client.bot("drained").alive is False
    shared_cluster.client.cancel_graph(late.id)


def test_a_bot_in_quarantine_is_given_nothing_until_it_ends(shared_cluster: Cluster) -> None:
    shared_cluster.bot("doubtful")
    assert shared_cluster.client.set_bot("doubtful", quarantined="its disk is odd").quarantined == "its disk is odd"
    graph = shared_cluster.submit({"kept": script("true", task=only("doubtful"))})
    shared_cluster.submit({"other": script("true", task=only("main"))}).finished()
    assert (graph.states(), graph.attempts("kept")) == ({"kept": "waiting"}, [])
    shared_cluster.client.set_bot("doubtful", quarantined=None)
    graph.finished()


def test_changed_dimensions_take_effect_at_once(shared_cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "dimensions"
    file.write_text("lab=north\n")
    shared_cluster.bot("mover", "--dimensions-file", str(file))
    graph = shared_cluster.submit(
        {lab: script("true", task={"dimensions": {"lab": lab}}) for lab in ("north", "south")}
    )
    graph.until("north", "successful")
    assert graph.task("south").state == "waiting"
    file.write_text("lab=south\n")
    graph.finished()
    assert shared_cluster.client.bot("mover").dimensions["lab"] == ["south"]
    assert shared_cluster.client.dimensions().dimensions["lab"] == ["south"]


def test_bots_whose_clocks_are_years_away_work_like_all_others(shared_cluster: Cluster) -> None:
    path = f"{SHIFTED}:{ROOT / 'src'}:{ROOT}"
    years = {"ahead": 30, "behind": -30}
    for name, away in years.items():
        shared_cluster.bot(name, env={"PYTHONPATH": path, "LC_YEARS_AWAY": str(away)})
    graph = shared_cluster.submit(
        {
            f"{name}-{payload}": node(PAYLOADS[payload], reruns=1, task={**only(name), "deadline": "1h"})
            for name in years
            for payload in PAYLOADS
        }
    )
    graph.finished()
    asked = {name: float(graph.task(f"{name}-call").result) for name in years}
    apart = {name: round((moment - time.time()) / SECONDS_OF_A_YEAR) for name, moment in asked.items()}
    assert apart == years, "their clocks are as wrong as was wanted"
    for label in graph.names:
        (one,) = graph.attempts(label)
        assert one.stats is not None
        assert (one.signal, (one.stats.ran_ms or 0) < 600_000) == ("succeed", True)


def test_a_bot_enrols_with_a_token_for_one_and_keeps_its_own_over_restarts(shared_cluster: Cluster) -> None:
    token = shared_cluster.client.new_token("enrolment", "for one bot", pool="default").token
    around = {"TASKYARD_TOKEN": token}
    first = shared_cluster.bot("newcomer", env=around)
    kept = shared_cluster.folder / "bots" / "newcomer" / "enrolment"
    assert kept.stat().st_mode & 0o077 == 0
    assert token not in kept.read_text()
    shared_cluster.submit({"work": script("true", task=only("newcomer"))}).finished()
    first.end()
    shared_cluster.bot("newcomer", env=around)
    shared_cluster.submit({"work": script("true", task=only("newcomer"))}).finished()
    folder = shared_cluster.folder / "bots" / "thief"
    place = ["--name", "thief", "--state", str(folder), "--url", shared_cluster.url]
    with started(
        [USUAL, "bot", *place], shared_cluster.folder / "thief.log", {**shared_cluster.env(), **around}
    ) as thief:
        assert thief.wait(LEASE_MS / 1000) == 4
    assert "was used by another bot" in (shared_cluster.folder / "thief.log").read_text()


@pytest.mark.parametrize("comes_back", [True, False])
def test_prefetched_attempts_of_a_bot_that_is_killed_cost_no_retry(
    short_lease_cluster: Cluster, tmp_path: Path, comes_back: bool
) -> None:
    """Short calls teach a bot to take many at once, and the long ones behind them wait in its hands."""
    name = f"ahead-{comes_back}"
    file, opened, gate = tmp_path / "task_log", tmp_path / "opened", tmp_path / "gate"
    opened.touch()
    short = [f"short{number}" for number in range(400)]
    long = [f"long{number}" for number in range(40)]
    frail = {**only(name), "retries": 0}
    first = {**only(name), "retries": 1}
    tasks = {label: call("logged_until", str(file), str(opened), task=frail) for label in short}
    for label in long:
        tasks[label] = call("logged_until", str(file), str(gate), task=first if label == long[0] else frail)
    bot = short_lease_cluster.bot(name, slots=1)
    graph = short_lease_cluster.submit(tasks)
    graph.until("long0", "running")
    wait_for(lambda: graph.task("long0"), lambda one: one.reason == "under_way", "the server knows that it has begun")
    view = wait_for(
        lambda: short_lease_cluster.client.bot(name), lambda one: one.busy == 1, "what came before it has ended"
    )
    ahead = [
        one.label for one in short_lease_cluster.client.tasks(graph.id, state="running") if one.reason == "assigned"
    ]
    assert len(ahead) == view.assigned == graph.view().assigned > 0
    bot.kill(also_runner=True)
    until(lambda: bot.marked() == {}, "nothing of it is left")
    if comes_back:
        short_lease_cluster.bot(name, slots=1)
    else:
        short_lease_cluster.bot(name, slots=1, state=f"{name}-elsewhere")
    gate.touch()
    graph.finished()
    spared = ("return", "returned") if comes_back else ("lose", "returned")
    assert {label: [(one.signal, one.reason) for one in graph.attempts(label)][:-1] for label in long} == {
        label: [("lose", "bot_lost")] if label == long[0] else [spared] if label in ahead else [] for label in long
    }
    assert {
        label: len(listed) for label, listed in attempts_by_label(file).items() if label != long[0]
    } == dict.fromkeys([*short, *long[1:]], 2)


def test_a_cache_is_found_again_and_an_attempt_knows_what_its_bot_was(shared_cluster: Cluster) -> None:
    bot = shared_cluster.bot("warm", slots=1)
    show = "cat .npm/mark || echo cold; echo warm > .npm/mark"
    payload = {"script": show, "caches": {"npm": ".npm"}}
    graph = shared_cluster.submit(
        {"one": node(payload, task=only("warm")), "two": node(payload, "one", task=only("warm"))}
    )
    graph.finished()
    assert graph.output("two") == b"warm\n"
    wait_for(lambda: shared_cluster.client.bot("warm"), lambda one: one.caches == ["npm"], "it reports the cache")
    (attempt,) = graph.attempts("two")
    assert attempt.bot_dimensions is not None
    assert attempt.bot_dimensions["id"] == ["warm"]
    assert attempt.bot_version
    assert attempt.stats is not None
    assert attempt.stats.cached_ms is not None
    assert attempt.stats.cleaned_ms is not None
    bot.end()
    shared_cluster.client.delete_bot("warm")
    assert "warm" not in {one.id for one in shared_cluster.client.bots()}


def test_an_unfit_bot_leaves_its_tasks_to_others_until_it_is_fit(shared_cluster: Cluster, tmp_path: Path) -> None:
    fit = tmp_path / "fit"
    check = f"test -e {fit} || {{ echo the fan is broken; exit 1; }}"
    bot = shared_cluster.bot("unwell", "--check", check, "--check-every", "1s", slots=1)
    said = wait_for(lambda: shared_cluster.client.bot("unwell"), lambda one: one.quarantined is not None, "quarantine")
    assert said.quarantined == "check: the fan is broken"
    graph = shared_cluster.submit({"one": script("true", task=only("unwell"))})
    assert graph.states() == {"one": "waiting"}
    fit.touch()
    graph.finished()
    assert shared_cluster.client.bot("unwell").quarantined is None
    bot.end()
