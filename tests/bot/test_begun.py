"""What a life of a bot has begun outlives it: what is read back is what began, whatever it died of."""

import os
from pathlib import Path

import pytest

from taskyard.bot.begun_attempts import EMPTY_FROM_BYTES, FILE_BYTES, BegunFile, read_earlier, remove_earlier
from taskyard.wire.bot_protocol import Begun

A, B, C = ("0" * 15 + "a", 1, 7), ("0" * 15 + "b", 2, 8), ("0" * 15 + "c", 1, 9)


def read(folder: Path) -> set[tuple[str, int, int]] | None:
    found = read_earlier(folder)
    return None if found is None else {(one.task, one.attempt, one.fence) for one in found}


def test_what_began_is_read_by_the_next_life_and_what_was_taken_back_is_not(tmp_path: Path) -> None:
    life = BegunFile(tmp_path / "begun", "one")
    life.add([A, B, C], list)
    life.drop([B], list)
    assert read(tmp_path / "begun") == {A, C}


def test_a_life_that_began_nothing_says_so_and_a_first_life_does_not_know(tmp_path: Path) -> None:
    assert read(tmp_path / "begun") is None
    BegunFile(tmp_path / "begun", "one")
    assert read(tmp_path / "begun") == set()


def test_what_several_lives_began_is_told_until_the_server_has_heard_it(tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    BegunFile(folder, "one").add([A], list)
    BegunFile(folder, "two").add([B], list)
    assert read(folder) == {A, B}
    BegunFile(folder, "three")
    remove_earlier(folder, "three")
    assert [one.name for one in folder.iterdir()] == ["three"]


def test_a_line_that_was_not_written_to_its_end_and_one_that_makes_no_sense_are_passed_over(tmp_path: Path) -> None:
    life = BegunFile(tmp_path / "begun", "one")
    life.add([A], list)
    file = tmp_path / "begun" / "one"
    file.write_bytes(file.read_bytes().partition(b"\0")[0] + b"\xff\n+x y z\n\n+" + B[0].encode())
    assert read(tmp_path / "begun") == {A}


def test_a_file_that_cannot_be_read_is_not_taken_for_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    BegunFile(folder, "one").add([A], list)
    (folder / "one").write_bytes(b"+" * (FILE_BYTES + 1))
    assert read(folder) is None


def test_a_file_that_is_full_begins_anew_with_what_goes_on(tmp_path: Path) -> None:
    life = BegunFile(tmp_path / "begun", "one")
    for _ in range(FILE_BYTES // 1_000):
        life.add([B] * 100, lambda: [A])
    life.drop([B], lambda: [A])
    life.add([C], lambda: [A])
    assert read(tmp_path / "begun") == {A, C}
    assert [one.name for one in (tmp_path / "begun").iterdir()] == ["one"]


def test_a_file_is_emptied_when_nothing_is_in_hand_but_not_each_time(tmp_path: Path) -> None:
    life = BegunFile(tmp_path / "begun", "one")
    life.add([A], list)
    life.empty()
    assert read_earlier(tmp_path / "begun") == [Begun(*A)]
    life.add([B] * EMPTY_FROM_BYTES, list)
    life.empty()
    assert read(tmp_path / "begun") == set()
    life.add([C], list)
    assert read(tmp_path / "begun") == {C}


def test_without_room_on_the_disk_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    life = BegunFile(tmp_path / "begun", "one")
    life.add([A], list)
    life.empty()
    life.close()
    assert read(tmp_path / "begun") is None
