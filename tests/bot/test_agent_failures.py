"""An agent survives failures: an unavailable server, lost replies, a killed runner, its own death."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.wire.bot_protocol import Poll
from tests.bot.fake_server import Answer, FakeServer, bot, serving
from tests.cli.waiting import is_gone, until


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


def waiting_for(gate: Path, before: str = "", after: str = "") -> dict[str, str]:
    return {"script": f"{before}\nwhile [ ! -e {gate} ]; do sleep 0.02; done\n{after}"}


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path} is written")
    return int(path.read_text())


def test_a_poll_without_an_answer_is_repeated_unchanged(server: FakeServer, tmp_path: Path) -> None:
    lost: list[Poll] = []

    def lose_first_two(poll: Poll) -> str | None:
        if poll.want and len(lost) < 2:
            lost.append(poll)
            return "lose"
        return None

    server.on_poll = lose_first_two
    task = server.add({"command": ["echo", "once"]})
    with bot(server, tmp_path):
        assert server.report(task).signal == "succeed"
    assert lost == server.polls[:2] == server.polls[1:3], "word for word"
    assert server.printed[task] == b"once\n"


@pytest.mark.parametrize("status", [500, 503, 429])
def test_results_are_sent_once_the_server_is_available_again(server: FakeServer, tmp_path: Path, status: int) -> None:
    away: list[Poll] = []

    def be_away_for_reports(poll: Poll) -> Answer | None:
        if poll.reports and len(away) < 3:
            away.append(poll)
            return status, {"code": "busy"}
        return None

    server.on_poll = be_away_for_reports
    task = server.add({"script": "echo kept"})
    with bot(server, tmp_path) as one:
        assert server.report(task).signal == "succeed"
        assert one.end()[0] == 0
    assert server.printed[task] == b"kept\n"


def test_a_bot_survives_a_restart_of_its_server(tmp_path: Path) -> None:
    server, gate = FakeServer(), tmp_path / "gate"
    with serving(server):
        port = int(server.url.rpartition(":")[2])
        task = server.add(waiting_for(gate, f"echo $$ > {tmp_path / 'pid'}", "echo done"))
        one = bot(server, tmp_path / "state")
        running = one.__enter__()
        pid = pid_in(tmp_path / "pid")
    try:
        gate.touch()
        until(lambda: is_gone(pid), "the task ends while the server is away")
        with serving(server, port):
            assert server.report(task).signal == "succeed"
            assert running.end()[0] == 0
        assert server.printed[task] == b"done\n"
    finally:
        one.__exit__(None, None, None)


def test_leases_are_renewed_with_progress_and_checkpoint(server: FakeServer, tmp_path: Path) -> None:
    server.lease_ms, gate = 900, tmp_path / "gate"
    says = 'echo half > "$TASKYARD_PROGRESS"; echo here > "$TASKYARD_CHECKPOINT"'
    task = server.add(waiting_for(gate, says))
    with bot(server, tmp_path / "state", slots=1):
        server.wait_until(lambda: sum(bool(poll.renewals) for poll in server.polls) >= 5, "more than one lease's time")
        gate.touch()
        assert server.report(task).signal == "succeed"
    assert (server.progress, server.checkpoints) == ({task: "half"}, {task: b"here\n"})
    sent = [one for poll in server.polls for one in poll.renewals if one.progress is not None]
    assert len(sent) == 1, "progress that is not new is not sent again"


def test_an_attempt_that_cannot_be_renewed_is_dead_in_time_and_lost(server: FakeServer, tmp_path: Path) -> None:
    server.lease_ms = 900
    task = server.add(waiting_for(tmp_path / "never", f"trap '' TERM; echo $$ > {tmp_path / 'pid'}"))
    with bot(server, tmp_path / "state", slots=1):
        pid = pid_in(tmp_path / "pid")
        server.on_poll = lambda poll: (500, {}) if poll.renewals else None
        until(lambda: is_gone(pid), "its lease ends, so it is killed")
        server.on_poll = lambda _: None
        assert server.report(task).signal == "lose"


def test_a_revoked_attempt_is_killed_and_not_reported(server: FakeServer, tmp_path: Path) -> None:
    server.lease_ms = 900
    task = server.add(waiting_for(tmp_path / "never", f"echo $$ > {tmp_path / 'pid'}"))
    with bot(server, tmp_path / "state", slots=1) as one:
        pid = pid_in(tmp_path / "pid")
        server.taken_away.add(task)
        until(lambda: is_gone(pid), "the server has taken it away")
        assert one.end()[0] == 0
    assert task not in server.reports


def test_a_stop_ends_a_task_within_its_grace(server: FakeServer, tmp_path: Path) -> None:
    server.lease_ms = 900
    task = server.add(waiting_for(tmp_path / "never", f"trap 'echo bye; exit 5' TERM; echo $$ > {tmp_path / 'script'}"))
    call = server.add({"python": "tests.bot.agent_functions:hang", "args": [str(tmp_path / "pid")]})
    with bot(server, tmp_path / "state"):
        pid_in(tmp_path / "script")
        pid_in(tmp_path / "pid")
        server.stops.update((task, call))
        reports = [server.report(one) for one in (task, call)]
    assert [(one.signal, one.reason, one.exit_code) for one in reports] == [
        ("fail", "exit_code", 5),
        ("fail", "signaled", -9),
    ]
    assert server.printed[task].endswith(b"bye\n")


def test_a_call_that_is_stopped_before_its_worker_has_started_is_returned(server: FakeServer, tmp_path: Path) -> None:
    server.lease_ms = 90
    call = server.add({"python": "time:sleep", "args": [60]})
    server.stops.add(call)
    with bot(server, tmp_path / "state"):
        assert server.report(call).signal == "return"


def test_a_draining_bot_finishes_its_tasks_and_takes_no_more(server: FakeServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    task = server.add(waiting_for(gate, f"echo $$ > {tmp_path / 'pid'}"))
    with bot(server, tmp_path / "state") as one:
        pid_in(tmp_path / "pid")
        one.program.send_signal(signal.SIGTERM)
        server.wait_until(lambda: server.hellos[-1].draining, "the bot says that it drains")
        later = server.add({"command": ["true"]})
        gate.touch()
        assert one.ended()[0] == 0
    assert (server.reports[task].signal, later in server.reports) == ("succeed", False)
    assert len(server.goodbyes) == 1


def test_a_bot_ended_by_an_admin_finishes_its_tasks_and_takes_no_more(server: FakeServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    task = server.add(waiting_for(gate, f"echo $$ > {tmp_path / 'pid'}"))
    with bot(server, tmp_path / "state") as one:
        pid_in(tmp_path / "pid")
        server.terminate = True
        server.wait_until(lambda: server.hellos[-1].draining, "the bot says that it drains")
        later = server.add({"command": ["true"]})
        gate.touch()
        code, log = one.ended()
    assert (code, log.count("an admin asked this bot to end")) == (0, 1)
    assert (server.reports[task].signal, later in server.reports) == ("succeed", False)
    assert len(server.goodbyes) == 1


def test_a_second_signal_kills_running_tasks_and_loses_them(server: FakeServer, tmp_path: Path) -> None:
    task = server.add(waiting_for(tmp_path / "never", f"trap '' TERM; echo $$ > {tmp_path / 'pid'}"))
    call = server.add({"python": "tests.bot.agent_functions:hang", "args": [str(tmp_path / "call")]})
    with bot(server, tmp_path / "state") as one:
        pids = [pid_in(tmp_path / "pid"), pid_in(tmp_path / "call")]
        one.program.send_signal(signal.SIGINT)
        server.wait_until(lambda: server.hellos[-1].draining, "the bot says that it drains")
        assert one.end(signal.SIGINT)[0] == 0
    assert [server.reports[one].signal for one in (task, call)] == ["lose", "lose"]
    assert all(is_gone(pid) for pid in pids)
    assert len(server.goodbyes) == 1


def test_a_bot_for_one_batch_ends_after_that_batch(server: FakeServer, tmp_path: Path) -> None:
    tasks = [server.add({"command": ["true"]}) for _ in range(3)]
    with bot(server, tmp_path, slots=2, once=True) as one:
        assert one.ended()[0] == 0
    assert [task in server.reports for task in tasks] == [True, True, False]
    assert len(server.goodbyes) == 1


def test_a_replaced_bot_kills_its_tasks_and_says_why(server: FakeServer, tmp_path: Path) -> None:
    server.lease_ms = 6_000
    begun: list[int] = []
    replaced = (409, {"code": "session_replaced", "detail": "b1 again"})
    server.on_poll = lambda poll: replaced if poll.renewals and begun else None
    server.add(waiting_for(tmp_path / "never", f"trap '' TERM; echo $$ > {tmp_path / 'pid'}"))
    with bot(server, tmp_path / "state") as one:
        pid = pid_in(tmp_path / "pid")
        begun.append(pid)
        code, log = one.ended()
    assert (code, log.splitlines()[-1]) == (
        1,
        "another bot has started under the same name; this one ends: 409 b1 again",
    )
    assert is_gone(pid)


def test_a_rejected_token_ends_the_bot(server: FakeServer, tmp_path: Path) -> None:
    server.on_poll = lambda _: (401, {"code": "unauthorized", "detail": "no such token"})
    with bot(server, tmp_path) as one:
        code, log = one.ended()
    assert (code, log.splitlines()[-1]) == (4, "the server rejects this bot's token: 401 no such token")


def test_a_bot_sends_hello_again_to_a_server_that_forgot_its_session(server: FakeServer, tmp_path: Path) -> None:
    server.on_poll = lambda _: (404, {"code": "no_session"}) if len(server.hellos) == 1 else None
    task = server.add({"command": ["true"]})
    with bot(server, tmp_path):
        assert server.report(task).signal == "succeed"
    assert len({one.session for one in server.hellos}) == 1


def test_a_killed_runner_loses_its_runs_and_is_replaced(server: FakeServer, tmp_path: Path) -> None:
    task = server.add(
        waiting_for(tmp_path / "never", f"echo $PPID > {tmp_path / 'runner'}; echo $$ > {tmp_path / 'pid'}")
    )
    with bot(server, tmp_path / "state") as one:
        runner, pid = pid_in(tmp_path / "runner"), pid_in(tmp_path / "pid")
        os.kill(runner, signal.SIGKILL)
        assert server.report(task).signal == "lose"
        assert is_gone(pid), "nothing is left when it is reported"
        after = server.add({"python": "operator:add", "args": [1, 1]}), server.add({"command": ["true"]})
        assert [server.report(task).signal for task in after] == ["succeed", "succeed"]
        assert one.end()[0] == 0


def test_a_new_instance_kills_what_the_last_one_left_before_its_hello(server: FakeServer, tmp_path: Path) -> None:
    server.add(waiting_for(tmp_path / "never", f"echo $PPID > {tmp_path / 'runner'}; echo $$ > {tmp_path / 'pid'}"))
    with bot(server, tmp_path / "state") as one:
        runner, pid = pid_in(tmp_path / "runner"), pid_in(tmp_path / "pid")
        os.kill(runner, signal.SIGSTOP)  # so that it cannot clean up
        one.program.kill()
    with bot(server, tmp_path / "state") as again:
        server.wait_until(lambda: len(server.hellos) == 2, "the new instance sends its hello")
        assert (is_gone(pid), is_gone(runner)) == (True, True)
        assert again.end()[0] == 0
    assert server.hellos[0].session != server.hellos[1].session


def test_two_bots_never_share_a_state_folder(server: FakeServer, tmp_path: Path) -> None:
    with bot(server, tmp_path) as one:
        server.wait_until(lambda: server.hellos, "the first is there")
        with bot(server, tmp_path, name="b2") as other:
            code, log = other.ended()
        assert (code, log) == (
            1,
            f"another bot uses the state folder {tmp_path} (process {one.program.pid}); give this one its own\n",
        )


def test_changed_dimensions_are_sent_at_once(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "dimensions"
    file.write_text("# ours\nlab=north\n")
    more = {"dimensions_file": str(file), "dimensions": {"os": ["mine"]}}
    with bot(server, tmp_path / "state", **more) as one:
        server.wait_until(lambda: len(server.hellos) == 1, "it is there")
        file.write_text("lab=south\nlab=east\n")
        server.wait_until(lambda: len(server.hellos) == 2, "it says what changed")
        one.program.send_signal(signal.SIGHUP)
        server.wait_until(lambda: len(server.hellos) == 3, "it says it again at SIGHUP")
    sent = [one.dimensions for one in server.hellos]
    assert [one["lab"] for one in sent] == [["north"], ["south", "east"], ["south", "east"]]
    assert sent[0]["os"] == ["mine"]
    assert re.fullmatch(r"[1-9][0-9]*", sent[0]["cores"][0])


def test_an_idle_bot_ends_at_a_signal_though_its_server_is_gone(tmp_path: Path) -> None:
    server = FakeServer()
    with serving(server):
        one = bot(server, tmp_path / "state")
        running = one.__enter__()
        server.wait_until(lambda: server.polls, "it is at work")
    try:
        assert running.end()[0] == 0
    finally:
        one.__exit__(None, None, None)
