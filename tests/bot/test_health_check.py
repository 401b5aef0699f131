"""A bot whose machine is unfit says so, and asks for no work until it is fit again."""

from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.bot.fake_server import Bot, FakeServer, bot, serving

HOUR_S = 3_600.0


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


def check(command: str, every_s: float = HOUR_S) -> dict[str, object]:
    return {"command": command, "every_s": every_s}


def asked(server: FakeServer) -> bool:
    return any(poll.want for poll in server.polls)


def test_a_bot_whose_check_fails_is_quarantined_with_its_text_and_asks_for_nothing_until_it_passes(
    server: FakeServer, tmp_path: Path
) -> None:
    fit = tmp_path / "fit"
    task = server.add({"command": ["true"]})
    with bot(server, tmp_path / "state", check=check(f"test -e {fit} || {{ echo no  GPU; exit 3; }}", 0.1)):
        server.wait_until(lambda: any(one.quarantined for one in server.hellos), "the quarantine")
        server.wait_until(lambda: server.troubles, "the trouble")
        assert not asked(server)
        fit.touch()
        server.report(task)
    assert [one.quarantined for one in server.hellos][:3] == [None, "check: no GPU", None]
    assert server.troubles[0].text == "check: no GPU"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("exit 7", "the check ended with exit code 7"),
        ("kill -9 $$", "the check ended with exit code -9"),
        ("yes | head -c 300000; exit 1", "check: " + "y " * 500),
    ],
)
def test_a_check_that_prints_nothing_or_too_much_is_reported_in_one_line(
    server: FakeServer, tmp_path: Path, command: str, text: str
) -> None:
    with bot(server, tmp_path / "state", check=check(command)):
        server.wait_until(lambda: any(one.quarantined for one in server.hellos), "the quarantine")
    assert text.strip() in {(one.quarantined or "").strip() for one in server.hellos}


def runs(log: Path) -> int:
    return log.read_text().count("run") if log.exists() else 0


def test_a_check_runs_before_work_is_asked_for_and_not_again_before_its_time(
    server: FakeServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with bot(server, tmp_path / "state", check=check(f"echo run >> {log}")):
        for _ in range(3):
            server.report(server.add({"command": ["true"]}))
    assert runs(log) == 1


def test_a_check_runs_again_after_its_time_while_tasks_run(server: FakeServer, tmp_path: Path) -> None:
    log, done = tmp_path / "log", tmp_path / "done"
    task = server.add({"script": f"while ! test -e {done}; do sleep 0.05; done"})
    with bot(server, tmp_path / "state", check=check(f"echo run >> {log}", 0.05)):
        while runs(log) < 3:
            server.report(server.add({"command": ["true"]}))
        done.touch()
        assert server.report(task).signal == "succeed"


def test_a_check_runs_again_after_an_infrastructure_failure(server: FakeServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    task = server.add({"command": ["sleep", "600"]})
    with bot(server, tmp_path / "state", check=check(f"echo run >> {log}")) as one:
        server.wait_until(lambda: any(poll.begun for poll in server.polls), "its begin")
        runner(one).kill()
        assert server.report(task).signal == "lose"
        server.report(server.add({"command": ["true"]}))
    assert runs(log) == 2


def runner(one: Bot) -> psutil.Process:
    (found,) = (
        child for child in psutil.Process(one.program.pid).children() if "taskyard.bot.runner" in child.cmdline()
    )
    return found
