"""A state folder: one bot at a time uses it, and its name shows whether the bot before had the very same folder."""

import shutil
from pathlib import Path

import pytest

from taskyard.bot.state_folder import StateFolder, StateFolderInUse


def named(folder: Path, marker: str = "", engine: str = "local") -> str:
    """Return the name of a folder in one instance of its bot."""
    state = StateFolder(folder)
    try:
        return state.session_prefix(marker or f"{folder}#bot", engine)
    finally:
        state.close()


def test_a_folder_keeps_its_name_over_all_instances_of_its_bot(tmp_path: Path) -> None:
    assert named(tmp_path / "state") == named(tmp_path / "state")


def test_another_folder_another_bot_and_a_copy_have_other_names(tmp_path: Path) -> None:
    first = named(tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    others = [
        named(tmp_path / "other"),
        named(tmp_path / "state", "another mark"),
        named(tmp_path / "copy"),
        named(tmp_path / "copy", f"{tmp_path / 'state'}#bot"),  # as a folder in another container may be called
        named(tmp_path / "state", engine="celery"),
    ]
    assert len({first, *others}) == 6


def test_after_a_restart_of_the_machine_a_folder_has_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = named(tmp_path / "state")
    monkeypatch.setattr("taskyard.bot.state_folder._boot_id", lambda: "another start")
    assert named(tmp_path / "state") != before


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    with pytest.raises(StateFolderInUse, match="another bot uses the state folder"):
        StateFolder(tmp_path)
    state.close()
