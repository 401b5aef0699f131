"""Checkouts of real repositories: over files, over ssh and https with stand-ins for the other side; hostile ones."""

import base64
import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from taskyard.files.collect import collect
from tests.bot.own_programs import run_program

TOKEN = "canary-of-the-token"  # noqa: S105
KEY = "-----BEGIN KEY-----\ncanary-of-the-key\n-----END KEY-----"
#: A program in the place of ssh: it notes how it is called, checks the key, and serves the repository from here.
SSH = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
open({log!r}, "a").write(repr(words) + "\\n")
key = words[words.index("-i") + 1]
if open(key).read() != {key!r} or os.stat(key).st_mode & 0o077:
    sys.exit("Permission denied (publickey).")
sys.exit(subprocess.run(words[-1], shell=True).returncode)
"""


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    own |= {f"GIT_{who}_{what}": "ann@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *words], cwd=folder, env=own, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(work: Path, **files: str) -> str:
    """Commit files, and push them; return the revision."""
    for name, text in files.items():
        (work / name).write_text(text)
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "--message", "more")
    git(work, "push", "--quiet", "origin", "HEAD")
    return git(work, "rev-parse", "HEAD")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A clone of a bare repository beside it, with one commit on `main`."""
    bare, folder = tmp_path / "bare.git", tmp_path / "clone"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    git(tmp_path, "clone", "--quiet", str(bare), str(folder))
    git(folder, "checkout", "--quiet", "-b", "main")
    (folder / "roles").mkdir()
    (folder / "roles" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "roles" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("roles/run.sh")
    commit(folder, **{"site.yml": "- hosts: all\n", ".hidden": "x"})
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The working folder of an attempt, with the empty cache of the repository."""
    folder = tmp_path / "place"
    (folder / "repository").mkdir(parents=True)
    return folder


def check_out(place: Path, url: object, **more: Any) -> tuple[int, str, Any]:
    """Check out in a working folder whose cache may have been used before."""
    if (place / "tree").exists():
        (place / "tree").rename(place / f"tree-{len(list(place.iterdir()))}")
    return run_program("git", url, place, **more)


def names(place: Path) -> list[str]:
    tree = collect(str(place / "tree"), ["**"])
    return sorted([one.path for one in tree.files] + [one.path for one in tree.links])


def test_a_branch_is_written_without_the_repository_and_again_from_the_cache(work: Path, place: Path) -> None:
    url = str(work.parent / "bare.git")
    first = git(work, "rev-parse", "HEAD")
    code, said, result = check_out(place, url)
    assert code == 0, said
    assert (result["revision"], result["branch"], result["files"]) == (first, "main", 4)
    assert names(place) == [".hidden", "link", "roles/run.sh", "site.yml"]
    assert os.access(place / "tree" / "roles" / "run.sh", os.X_OK)
    assert not os.access(place / "tree" / "site.yml", os.X_OK)
    assert os.readlink(place / "tree" / "link") == "roles/run.sh"
    second = commit(work, **{"site.yml": "- hosts: web\n", "new.yml": "x"})
    code, said, result = check_out(place, {"url": f"file://{url}", "branch": "main"})
    assert (code, result and result["revision"]) == (0, second), said
    assert (place / "tree" / "site.yml").read_text() == "- hosts: web\n"
    git(work, "rm", "--quiet", "new.yml")
    third = commit(work)
    assert check_out(place, url)[2]["revision"] == third
    assert "new.yml" not in names(place), "what is gone is gone"


def test_branches_tags_and_commits_are_found_and_what_is_not_there_fails(work: Path, place: Path) -> None:
    url = str(work.parent / "bare.git")
    first = git(work, "rev-parse", "HEAD")
    git(work, "tag", "--annotate", "--message", "one", "v1")
    git(work, "push", "--quiet", "origin", "v1")
    git(work, "checkout", "--quiet", "-b", "feature/x")
    second = commit(work, more="x")
    for branch, revision in (("v1", first), ("feature/x", second), (first, first), (second, second)):
        code, said, result = check_out(place, {"url": url, "branch": branch})
        assert (code, result and result["revision"]) == (0, revision), said
        assert result["branch"] == (None if branch == revision else branch)
    code, said, result = check_out(place, {"url": url, "branch": "gone"})
    assert (code, result) == (1, None)
    assert said == f"taskyard: there is no branch, tag or commit gone in {url}\n"
    assert check_out(place, {"url": url, "branch": "0" * 40})[0] == 1
    code, said, _ = check_out(place, str(work.parent / "nowhere.git"))
    assert (code, "does not appear to be a git repository" in said) == (1, True), said


def test_a_broken_cache_is_fetched_anew(work: Path, place: Path) -> None:
    url = str(work.parent / "bare.git")
    assert check_out(place, url)[0] == 0
    for pack in (place / "repository" / "objects").rglob("*"):
        if pack.is_file():
            pack.chmod(0o600)
            pack.write_bytes(b"broken")
    commit(work, more="x")
    code, said, _ = check_out(place, url)
    assert code == 0, said
    assert "it is fetched anew" in said
    assert "more" in names(place)


def test_nothing_in_a_repository_or_a_cache_is_run(work: Path, place: Path) -> None:
    canary = work.parent / "ran"
    run = f"touch {canary}"
    (work / ".gitattributes").write_text("* filter=evil\n")
    git(work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(work.parent / "bare.git"), "sub")
    commit(work)
    url = str(work.parent / "bare.git")
    code, said, _ = check_out(place, url)
    assert code == 0, said
    assert [one for one in names(place) if one.startswith("sub")] == [], "submodules are not followed"
    repository = place / "repository"
    with (repository / "config").open("a") as config:
        config.write(f'[filter "evil"]\n\tsmudge = {run}; cat\n[core]\n\tsshCommand = {run}\n\tfsmonitor = {run}\n')
    (repository / "hooks").mkdir(exist_ok=True)
    for hook in ("reference-transaction", "post-checkout", "post-index-change"):
        (repository / "hooks" / hook).write_text(f"#!/bin/sh\n{run}\n")
        (repository / "hooks" / hook).chmod(0o755)
    commit(work, more="x")
    code, said, _ = check_out(place, url)
    assert code == 0, said
    assert "more" in names(place)
    assert not canary.exists()
    # The server refuses such a URL; the bot would not run it either.
    code, said, _ = check_out(place, f"ext::sh -c '{run}' %S")
    assert (code, "transport 'ext' not allowed" in said) == (1, True), said
    assert not canary.exists()


def test_a_repository_that_is_too_large_is_refused(work: Path, place: Path) -> None:
    (work / "large").write_bytes(os.urandom(100_000))
    revision = commit(work)
    url = str(work.parent / "bare.git")
    code, said, result = check_out(place, url, bounds={"TREE_BYTES_MAX": 50_000})
    assert (code, result) == (1, None)
    assert said.endswith(f"taskyard: the files of {revision} have 100036 bytes; at most 50000\n"), said
    shutil.rmtree(place / "repository")
    (place / "repository").mkdir()
    code, said, result = check_out(place, url, bounds={"PACK_BYTES_MAX": 50_000})
    assert (code, result, "git fetch ended with exit code" in said) == (1, None, True), said


def test_an_ssh_key_is_a_file_and_in_no_argument(work: Path, place: Path) -> None:
    programs = place / "bin"
    programs.mkdir()
    log = place / "ssh.log"
    (programs / "ssh").write_text(SSH.format(python=sys.executable, log=str(log), key=KEY + "\n"))
    (programs / "ssh").chmod(0o755)
    key = place / "key"
    key.write_text(KEY)
    key.chmod(0o400)
    env = {"PATH": f"{programs}:/usr/bin:/bin", "TASKYARD_SSH_KEY": str(key)}
    url = f"git@host.example:{work.parent / 'bare.git'}"
    code, said, result = check_out(place, {"url": url, "ssh_key": "deploy"}, env=env)
    assert (code, result and result["branch"]) == (0, "main"), said
    called = log.read_text()
    assert "StrictHostKeyChecking=accept-new" in called
    assert "canary" not in called


def test_a_token_is_given_over_https_to_its_host_alone(work: Path, place: Path) -> None:
    git(work, "tag", "v1")
    with served(work.parent, place) as (url, certificate, asked):
        token = place / "token"
        token.write_text(TOKEN)
        env = {"GIT_SSL_CAINFO": certificate, "TASKYARD_GIT_TOKEN": str(token)}
        checkout = {"url": f"{url}/bare.git", "token": "t", "user": "oauth2"}
        code, said, result = check_out(place, checkout, env=env)
        assert (code, result and result["branch"]) == (0, "main"), said
        assert base64.b64decode(asked[-1].removeprefix("Basic ")).decode() == f"oauth2:{TOKEN}"
        assert TOKEN not in said
        token.write_text("another-token")
        code, said, _ = check_out(place, checkout, env=env)
        assert (code, "Authentication failed" in said) == (1, True), said
        del asked[:]
        code, said, _ = check_out(place, {**checkout, "url": f"{url}/elsewhere/bare.git"}, env=env)
        assert code == 1, said
        assert not any(TOKEN in one for one in asked)


def test_the_tree_of_a_revision_is_the_same_wherever_it_is_checked_out(work: Path, place: Path) -> None:
    (work / ".gitattributes").write_text("*.yml text eol=lf\n*.bin -text\n")
    (work / "a.bin").write_bytes(b"\r\n\0")
    commit(work)
    (place / ".gitconfig").write_text("[core]\n\tautocrlf = true\n\teol = crlf\n\tsymlinks = false\n")
    url = str(work.parent / "bare.git")
    assert check_out(place, url)[0] == 0
    with_settings = collect(str(place / "tree"), ["**"]).ref().digest
    (place / ".gitconfig").unlink()
    assert check_out(place, url)[0] == 0
    assert collect(str(place / "tree"), ["**"]).ref().digest == with_settings
    assert hashlib.sha256((place / "tree" / "a.bin").read_bytes()).digest() == hashlib.sha256(b"\r\n\0").digest()


@contextmanager
def served(root: Path, folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Serve repositories over https to who knows the token; note every `Authorization`."""
    certificate, key = str(folder / "tls.crt"), str(folder / "tls.key")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, capture_output=True)
    asked: list[str] = []

    class Backend(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            said = self.headers.get("Authorization", "")
            asked.append(said)
            if said != "Basic " + base64.b64encode(f"oauth2:{TOKEN}".encode()).decode():
                self._answer(401, [("WWW-Authenticate", 'Basic realm="git"')], b"")
                return
            path, _, query = self.path.partition("?")
            env = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_ADDR": "127.0.0.1",
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "HOME": str(folder),
            }  # fmt: skip
            done = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=True)
            head, _, rest = done.stdout.partition(b"\r\n\r\n")
            pairs = [tuple(line.split(": ", 1)) for line in head.decode().splitlines()]
            status = next((int(value.split()[0]) for name, value in pairs if name == "Status"), 200)
            self._answer(status, [(name, value) for name, value in pairs if name != "Status"], rest)

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://localhost:{server.server_address[1]}", certificate, asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
