"""How a server is found: by an option, the environment, a project file or a profile; and which token it gets."""

import os
import stat
from pathlib import Path

import click
import pytest

from taskyard.cli import profiles
from taskyard.cli.profiles import Profile, Target
from taskyard.sdk import Client, Unset
from taskyard.sdk.profiles import ProfileWarning
from tests.sdk.faulty_server import faulty_server, json_reply

FILE = """\
# mine, all mine
profile = "yard"  # the usual one

[profiles.yard]
url = "http://yard:1"
token = "of-the-yard"

[profiles.lab]
# slow, but mine
url = "https://lab"
token = "of-the-lab"
"""
YARD = Target("http://yard:1", "of-the-yard")
LAB = Target("https://lab", "of-the-lab")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TASKYARD_URL", "TASKYARD_TOKEN", "TASKYARD_PROFILE", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "below")
    return tmp_path


def write(home: Path, text: str = FILE) -> None:
    profiles.write_secret(home / "taskyard" / "config.toml", text)


def project(home: Path, text: str) -> None:
    (home / "project" / ".taskyard.toml").write_text(text)


def test_without_settings_the_default_server_is_used() -> None:
    assert profiles.find(None, None) == Target("http://127.0.0.1:8420", None)


def test_each_place_wins_over_those_below_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home)
    assert profiles.find(None, None) == YARD
    project(home, 'profile = "lab"\n')
    assert profiles.find(None, None) == LAB
    monkeypatch.setenv("TASKYARD_PROFILE", "yard")
    assert profiles.find(None, None) == YARD
    monkeypatch.setenv("TASKYARD_URL", "http://env:2")
    monkeypatch.setenv("TASKYARD_TOKEN", "of-the-env")
    assert profiles.find(None, None) == Target("http://env:2", "of-the-env")
    assert profiles.find(None, None, "lab") == LAB
    assert profiles.find("http://flag:3", "of-the-flag", "lab") == Target("http://flag:3", "of-the-flag")


def test_a_token_of_a_profile_never_goes_to_another_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home)
    assert profiles.find("http://other:1", None) == Target("http://other:1", None)
    assert profiles.find("http://lab", None) == Target("http://lab", None), "not without TLS"
    monkeypatch.setenv("TASKYARD_URL", "http://other:1")
    assert profiles.find(None, None) == Target("http://other:1", None)


@pytest.mark.parametrize("url", ["https://LAB/", "https://lab:443"])
def test_a_server_is_known_by_any_spelling_of_its_address(url: str, home: Path) -> None:
    write(home)
    assert profiles.find(url, None) == Target(url, "of-the-lab")


@pytest.mark.parametrize("variable", ["", "of-the-env"])
@pytest.mark.parametrize("flag", [None, "of-the-flag"])
def test_a_project_file_cannot_redirect_a_user_to_another_server(
    variable: str, flag: str | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home)
    monkeypatch.setenv("TASKYARD_TOKEN", variable)
    project(home, 'url = "https://stranger"\ntoken = "x"\n')
    with pytest.raises(click.UsageError, match="none of your profiles has, so nothing is sent there"):
        profiles.find(None, flag)
    assert profiles.find("https://stranger", flag).url == "https://stranger", "who says it oneself may"


def test_a_project_file_may_name_a_server_that_is_known(home: Path) -> None:
    write(home)
    project(home, 'url = "https://lab/"\n')
    assert profiles.find(None, None) == Target("https://lab/", "of-the-lab")


def test_a_project_file_may_name_this_machine_which_gets_no_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home)
    project(home, 'url = "http://127.0.0.1:9"\n')
    assert profiles.find(None, None) == Target("http://127.0.0.1:9", None)
    monkeypatch.setenv("TASKYARD_TOKEN", "of-the-env")
    with pytest.raises(click.UsageError, match="nothing is sent there"):
        profiles.find(None, None)


def test_a_token_in_a_project_file_is_ignored_with_a_warning(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home)
    project(home, 'profile = "lab"\ntoken = "x"\nulr = "y"\n')
    assert profiles.find(None, None) == LAB
    said = capsys.readouterr().err
    assert "a token in a project file is ignored" in said
    assert 'unknown key "ulr". Did you mean "url"?' in said


