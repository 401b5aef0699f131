"""Which server is meant: a flag, the environment, the profile, the default; and whose token goes where."""

import stat
from pathlib import Path

import pytest

from taskyard.cli import profile
from taskyard.cli.profile import Target

PROFILE = 'url = "http://yard:1"\ntoken = "of-the-profile"\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TASKYARD_URL", "TASKYARD_TOKEN", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(home: Path, text: str) -> None:
    (home / "taskyard").mkdir()
    (home / "taskyard" / "profile.toml").write_text(text)


def test_nothing_said_is_the_default() -> None:
    assert profile.find(None, None) == Target("http://127.0.0.1:8420", None)


def test_a_flag_wins_over_the_environment_and_that_over_the_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, PROFILE)
    assert profile.find(None, None) == Target("http://yard:1", "of-the-profile")
    monkeypatch.setenv("TASKYARD_URL", "http://env:2")
    monkeypatch.setenv("TASKYARD_TOKEN", "of-the-env")
    assert profile.find(None, None) == Target("http://env:2", "of-the-env")
    assert profile.find("http://flag:3", "of-the-flag") == Target("http://flag:3", "of-the-flag")


def test_a_token_of_the_profile_never_goes_to_another_server(home: Path) -> None:
    write(home, PROFILE)
    assert profile.find("http://other:1", None) == Target("http://other:1", None)
    assert profile.find("http://yard:1/", None) == Target("http://yard:1/", "of-the-profile")


@pytest.mark.parametrize("text", ["url = ", 'url = 7\ntoken = ["x"]', "\xff\x00"])
def test_a_profile_that_cannot_be_read_is_left_aside(text: str, home: Path) -> None:
    write(home, text)
    assert profile.find(None, None) == Target("http://127.0.0.1:8420", None)


def test_a_kept_profile_is_its_owner_s_alone_and_written_anew_by_the_next_yard() -> None:
    assert profile.keep("http://127.0.0.1:5", 'a"\\token')
    assert profile.keep("http://127.0.0.1:6", "another")
    assert profile.find(None, None) == Target("http://127.0.0.1:6", "another")
    assert stat.S_IMODE(profile.path().stat().st_mode) == 0o600


def test_a_profile_that_a_person_wrote_is_not_overwritten(home: Path) -> None:
    write(home, PROFILE)
    assert not profile.keep("http://127.0.0.1:5", "token")
    assert profile.path().read_text() == PROFILE


def test_folders_are_where_the_specification_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert profile.yard_folder() == home / ".local/share/taskyard"
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert profile.yard_folder() == home / ".local/share/taskyard"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "elsewhere"))
    assert profile.yard_folder() == home / "elsewhere" / "taskyard"
