"""Bots come, change and go: what they run is theirs alone, and nothing of it is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taskyard.core.fleet import LEASE_MS
from tests.cli.waiting import until
from tests.e2e.documents import call, gated, node, only, script
from tests.e2e.witness import lives
from tests.e2e.yard import ROOT, USUAL, Yard, seen, started

#: Where the clock is found that is wrong by years.
SHIFTED = Path(__file__).parent / "shifted"
SECONDS_OF_A_YEAR = 365 * 86_400
PAYLOADS = {"call": {"python": "time:time"}, "script": {"script": "echo told", "timeout": "10m", "io_timeout": "10m"}}


def test_a_pinned_task_waits_for_its_bot_though_others_are_idle(shared: Yard) -> None:
    graph = shared.submit({f"t{number}": script("true", task=only("pinned")) for number in range(6)})
    shared.submit({"other": script("true", task=only("main"))}).finished()
    assert set(graph.states().values()) == {"waiting"}
    shared.bot("pinned", slots=1)
    graph.finished()
    assert {one.bot for label in graph.names for one in graph.attempts(label)} == {"pinned"}


def test_nothing_survives_a_bot_that_is_killed_and_its_next_life_goes_on_at_once(shared: Yard, tmp_path: Path) -> None:
    # Children that leave their session and their parent are the hardest to find.
    first = (
        f'[ "$TASKYARD_ATTEMPT" = 2 ] || {{ setsid sh -c "sleep 600 & sleep 600" & echo $$ > {tmp_path}/pid; wait; }}'
    )
    bot = shared.bot("mortal")
    graph = shared.submit(
        {"script": script(first, task=only("mortal")), "call": call("hang", f"{tmp_path}/call", task=only("mortal"))}
    )
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "call").exists(), "both run")
    assert len(bot.marked()) >= 6, "runner, worker and its child, shell and what it left"
    bot.kill()
    until(lambda: bot.marked() == {}, "the runner ends everything, and itself")
    (tmp_path / "call").unlink()
    shared.bot("mortal")
    until((tmp_path / "call").exists, "the call is made again")
    graph.until("script", "successful")
    assert [(one.bot, one.signal) for one in graph.attempts("script")] == [("mortal", "lose"), ("mortal", "succeed")]
    assert [one.signal for one in graph.attempts("call")] == ["lose", None]


def test_a_bot_that_is_told_to_end_does_after_what_it_has_and_the_next_one_works(shared: Yard, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    bot = shared.bot("spent", slots=1)
    graph = shared.submit({"had": gated(gate, task=only("spent")), "later": script("true", task=only("spent"))})
    graph.until("had", "running")
    command = [sys.executable, "-m", "taskyard", "bots", "set", "spent", "--terminate"]
    env = shared.env() | {"TASKYARD_URL": shared.url, "TASKYARD_TOKEN": shared.token}
    assert b"ending" in subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout
    until(lambda: shared.client.bot("spent").draining, "it has heard")
    gate.touch()
    assert bot.ended() == 0
    shown = shared.client.bot("spent")
    assert (shown.terminated, shown.ending, graph.states()["had"]) == (True, True, "successful")
    assert graph.task("later").attempt == 0
    shared.bot("spent", slots=1)
    graph.finished()
    assert shared.client.bot("spent").ending is False


def test_nothing_survives_an_agent_and_a_runner_that_are_killed_at_once(shared: Yard, tmp_path: Path) -> None:
    bot = shared.bot("doomed")
    hang = (
        f'[ "$TASKYARD_ATTEMPT" = 2 ] || {{ setsid sh -c "sleep 600 & sleep 600" & echo $$ > {tmp_path}/pid; wait; }}'
    )
    graph = shared.submit({"work": script(hang, task=only("doomed"))})
    until(lambda: (tmp_path / "pid").exists() and len(bot.marked()) >= 5, "runner, watchdog, shell and what it left")
    bot.kill(also_runner=True)
    until(lambda: bot.marked() == {}, "the watchdog ends everything, and itself")
    shared.bot("doomed")
    graph.finished()


def test_a_twin_gets_what_the_first_has_given_back_long_before_its_lease_is_over(shared: Yard, tmp_path: Path) -> None:
    first = shared.bot("twofold", state="twofold-1")
    hang = f'[ "$TASKYARD_ATTEMPT" = 2 ] || {{ echo $$ > {tmp_path}/pid; sleep 600; }}'
    graph = shared.submit({"work": script(hang, task=only("twofold"))})
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", "it runs")
    shared.bot("twofold", state="twofold-2")
    graph.finished()
    assert first.ended() == 1
    one, two = graph.attempts("work")
    assert (one.signal, two.signal) == ("lose", "succeed")
    connected = next(event for event in shared.client.bot_events("twofold") if event.kind == "connected")
    assert one.ended_ms is not None
    assert connected.at_ms <= one.ended_ms < one.claimed_ms + LEASE_MS, "by its goodbye, not by the clock"
    assert connected.note.startswith("in another folder or on another machine")


def test_what_went_wrong_with_a_bot_is_told_between_what_it_ran(shared: Yard, tmp_path: Path) -> None:
    runner = shared.bot("ailing", slots=1).runner
    shared.submit({"none": node({"command": ["no-such-program"]}, task=only("ailing"))}).settled()
    shared.submit({"gone": node({"python": "os:_exit", "args": [3]}, task=only("ailing"))}).settled()
    graph = shared.submit({"work": gated(tmp_path / "gate", task=only("ailing"))})
    graph.until("work", "running")
    os.kill(runner, signal.SIGKILL)
    (tmp_path / "gate").touch()
    graph.finished()
    errors = {
        "cannot start 'no-such-program': there is no such program": True,
        "a warm worker died during a call (exit code 3)": True,
        "the runner died; what it ran is lost": False,
    }

    def told() -> dict[str, bool]:
        return {one.note: one.task is not None for one in shared.client.bot_events("ailing") if one.kind == "error"}

    seen(told, lambda found: found == errors, "all three are told")
    notes = [one.note for one in shared.client.bot_events("ailing") if one.kind == "task_ended"]
    assert notes == ["succeed: done", "lose: bot_lost", "fail: exit_code", "fail: exit_code"]


def test_a_bot_that_is_told_to_end_finishes_what_runs_and_takes_nothing_more(shared: Yard, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    bot = shared.bot("drained")
    graph = shared.submit({"runs": gated(gate, after="echo whole", task=only("drained"))})
    graph.until("runs", "running")
    bot.program.send_signal(signal.SIGTERM)
    seen(lambda: shared.client.bot("drained"), lambda one: one.draining, "it says that it drains")
    late = shared.submit({"late": script("true", task=only("drained"))})
    gate.touch()
    assert bot.ended() == 0
    assert (graph.settled().state, graph.output("runs")) == ("finished", b"whole\n")
    assert (late.states(), late.attempts("late")) == ({"late": "waiting"}, [])
    assert shared.client.bot("drained").alive is False
    shared.client.cancel_graph(late.id)


def test_a_bot_in_quarantine_is_given_nothing_until_it_ends(shared: Yard) -> None:
    shared.bot("doubtful")
    assert shared.client.set_bot("doubtful", quarantined="its disk is odd").quarantined == "its disk is odd"
    graph = shared.submit({"kept": script("true", task=only("doubtful"))})
    shared.submit({"other": script("true", task=only("main"))}).finished()
    assert (graph.states(), graph.attempts("kept")) == ({"kept": "waiting"}, [])
    shared.client.set_bot("doubtful", quarantined=None)
    graph.finished()


def test_changed_dimensions_take_effect_at_once(shared: Yard, tmp_path: Path) -> None:
    file = tmp_path / "dimensions"
    file.write_text("lab=north\n")
    shared.bot("mover", "--dimensions-file", str(file))
    graph = shared.submit({lab: script("true", task={"dimensions": {"lab": lab}}) for lab in ("north", "south")})
    graph.until("north", "successful")
    assert graph.task("south").state == "waiting"
    file.write_text("lab=south\n")
    graph.finished()
    assert shared.client.bot("mover").dimensions["lab"] == ["south"]
    assert shared.client.dimensions().dimensions["lab"] == ["south"]


def test_bots_whose_clocks_are_years_away_work_like_all_others(shared: Yard) -> None:
    path = f"{SHIFTED}:{ROOT / 'src'}:{ROOT}"
    years = {"ahead": 30, "behind": -30}
    for name, away in years.items():
        shared.bot(name, env={"PYTHONPATH": path, "LC_YEARS_AWAY": str(away)})
    graph = shared.submit(
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


def test_a_bot_enrols_with_a_token_for_one_and_keeps_its_own_over_its_lives(shared: Yard) -> None:
    token = shared.client.new_token("enrolment", "for one bot", pool="default").token
    around = {"TASKYARD_TOKEN": token}
    first = shared.bot("newcomer", env=around)
    kept = shared.folder / "bots" / "newcomer" / "enrolment"
    assert kept.stat().st_mode & 0o077 == 0
    assert token not in kept.read_text()
    shared.submit({"work": script("true", task=only("newcomer"))}).finished()
    first.end()
    shared.bot("newcomer", env=around)
    shared.submit({"work": script("true", task=only("newcomer"))}).finished()
    folder = shared.folder / "bots" / "thief"
    place = ["--name", "thief", "--state", str(folder), "--url", shared.url]
    with started([USUAL, "bot", *place], shared.folder / "thief.log", {**shared.env(), **around}) as thief:
        assert thief.wait(LEASE_MS / 1000) == 4
    assert "was used by another bot" in (shared.folder / "thief.log").read_text()


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_was_handed_ahead_to_a_bot_that_is_killed_costs_no_retry(
    hasty: Yard, tmp_path: Path, comes_back: bool
) -> None:
    """Short calls teach a bot to take many at once, and the long ones behind them wait in its hands."""
    name = f"ahead-{comes_back}"
    file, opened, gate = tmp_path / "witness", tmp_path / "opened", tmp_path / "gate"
    opened.touch()
    short = [f"short{number}" for number in range(400)]
    long = [f"long{number}" for number in range(40)]
    frail = {**only(name), "retries": 0}
    first = {**only(name), "retries": 1}
    tasks = {label: call("witnessed_until", str(file), str(opened), task=frail) for label in short}
    for label in long:
        tasks[label] = call("witnessed_until", str(file), str(gate), task=first if label == long[0] else frail)
    bot = hasty.bot(name, slots=1)
    graph = hasty.submit(tasks)
    graph.until("long0", "running")
    seen(lambda: graph.task("long0"), lambda one: one.reason == "under_way", "the server knows that it has begun")
    view = seen(lambda: hasty.client.bot(name), lambda one: one.busy == 1, "what came before it has ended")
    ahead = [one.label for one in hasty.client.tasks(graph.id, state="running") if one.reason == "assigned"]
    assert len(ahead) == view.assigned == graph.view().assigned > 0
    bot.kill(also_runner=True)
    until(lambda: bot.marked() == {}, "nothing of it is left")
    if comes_back:
        hasty.bot(name, slots=1)
    else:
        hasty.bot(name, slots=1, state=f"{name}-elsewhere")
    gate.touch()
    graph.finished()
    spared = ("return", "returned") if comes_back else ("lose", "returned")
    assert {label: [(one.signal, one.reason) for one in graph.attempts(label)][:-1] for label in long} == {
        label: [("lose", "bot_lost")] if label == long[0] else [spared] if label in ahead else [] for label in long
    }
    assert {label: len(told) for label, told in lives(file).items() if label != long[0]} == dict.fromkeys(
        [*short, *long[1:]], 2
    )