def test_a_project_file_of_another_user_is_left_aside(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home)
    project(home, 'profile = "lab"\n')
    monkeypatch.setattr(os, "getuid", lambda: os.stat(home).st_uid + 1)
    if os.stat(home).st_uid == 0:
        # What root wrote counts for everybody; a real stranger's file needs root to be made, which this is.
        os.chown(home / "project" / ".taskyard.toml", 4_711, 4_711)
    assert profiles.find(None, None) == YARD
    assert "belongs to another user" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["flag", "environment", "project"])
def test_an_unknown_profile_is_reported_with_the_nearest(
    where: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home)
    if where == "environment":
        monkeypatch.setenv("TASKYARD_PROFILE", "yrad")
    if where == "project":
        project(home, 'profile = "yrad"\n')
    with pytest.raises(click.UsageError, match=r'unknown profile "yrad"\. Did you mean "yard"\?'):
        profiles.find(None, None, "yrad" if where == "flag" else None)


@pytest.mark.parametrize("text", ["url = ", "profiles = 7", '[profiles.x]\nurl = 7\ntoken = ["x"]', "\xff\x00"])
def test_a_file_that_cannot_be_read_is_left_aside(text: str, home: Path) -> None:
    write(home, text)
    assert profiles.find(None, None) == Target("http://127.0.0.1:8420", None)


def test_tokens_that_others_can_read_cause_a_warning(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home)
    assert profiles.find(None, None) == YARD
    assert capsys.readouterr().err == ""
    profiles.path().chmod(0o644)
    assert profiles.find(None, None) == YARD
    assert f"chmod 600 {profiles.path()}" in capsys.readouterr().err


def test_an_edit_keeps_every_other_key_and_profile(home: Path) -> None:
    write(home)
    profiles.save(Profile("new", "http://new", 'a"\\\x7f\ntoken', by_up=True), use=False)
    profiles.save(Profile("lab", "http://moved", None), use=True)
    text = profiles.path().read_text()
    assert text.startswith('profile = "lab"\n\n[profiles.yard]\nurl = "http://yard:1"\n')
    assert profiles.read().profiles["new"] == Profile("new", "http://new", 'a"\\\x7f\ntoken', by_up=True)
    assert profiles.read().profiles["lab"] == Profile("lab", "http://moved")
    profiles.remove("lab")
    assert (profiles.read().default, sorted(profiles.read().profiles)) == (None, ["new", "yard"])
    assert stat.S_IMODE(profiles.path().stat().st_mode) == 0o600


def test_a_first_profile_makes_the_file() -> None:
    profiles.save(Profile("first", "http://first", "token"), use=True)
    assert (
        profiles.path().read_text() == 'profile = "first"\n\n[profiles.first]\nurl = "http://first"\ntoken = "token"\n'
    )
    profiles.use("first")
    assert profiles.find(None, None) == Target("http://first", "token")


def test_a_file_that_is_no_toml_is_not_touched(home: Path) -> None:
    write(home, "broken = \n")
    with pytest.raises(profiles.CannotEdit, match="edit it by hand"):
        profiles.save(Profile("first", "http://first", "token"), use=True)
    assert profiles.path().read_text() == "broken = \n"


def test_folders_are_where_the_specification_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert profiles.data_folder() == home / ".local/share/taskyard"
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert profiles.data_folder() == home / ".local/share/taskyard"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "elsewhere"))
    assert profiles.data_folder() == home / "elsewhere" / "taskyard"


def test_a_client_goes_where_the_command_line_goes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_server() as server:
        write(home, f'profile = "here"\n[profiles.here]\nurl = "{server.url}"\ntoken = "of-here"\n')
        server.reply_with(*[json_reply({"items": []})] * 4)
        for made in (Client(), Client(server.url), Client(profile="here")):
            with made as client:
                assert (client.url, client.pools()) == (server.url, [])
        monkeypatch.setenv("TASKYARD_TOKEN", "of-the-env")
        with Client() as client:
            client.pools()
        heard = [one.headers["authorization"] for one in server.asked]
        assert heard == [*["Bearer of-here"] * 3, "Bearer of-the-env"]
    project(home, 'url = "https://stranger"\n')
    with pytest.raises(Unset, match="none of your profiles has, so nothing is sent there"):
        Client()
    with pytest.raises(Unset, match=r'unknown profile "heer"\. Did you mean "here"'):
        Client(profile="heer")


def test_a_client_warns_of_faults_in_a_profile_file(home: Path) -> None:
    write(home)
    project(home, 'profile = "lab"\ntoken = "x"\n')
    with pytest.warns(ProfileWarning, match="a token in a project file is ignored"), Client() as client:
        assert client.url == "https://lab"
