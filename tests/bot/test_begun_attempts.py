"""The file of begun attempts outlives its process: the next instance reads what began, however the last one died."""

import os
from pathlib import Path

import pytest

from taskyard.bot.begun_attempts import EMPTY_FROM_BYTES, FILE_BYTES, BegunFile, read_earlier, remove_earlier
from taskyard.wire.bot_protocol import Begun

A, B, C = ("0" * 15 + "a", 1, 7), ("0" * 15 + "b", 2, 8), ("0" * 15 + "c", 1, 9)


def read(folder: Path) -> set[tuple[str, int, int]] | None:
    found = read_earlier(folder)
    return None if found is None else {(one.task, one.attempt, one.fence) for one in found}


def test_the_next_instance_reads_what_began_without_what_was_taken_back(tmp_path: Path) -> None:
    instance = BegunFile(tmp_path / "begun", "one")
    instance.add([A, B, C], list)
    instance.drop([B], list)
    assert read(tmp_path / "begun") == {A, C}


def test_an_instance_that_began_nothing_says_so_and_a_first_one_does_not_know(tmp_path: Path) -> None:
    assert read(tmp_path / "begun") is None
    BegunFile(tmp_path / "begun", "one")
    assert read(tmp_path / "begun") == set()


def test_what_several_instances_began_is_reported_until_the_server_knows_it(tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    BegunFile(folder, "one").add([A], list)
    BegunFile(folder, "two").add([B], list)
    assert read(folder) == {A, B}
    BegunFile(folder, "three")
    remove_earlier(folder, "three")
    assert [one.name for one in folder.iterdir()] == ["three"]


def test_incomplete_and_invalid_lines_are_skipped(tmp_path: Path) -> None:
    instance = BegunFile(tmp_path / "begun", "one")
    instance.add([A], list)
    file = tmp_path / "begun" / "one"
    file.write_bytes(file.read_bytes().partition(b"\0")[0] + b"\xff\n+x y z\n\n+" + B[0].encode())
    assert read(tmp_path / "begun") == {A}


def test_an_unreadable_file_does_not_count_as_empty(tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    BegunFile(folder, "one").add([A], list)
    (folder / "one").write_bytes(b"+" * (FILE_BYTES + 1))
    assert read(folder) is None


def test_a_full_file_is_rewritten_with_what_still_runs(tmp_path: Path) -> None:
    instance = BegunFile(tmp_path / "begun", "one")
    for _ in range(FILE_BYTES // 1_000):
        instance.add([B] * 100, lambda: [A])
    instance.drop([B], lambda: [A])
    instance.add([C], lambda: [A])
    assert read(tmp_path / "begun") == {A, C}
    assert [one.name for one in (tmp_path / "begun").iterdir()] == ["one"]


def test_a_large_file_is_emptied_when_the_bot_has_no_attempt(tmp_path: Path) -> None:
    instance = BegunFile(tmp_path / "begun", "one")
    instance.add([A], list)
    instance.empty()
    assert read_earlier(tmp_path / "begun") == [Begun(*A)]
    instance.add([B] * EMPTY_FROM_BYTES, list)
    instance.empty()
    assert read(tmp_path / "begun") == set()
    instance.add([C], list)
    assert read(tmp_path / "begun") == {C}


def test_with_a_full_disk_it_is_unknown_what_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    instance = BegunFile(tmp_path / "begun", "one")
    instance.add([A], list)
    instance.empty()
    instance.close()
    assert read(tmp_path / "begun") is None
