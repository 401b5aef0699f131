"""An agent rides out what goes wrong: a server that is away, replies that are lost, a runner or itself killed."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.wire.bot_protocol import Poll
from tests.bot.yard import Answer, Yard, bot, served
from tests.cli.waiting import is_gone, until


@pytest.fixture
def yard() -> Iterator[Yard]:
    with served(Yard()) as one:
        yield one


def waiting_for(gate: Path, before: str = "", after: str = "") -> dict[str, str]:
    return {"script": f"{before}\nwhile [ ! -e {gate} ]; do sleep 0.02; done\n{after}"}


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path} is written")
    return int(path.read_text())


def test_a_poll_without_an_answer_is_repeated_by_its_name(yard: Yard, tmp_path: Path) -> None:
    lost: list[Poll] = []

    def lose_first_two(poll: Poll) -> str | None:
        if poll.want and len(lost) < 2:
            lost.append(poll)
            return "lose"
        return None

    yard.on_poll = lose_first_two
    task = yard.add({"command": ["echo", "once"]})
    with bot(yard, tmp_path):
        assert yard.report(task).signal == "succeed"
    assert lost == yard.polls[:2] == yard.polls[1:3], "word for word"
    assert yard.printed[task] == b"once\n"


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_that_is_away_gets_the_results_later(yard: Yard, tmp_path: Path, status: int) -> None:
    away: list[Poll] = []

    def be_away_for_reports(poll: Poll) -> Answer | None:
        if poll.reports and len(away) < 3:
            away.append(poll)
            return status, {"code": "busy"}
        return None

    yard.on_poll = be_away_for_reports
    task = yard.add({"script": "echo kept"})
    with bot(yard, tmp_path) as one:
        assert yard.report(task).signal == "succeed"
        assert one.end()[0] == 0
    assert yard.printed[task] == b"kept\n"


def test_a_server_that_restarts_is_ridden_out(tmp_path: Path) -> None:
    yard, gate = Yard(), tmp_path / "gate"
    with served(yard):
        port = int(yard.url.rpartition(":")[2])
        task = yard.add(waiting_for(gate, f"echo $$ > {tmp_path / 'pid'}", "echo done"))
        one = bot(yard, tmp_path / "state")
        running = one.__enter__()
        pid = pid_in(tmp_path / "pid")
    try:
        gate.touch()
        until(lambda: is_gone(pid), "the task ends while nobody listens")
        with served(yard, port):
            assert yard.report(task).signal == "succeed"
            assert running.end()[0] == 0
        assert yard.printed[task] == b"done\n"
    finally:
        one.__exit__(None, None, None)


def test_leases_are_renewed_with_progress_and_checkpoint(yard: Yard, tmp_path: Path) -> None:
    yard.lease_ms, gate = 900, tmp_path / "gate"
    says = 'echo half > "$TASKYARD_PROGRESS"; echo here > "$TASKYARD_CHECKPOINT"'
    task = yard.add(waiting_for(gate, says))
    with bot(yard, tmp_path / "state", slots=1):
        yard.until(lambda: sum(bool(poll.renewals) for poll in yard.polls) >= 5, "more than one lease's time")
        gate.touch()
        assert yard.report(task).signal == "succeed"
    assert (yard.progress, yard.checkpoints) == ({task: "half"}, {task: b"here\n"})
    told = [one for poll in yard.polls for one in poll.renewals if one.progress is not None]
    assert len(told) == 1, "what is not new is not told again"


def test_what_cannot_be_renewed_is_dead_in_time_and_lost(yard: Yard, tmp_path: Path) -> None:
    yard.lease_ms = 900
    yard.on_poll = lambda poll: (500, {}) if poll.renewals else None
    task = yard.add(waiting_for(tmp_path / "never", f"trap '' TERM; echo $$ > {tmp_path / 'pid'}"))
    with bot(yard, tmp_path / "state", slots=1):
        pid = pid_in(tmp_path / "pid")
        until(lambda: is_gone(pid), "nobody holds it, so it is killed")
        yard.on_poll = lambda _: None
        assert yard.report(task).signal == "lose"


def test_what_is_taken_away_is_ended_and_not_reported(yard: Yard, tmp_path: Path) -> None:
    yard.lease_ms = 900
    task = yard.add(waiting_for(tmp_path / "never", f"echo $$ > {tmp_path / 'pid'}"))
    yard.taken_away.add(task)
    with bot(yard, tmp_path / "state", slots=1) as one:
        pid = pid_in(tmp_path / "pid")
        until(lambda: is_gone(pid), "it is not ours any more")
        assert one.end()[0] == 0
    assert task not in yard.reports


def test_a_stop_ends_a_task_within_its_grace(yard: Yard, tmp_path: Path) -> None:
    yard.lease_ms = 900
    task = yard.add(waiting_for(tmp_path / "never", "trap 'echo bye; exit 5' TERM"))
    call = yard.add({"python": "tests.bot.agent_functions:hang", "args": [str(tmp_path / "pid")]})
    yard.stops.add(task)
    with bot(yard, tmp_path / "state"):
        pid_in(tmp_path / "pid")
        yard.stops.add(call)
        reports = [yard.report(one) for one in (task, call)]
    assert [(one.signal, one.reason, one.exit_code) for one in reports] == [
        ("fail", "exit_code", 5),
        ("fail", "signaled", -9),
    ]
    assert yard.printed[task].endswith(b"bye\n")


def test_a_call_that_is_stopped_before_its_worker_is_there_ends_as_well(yard: Yard, tmp_path: Path) -> None:
    yard.lease_ms = 90
    call = yard.add({"python": "time:sleep", "args": [60]})
    yard.stops.add(call)
    with bot(yard, tmp_path / "state"):
        assert yard.report(call).signal == "return"


def test_draining_finishes_what_runs_and_takes_nothing_more(yard: Yard, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    task = yard.add(waiting_for(gate, f"echo $$ > {tmp_path / 'pid'}"))
    with bot(yard, tmp_path / "state") as one:
        pid_in(tmp_path / "pid")
        one.program.send_signal(signal.SIGTERM)
        yard.until(lambda: yard.hellos[-1].draining, "the bot says that it drains")
        later = yard.add({"command": ["true"]})
        gate.touch()
        assert one.ended()[0] == 0
    assert (yard.reports[task].signal, later in yard.reports) == ("succeed", False)
    assert len(yard.goodbyes) == 1


def test_a_bot_that_is_told_to_end_finishes_what_it_has_and_takes_nothing_more(yard: Yard, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    task = yard.add(waiting_for(gate, f"echo $$ > {tmp_path / 'pid'}"))
    with bot(yard, tmp_path / "state") as one:
        pid_in(tmp_path / "pid")
        yard.terminate = True
        yard.until(lambda: yard.hellos[-1].draining, "the bot says that it drains")
        later = yard.add({"command": ["true"]})
        gate.touch()
        code, said = one.ended()
    assert (code, said.count("an admin asked this bot to end")) == (0, 1)
    assert (yard.reports[task].signal, later in yard.reports) == ("succeed", False)
    assert len(yard.goodbyes) == 1


def test_a_second_signal_kills_what_runs_and_loses_it(yard: Yard, tmp_path: Path) -> None:
    task = yard.add(waiting_for(tmp_path / "never", f"trap '' TERM; echo $$ > {tmp_path / 'pid'}"))
    call = yard.add({"python": "tests.bot.agent_functions:hang", "args": [str(tmp_path / "call")]})
    with bot(yard, tmp_path / "state") as one:
        pids = [pid_in(tmp_path / "pid"), pid_in(tmp_path / "call")]
        one.program.send_signal(signal.SIGINT)
        yard.until(lambda: yard.hellos[-1].draining, "the bot says that it drains")
        assert one.end(signal.SIGINT)[0] == 0
    assert [yard.reports[one].signal for one in (task, call)] == ["lose", "lose"]
    assert all(is_gone(pid) for pid in pids)
    assert len(yard.goodbyes) == 1


def test_a_bot_for_one_batch_ends_when_it_is_done(yard: Yard, tmp_path: Path) -> None:
    tasks = [yard.add({"command": ["true"]}) for _ in range(3)]
    with bot(yard, tmp_path, slots=2, once=True) as one:
        assert one.ended()[0] == 0
    assert [task in yard.reports for task in tasks] == [True, True, False]
    assert len(yard.goodbyes) == 1


def test_a_replaced_bot_ends_everything_and_says_why(yard: Yard, tmp_path: Path) -> None:
    yard.lease_ms = 6_000
    begun: list[int] = []
    replaced = (409, {"code": "session_replaced", "detail": "b1 again"})
    yard.on_poll = lambda poll: replaced if poll.renewals and begun else None
    yard.add(waiting_for(tmp_path / "never", f"trap '' TERM; echo $$ > {tmp_path / 'pid'}"))
    with bot(yard, tmp_path / "state") as one:
        pid = pid_in(tmp_path / "pid")
        begun.append(pid)
        code, said = one.ended()
    assert (code, said.splitlines()[-1]) == (
        1,
        "another bot has started under the same name; this one ends: 409 b1 again",
    )
    assert is_gone(pid)


def test_a_token_that_is_not_taken_ends_the_bot(yard: Yard, tmp_path: Path) -> None:
    yard.on_poll = lambda _: (401, {"code": "unauthorized", "detail": "no such token"})
    with bot(yard, tmp_path) as one:
        code, said = one.ended()
    assert (code, said.splitlines()[-1]) == (4, "the server rejects this bot's token: 401 no such token")


def test_a_server_that_forgot_the_session_is_told_hello_again(yard: Yard, tmp_path: Path) -> None:
    yard.on_poll = lambda _: (404, {"code": "no_session"}) if len(yard.hellos) == 1 else None
    task = yard.add({"command": ["true"]})
    with bot(yard, tmp_path):
        assert yard.report(task).signal == "succeed"
    assert len({one.session for one in yard.hellos}) == 1


def test_a_runner_that_is_killed_loses_what_it_ran_and_is_replaced(yard: Yard, tmp_path: Path) -> None:
    task = yard.add(
        waiting_for(tmp_path / "never", f"echo $PPID > {tmp_path / 'runner'}; echo $$ > {tmp_path / 'pid'}")
    )
    with bot(yard, tmp_path / "state") as one:
        runner, pid = pid_in(tmp_path / "runner"), pid_in(tmp_path / "pid")
        os.kill(runner, signal.SIGKILL)
        assert yard.report(task).signal == "lose"
        assert is_gone(pid), "nothing is left when it is reported"
        after = yard.add({"python": "operator:add", "args": [1, 1]}), yard.add({"command": ["true"]})
        assert [yard.report(task).signal for task in after] == ["succeed", "succeed"]
        assert one.end()[0] == 0


def test_a_new_life_clears_what_the_last_one_left_before_it_says_hello(yard: Yard, tmp_path: Path) -> None:
    yard.add(waiting_for(tmp_path / "never", f"echo $PPID > {tmp_path / 'runner'}; echo $$ > {tmp_path / 'pid'}"))
    with bot(yard, tmp_path / "state") as one:
        runner, pid = pid_in(tmp_path / "runner"), pid_in(tmp_path / "pid")
        os.kill(runner, signal.SIGSTOP)  # so that it cannot clear up itself
        one.program.kill()
    with bot(yard, tmp_path / "state") as again:
        yard.until(lambda: len(yard.hellos) == 2, "the new life says hello")
        assert (is_gone(pid), is_gone(runner)) == (True, True)
        assert again.end()[0] == 0
    assert yard.hellos[0].session != yard.hellos[1].session


def test_two_bots_never_share_a_folder(yard: Yard, tmp_path: Path) -> None:
    with bot(yard, tmp_path) as one:
        yard.until(lambda: yard.hellos, "the first is there")
        with bot(yard, tmp_path, name="b2") as other:
            code, said = other.ended()
        assert (code, said) == (
            1,
            f"another bot uses the state folder {tmp_path} (process {one.program.pid}); give this one its own\n",
        )


def test_dimensions_that_change_are_told_at_once(yard: Yard, tmp_path: Path) -> None:
    file = tmp_path / "dimensions"
    file.write_text("# ours\nlab=north\n")
    more = {"dimensions_file": str(file), "dimensions": {"os": ["mine"]}}
    with bot(yard, tmp_path / "state", **more) as one:
        yard.until(lambda: len(yard.hellos) == 1, "it is there")
        file.write_text("lab=south\nlab=east\n")
        yard.until(lambda: len(yard.hellos) == 2, "it says what changed")
        one.program.send_signal(signal.SIGHUP)
        yard.until(lambda: len(yard.hellos) == 3, "it says it again when it is told to")
    said = [one.dimensions for one in yard.hellos]
    assert [one["lab"] for one in said] == [["north"], ["south", "east"], ["south", "east"]]
    assert said[0]["os"] == ["mine"]
    assert re.fullmatch(r"[1-9][0-9]*", said[0]["cores"][0])


def test_a_bot_with_nothing_in_hand_ends_when_told_though_its_server_is_gone(tmp_path: Path) -> None:
    yard = Yard()
    with served(yard):
        one = bot(yard, tmp_path / "state")
        running = one.__enter__()
        yard.until(lambda: yard.polls, "it is at work")
    try:
        assert running.end()[0] == 0
    finally:
        one.__exit__(None, None, None)
