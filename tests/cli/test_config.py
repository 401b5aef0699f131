"""`config`, `login` and `profile` with the real program."""

import json
import stat
from pathlib import Path

import pytest

from tests.cli.program import taskyard
from tests.cli.server_process import ServerProcess, home_env
from tests.cli.terminal import on_terminal
from tests.cli.waiting import DEADLINE_SECONDS, read_until


@pytest.fixture
def home(tmp_path: Path, shared_server: ServerProcess) -> Path:
    """The home folder of a user who has logged in."""
    done = taskyard(
        "login", shared_server.url, "--name", "mine", document=f"{shared_server.token}\n", env=home_env(tmp_path)
    )
    assert (done.returncode, done.stdout) == (0, "mine\n"), done.stderr
    return tmp_path


def settings(home: Path, *arguments: str, **env: str) -> dict[str, tuple[str | None, str]]:
    done = taskyard("config", "-o", "json", *arguments, cwd=home, env=home_env(home) | env)
    assert done.returncode == 0, done.stderr
    return {one["key"]: (one["value"], one["source"]) for one in json.loads(done.stdout)}


def test_after_a_login_no_options_are_needed(home: Path, shared_server: ServerProcess) -> None:
    assert taskyard("pools", "-o", "name", env=home_env(home)).stdout == "default\n"
    file = home / ".config/taskyard/config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert settings(home) == {
        "url": (shared_server.url, "profile mine"),
        "token": ("ty_user_****", "profile mine"),
        "profile": ("mine", str(file)),
        "ca_file": (None, "none"),
        "user file": (str(file), "exists"),
        "project file": (None, "does not exist"),
    }


def test_each_setting_is_shown_with_its_source(home: Path, shared_server: ServerProcess) -> None:
    (home / ".taskyard.toml").write_text('profile = "mine"\n')
    assert settings(home)["profile"] == ("mine", str(home / ".taskyard.toml"))
    assert settings(home)["project file"] == (str(home / ".taskyard.toml"), "exists")
    said = settings(home, "--token", "t", TASKYARD_URL="http://env")
    assert (said["url"], said["token"]) == (("http://env", "TASKYARD_URL"), ("****", "--token"))
    said = settings(home, "--profile", "mine", TASKYARD_URL="http://env", TASKYARD_TOKEN="t")  # noqa: S106
    assert (said["url"], said["profile"]) == ((shared_server.url, "profile mine"), ("mine", "--profile"))
    assert said["token"] == ("ty_user_****", "profile mine")


def test_a_project_file_cannot_name_a_stranger(home: Path) -> None:
    (home / ".taskyard.toml").write_text('url = "http://stranger.example"\n')
    done = taskyard("graphs", cwd=home, env=home_env(home))
    assert (done.returncode, done.stdout) == (2, "")
    assert "`taskyard login http://stranger.example`" in done.stderr


def test_a_token_that_the_server_does_not_take_is_not_kept(tmp_path: Path, shared_server: ServerProcess) -> None:
    done = taskyard("login", shared_server.url, document="ty_user_wrong\n", env=home_env(tmp_path))
    assert (done.returncode, done.stdout) == (4, "")
    assert not (tmp_path / ".config").exists()


def test_on_a_terminal_the_token_is_asked_for_and_not_seen(tmp_path: Path, shared_server: ServerProcess) -> None:
    import os  # noqa: PLC0415

    with on_terminal(["login", shared_server.url], home_env(tmp_path), tmp_path) as (program, person):
        text = read_until(person, "token: ", program)
        os.write(person, f"{shared_server.token}\n".encode())
        text += read_until(person, "commands now use it", program)
        assert program.wait(DEADLINE_SECONDS) == 0
    assert shared_server.token not in text


def test_profiles_are_listed_used_and_removed(home: Path, shared_server: ServerProcess) -> None:
    env = home_env(home)
    taskyard("login", shared_server.url, "--name", "other", "--no-use", document=f"{shared_server.token}\n", env=env)
    listed = json.loads(taskyard("profile", "-o", "json", env=env).stdout)
    assert [(one["name"], one["used"], one["token"]) for one in listed] == [
        ("mine", True, "ty_user_****"),
        ("other", False, "ty_user_****"),
    ]
    assert taskyard("profile", "use", "other", env=env).returncode == 0
    assert settings(home)["profile"][0] == "other"
    wrong = taskyard("profile", "remove", "othre", env=env)
    assert wrong.returncode == 2
    assert 'unknown profile "othre". Did you mean "other"?' in wrong.stderr
    assert taskyard("profile", "remove", "other", env=env).returncode == 0
    assert taskyard("profile", "list", "-o", "name", env=env).stdout == "mine\n"


@pytest.mark.parametrize("arguments", [["login", "http://127.0.0.1:1", "--name", "a b"], ["login", "http://"]])
def test_a_faulty_profile_name_is_reported(arguments: list[str], tmp_path: Path) -> None:
    done = taskyard(*arguments, document="x\n", env=home_env(tmp_path))
    assert done.returncode == 2
    assert "is not a profile name" in done.stderr
