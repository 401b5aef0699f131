"""The files of attempts beside a server that is away, wrong or full: no attempt stays in hand, none is blamed."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskyard.bot import files as bot_files
from taskyard.bot.attempts import LeasedAttempt
from taskyard.bot.config import BotConfig
from taskyard.bot.files import ARTIFACTS_MAX, Patience
from taskyard.bot.payloads import Artifact, FileSpec
from taskyard.bot.server_client import TRIES_MAX, InputsUnavailable, MachineFault
from taskyard.files.digests import TreeFile, make_tree, sha256, tree_text
from taskyard.sdk.errors import Overloaded, ServerFault, Unreachable
from taskyard.sdk.files import Upload
from taskyard.wire.api import Problem
from taskyard.wire.bot_protocol import Lease
from tests.bot.fake_server import Answer, FakeServer, bot, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


def problem(status: int) -> Problem:
    return Problem(type="", status=status, code="unavailable", title="", detail="the disk of the files is full")


def test_an_attempt_ends_although_the_server_answers_nonsense_about_its_outputs(
    server: FakeServer, tmp_path: Path
) -> None:
    """An error that nobody foresees must not leave the attempt running for ever."""
    server.files = lambda path, _: (200, {"digest": 7} if path.endswith("/trees") else {})
    task = server.add({"script": "echo x > x", "outputs": ["x"]})
    with bot(server, tmp_path):
        report = server.report(task)
        assert (report.signal, report.reason) == ("fail", "bad_result")
        server.wait_until(lambda: server.troubles, "the report of the trouble")
        assert b"taskyard: the outputs cannot be kept" in server.printed[task]
        after = server.add({"command": ["true"]})
        assert server.report(after).signal == "succeed", "no slot is lost"


def test_inputs_that_are_not_what_was_asked_for_never_reach_the_task(server: FakeServer, tmp_path: Path) -> None:
    good, other = sha256(b"good"), sha256(b"evil")
    tree = make_tree([TreeFile("a", 4, (good,))])
    wrong = make_tree([TreeFile("a", 4, (other,))])

    def answers(text: bytes, chunk: bytes) -> "Any":
        def answer(path: str, _: bytes) -> Answer:
            if path.endswith("/inputs/files"):
                return 200, {"items": [{"pool": "p", "tree": sha256(tree_text(tree)), "path": None, "to": None}]}
            return (200, text) if "/trees/" in path else (200, len(chunk).to_bytes(4, "big") + chunk)

        return answer

    def given(text: bytes, chunk: bytes) -> str:
        server.files = answers(text, chunk)
        return server.add({"script": "cat a", "inputs": [sha256(tree_text(tree))]})

    with bot(server, tmp_path):
        for text, chunk, said in (
            (tree_text(wrong), b"evil", b"is damaged"),
            (tree_text(tree), b"evil", b"missing or damaged"),
            (b"no tree at all", b"good", b"is damaged"),
            (tree_text(tree), b"", b"missing or damaged"),
        ):
            task = given(text, chunk)
            assert (server.report(task).signal, server.report(task).exit_code) == ("fail", 126)
            assert said in server.printed[task], said
        task = given(tree_text(tree), b"good")
        assert server.report(task).signal == "succeed"
        assert server.printed[task] == b"good"


def test_a_transfer_waits_while_the_server_is_away_or_full_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bot_files, "PAUSE_SECONDS", 0.0001)
    monkeypatch.setattr(bot_files, "PAUSE_SECONDS_MAX", 0.0001)
    told: list[str] = []
    troubles = iter([Overloaded(problem(503)), Unreachable("http://yard", "it is away")] * (2 * TRIES_MAX))

    def act() -> str:
        for error in troubles:
            raise error
        return "done"

    assert Patience(lambda: False, told.append).repeat(act) == "done"
    assert told == ["the disk of the files is full"]
    failures = iter([ServerFault(problem(500))] * TRIES_MAX)

    def fail() -> None:
        raise next(failures)

    with pytest.raises(ServerFault):
        Patience(lambda: False, told.append).repeat(fail)
    with pytest.raises(InterruptedError):
        Patience(lambda: True, told.append).repeat(lambda: (_ for _ in ()).throw(Unreachable("http://yard", "away")))


def test_a_full_disk_of_a_bot_is_not_the_fault_of_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(number: int) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(bot_files, "_inputs", full)
        transfers = bot_files.FileTransfers(BotConfig("http://yard", "", "b", 1, tmp_path), "p", lambda *_: None)
        lease = Lease("t", 1, 1, 1, "g", "l", payload=None, token="")  # type: ignore[arg-type]
        transfers._fetch(LeasedAttempt(lease, ("t", 1), 1, 0, 0, 0, None), "", Patience(lambda: False, lambda _: None))

    with pytest.raises(MachineFault, match="No space left"):
        fetched(errno.ENOSPC)
    with pytest.raises(InputsUnavailable, match="File name too long"):
        fetched(errno.ENAMETOOLONG)


def test_artifacts_go_out_in_requests_that_the_server_takes() -> None:
    count = 2 * ARTIFACTS_MAX + 1
    spec = FileSpec(False, tuple(Artifact(str(number), str(number)) for number in range(count)))
    tree = make_tree(TreeFile(str(number), 0) for number in range(count))
    bodies = list(bot_files._left("p", tree, Upload(tree.ref()), spec))
    assert [body.count(b'"name"') for body in bodies] == [ARTIFACTS_MAX, ARTIFACTS_MAX, 1]
    assert len(list(bot_files._left("p", tree, Upload(tree.ref()), FileSpec(False, ())))) == 1
