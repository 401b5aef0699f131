"""The file of the attempts that a bot has handed to Celery."""

from pathlib import Path

import msgspec
import pytest

from taskyard.bot.engines.celery import journal
from taskyard.bot.engines.celery.journal import Journal
from taskyard.bot.engines.protocol import Adoptable, EngineUnusable
from taskyard.wire.bot_protocol import Lease


def lease(number: int) -> Lease:
    payload = msgspec.Raw(b'{"script":"a password"}')
    return Lease(f"{number:016x}", 1, 7, 60_000, "0" * 16, f"t{number}", payload, "a token", msgspec.Raw(b"{}"))


def keys(found: Adoptable) -> list[str]:
    return [one.label for one in found.leases]


def test_the_next_instance_finds_what_is_in_hand_and_nothing_secret(tmp_path: Path) -> None:
    file = tmp_path / "engine"
    first = Journal(file, "f/1")
    assert first.adoptable == Adoptable()
    first.add([lease(1), lease(2), lease(3)])
    first.remove([(lease(2).task, 1)])
    text = file.read_bytes()
    assert b"password" not in text
    assert b"token" not in text.replace(b'"token":""', b"")
    second = Journal(file, "f/2")  # the first was killed
    assert (second.adoptable.session, keys(second.adoptable)) == ("f/1", ["t1", "t3"])
    assert {one.fence for one in second.adoptable.leases} == {7}
    third = Journal(file, "f/3")
    assert (third.adoptable.session, keys(third.adoptable)) == ("f/2", ["t1", "t3"])
    for one in (first, second, third):
        one.close()


def test_a_line_that_was_not_written_to_its_end_does_not_count_and_other_damage_is_told(tmp_path: Path) -> None:
    file = tmp_path / "engine"
    one = Journal(file, "f/1")
    one.add([lease(1)])
    one.close()
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"lease":{"task"')
    again = Journal(file, "f/2")
    assert keys(again.adoptable) == ["t1"]
    again.close()
    file.write_bytes(b"damage\n" + whole)
    with pytest.raises(EngineUnusable, match="delete it once the leases"):
        Journal(file, "f/3")


def test_a_large_file_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FILE_BYTES_MAX", 1_000)
    file = tmp_path / "engine"
    one = Journal(file, "f/1")
    for number in range(50):
        one.add([lease(number)])
        if number:
            one.remove([(lease(number).task, 1)])
        assert file.stat().st_size < 2_000
    one.close()
    again = Journal(file, "f/2")
    assert keys(again.adoptable) == ["t0"]
    again.close()
