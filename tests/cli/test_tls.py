"""https between a server and commands, the client, a bot and its tasks; and a warning about plain http."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.sdk import Client, Unreachable, Unset, http
from taskyard.sdk.http import InsecureWarning, plaintext_token_warning
from tests.cli.program import graph, taskyard
from tests.cli.server_process import home_env, start_program
from tests.cli.waiting import read_until


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for this machine, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "yard.pem", folder / "yard.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=yard", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def home(tmp_path: Path, pair: tuple[Path, Path]) -> Iterator[dict[str, str]]:
    """The environment of the user of a server with this certificate."""
    cert, key = pair
    words = [
        "serve",
        "--port",
        "0",
        "--data",
        str(tmp_path),
        "--tls-cert",
        str(cert),
        "--tls-key",
        str(key),
        "-o",
        "json",
    ]
    with start_program(words, tmp_path) as program:
        assert program.stdout is not None
        told = json.loads(read_until(program.stdout.fileno(), "\n", program))
        assert told["url"].startswith("https://127.0.0.1:")
        yield home_env(tmp_path) | {"TASKYARD_URL": told["url"], "TASKYARD_TOKEN": told["token"]}


def test_a_client_that_does_not_trust_the_authority_sends_no_token(
    home: dict[str, str], pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "WAIT_SECONDS", 0.001)
    cert = str(pair[0])
    refused = taskyard("pools", env=home)
    assert refused.returncode == 1
    assert "certificate" in refused.stderr
    for words, more in ((["--ca-file", cert], {}), ([], {"TASKYARD_CA_FILE": cert})):
        served = taskyard("pools", "-o", "name", *words, env=home | more)
        assert (served.returncode, served.stdout) == (0, "default\n"), served.stderr
        assert "warning" not in served.stderr
    with pytest.raises(Unreachable, match="certificate"):
        Client(home["TASKYARD_URL"], home["TASKYARD_TOKEN"]).pools()
    client = Client(home["TASKYARD_URL"], home["TASKYARD_TOKEN"], ca_file=cert)
    assert [one.name for one in client.pools()] == ["default"]
    client.close()
    bare = {name: text for name, text in home.items() if not name.startswith("TASKYARD_")}
    made = taskyard("login", home["TASKYARD_URL"], "--ca-file", cert, document=home["TASKYARD_TOKEN"], env=bare)
    assert made.returncode == 0, made.stderr
    assert taskyard("pools", "-o", "name", env=bare).stdout == "default\n"


def test_a_bot_and_its_tasks_speak_to_a_server_behind_a_certificate(
    home: dict[str, str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    cert = str(pair[0])
    env = home | {"TASKYARD_CA_FILE": cert}
    token = tmp_path / "bot.token"
    token.write_text(taskyard("token", "create", "--kind", "bot", "--name", "b", "--pool", "default", env=env).stdout)
    code = "from taskyard import Client; yard = Client.from_environment(); print(len(list(yard.tasks(yard.own_graph))))"
    payload = {"command": [sys.executable, "-c", code]}
    document = graph({"ask": {"task": {"payload": payload, "dimensions": {"pool": "default"}}}})
    words = ["bot", "--url", home["TASKYARD_URL"], "--token-file", str(token), "--ca-file", cert, "--slots", "1"]
    own = tmp_path / "of-the-bot"
    own.mkdir()
    with start_program(words, own):
        done = taskyard("submit", "--wait", "-o", "json", "-", document=document, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("what", ["missing", "nonsense", "key of another", "key alone"])
def test_a_bad_certificate_is_refused_before_the_first_request(
    what: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = (str(one) for one in pair)
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("no certificate")
    said = {
        "missing": (["--tls-cert", str(tmp_path / "none")], f"cannot read {tmp_path / 'none'}"),
        "nonsense": (["--tls-cert", str(nonsense), "--tls-key", key], "are not a certificate in PEM form with its key"),
        "key of another": (["--tls-cert", cert], "are not a certificate in PEM form with its key"),
        "key alone": (["--tls-key", key], "--tls-key needs a certificate: add --tls-cert PATH"),
    }
    words, text = said[what]
    done = taskyard("serve", "--port", "0", "--data", str(tmp_path), *words, env=home_env(tmp_path))
    assert done.returncode == (2 if what == "key alone" else 1)
    assert text in done.stderr


def test_a_faulty_ca_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_text("no certificate")
    for file, why in (("none", "cannot read the CA file"), ("nonsense", "has no certificate of an authority")):
        with pytest.raises(Unset, match=why):
            Client("https://127.0.0.1:1", "x", ca_file=str(tmp_path / file))
        for words in (["pools"], ["bot", "--state", str(tmp_path / "state")]):
            env = home_env(tmp_path) | {"TASKYARD_URL": "https://127.0.0.1:1", "TASKYARD_TOKEN": "x"}
            done = taskyard(*words, "--ca-file", str(tmp_path / file), env=env)
            assert done.returncode != 0
            assert why in done.stderr


def test_a_token_that_goes_to_another_machine_in_the_open_is_warned_of(tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:1", "http://localhost", "http://[::1]:1", "https://yard.example"):
        assert plaintext_token_warning(url, "x") is None
    assert plaintext_token_warning("http://yard.example", None) is None
    with pytest.warns(InsecureWarning, match=r"yard\.example over plain HTTP"):
        Client("http://yard.example", "x")
    env = home_env(tmp_path) | {"TASKYARD_URL": "http://0.0.0.0:1", "TASKYARD_TOKEN": "x"}
    done = taskyard("pools", env=env)
    assert done.stderr.startswith("warning: the token goes to 0.0.0.0 over plain HTTP"), done.stderr
    done = taskyard("bot", "--once", "--ca-file", str(tmp_path / "none"), env=env)
    assert done.stderr.startswith("warning: the token goes to 0.0.0.0 over plain HTTP"), done.stderr
