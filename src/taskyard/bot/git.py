"""The program that checks out a repository: `python -m taskyard.bot.git FILE`.

The files of a revision are written to `tree` in the working folder, which the bot keeps as outputs; the repository is
in a cache of the bot, so that only what is new is fetched. Neither the repository nor the cache is trusted: git speaks
only some protocols, runs no hooks and no LFS, follows no submodules, and what it gets is bounded.

A key or a token comes as a file. Its path is in an argument or a variable of git, its value in none.
"""

import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from taskyard.bot.own_program import key_file, private_folder, program, run, say, take_secrets, write_result
from taskyard.wire.plays import REPOSITORY_FOLDER, TREE_FOLDER, Checkout

#: The largest file that git may write: a pack with everything of a revision. And the files of a revision together.
PACK_BYTES_MAX: Final = 4 * 1024**3
TREE_BYTES_MAX: Final = 4 * 1024**3
#: The list of the files of a revision, and the answer to what a branch is.
LIST_BYTES_MAX: Final = 64 * 1024 * 1024
REFS_BYTES_MAX: Final = 1024 * 1024
#: What git may speak: nothing that runs a program that a URL names.
PROTOCOLS: Final = "https:http:ssh:git:file"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
#: Where the wanted revision is in the repository.
_REF: Final = "refs/taskyard/wanted"
_ALL_REFS: Final = ("+refs/heads/*:refs/taskyard/heads/*", "+refs/tags/*:refs/taskyard/tags/*")
#: Settings that win over those of the machine: what is written is the same on every bot, and nothing else runs.
_SETTINGS: Final = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.autocrlf=false", "core.attributesFile=/dev/null",
    "core.symlinks=true", "core.protectHFS=true", "core.protectNTFS=true", "filter.lfs.smudge=", "filter.lfs.process=",
    "filter.lfs.required=false", "submodule.recurse=false", "fetch.recurseSubmodules=false", "gc.autoDetach=false",
    "gc.autoPackLimit=10", "http.followRedirects=initial", "advice.detachedHead=false", "init.defaultBranch=main",
)  # fmt: skip
_CONFIG: Final = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
#: A helper that prints the user and the token, for one address only. It is no file: some file systems run none.
_HELPER: Final = (
    '!f() { [ "$1" != get ] || printf "username=%s\\npassword=%s\\n" "$CHECKOUT_USER" "$(cat "$CHECKOUT_TOKEN")"; }; f'
)


class Failed(Exception):
    """The repository does not have what is wanted, or git could not get it; the text says so."""


def _run(found: Checkout | str) -> int:
    checkout = Checkout(found) if isinstance(found, str) else found
    git = _Git(checkout, take_secrets(("TASKYARD_SSH_KEY", "TASKYARD_GIT_TOKEN")))
    try:
        git.check_out()
    except Failed as error:
        say(f"taskyard: {error}")
        return 1
    return 0


class _Git:
    """One checkout."""

    def __init__(self, checkout: Checkout, secrets: Mapping[str, str]) -> None:
        self._url = checkout.url
        self._branch = checkout.branch
        self._git = program("git")
        self._settings = list(_SETTINGS)
        self._repository = Path(REPOSITORY_FOLDER).absolute()
        self._tree = Path(TREE_FOLDER).absolute()
        self._private = private_folder("git")
        self._env = {
            **os.environ,
            "GIT_ALLOW_PROTOCOL": PROTOCOLS, "GIT_TERMINAL_PROMPT": "0", "GIT_DIR": str(self._repository),
            "GIT_INDEX_FILE": str(self._private / "index"), "LC_ALL": "C",
        }  # fmt: skip
        self._use_key(key_file(secrets.get("TASKYARD_SSH_KEY"), self._private))
        if (token := secrets.get("TASKYARD_GIT_TOKEN")) is not None:
            self._use_token(checkout.user, token)

    def check_out(self) -> None:
        """Write the files of the wanted revision, and leave which that is."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (PACK_BYTES_MAX, PACK_BYTES_MAX))
        self._tree.mkdir()
        is_new = not (self._repository / "HEAD").exists()
        self._prepare()
        branch, ref, revision = self._resolve()
        try:
            self._get(ref, revision)
        except Failed:
            if is_new:
                raise
            say("taskyard: the repository in the cache of this bot is of no use; it is fetched anew")
            shutil.rmtree(self._repository)
            self._prepare()
            self._get(ref, revision)
        files, size = self._measure(revision)
        self._env["GIT_WORK_TREE"] = str(self._tree)  # `init` makes no repository beside one
        self._call("read-tree", "-u", "--reset", revision)
        say(f"{self._branch or branch or 'HEAD'} is at {revision}: {files} files, {size} bytes")
        write_result({"revision": revision, "branch": branch, "files": files, "bytes": size})

    def _prepare(self) -> None:
        """Make the repository, or take that of an earlier checkout without anything in it that git would run."""
        if not (self._repository / "HEAD").exists():
            self._call("init", "--quiet", "--bare", "--template=")
        for name in ("hooks", "info", "modules", "worktrees", "config.worktree"):
            shutil.rmtree(self._repository / name, ignore_errors=True)
            (self._repository / name).unlink(missing_ok=True)
        (self._repository / "objects" / "info" / "alternates").unlink(missing_ok=True)
        (self._repository / "config").unlink(missing_ok=True)
        (self._repository / "config").write_text(_CONFIG)

    def _resolve(self) -> tuple[str | None, str, str]:
        """Return the branch, what to fetch, and the revision that it is at."""
        wanted = self._branch
        if wanted is not None and _COMMIT.fullmatch(wanted):
            return None, wanted, wanted
        names = (
            ["HEAD"] if wanted is None else [f"refs/heads/{wanted}", f"refs/tags/{wanted}", f"refs/tags/{wanted}^{{}}"]
        )
        told = self._read(REFS_BYTES_MAX, "ls-remote", "--symref", "--", self._url, *names).decode(errors="replace")
        found: dict[str, str] = {}
        for line in told.splitlines():
            value, _, name = line.partition("\t")
            found[f"{name} points to" if value.startswith("ref: ") else name] = value
        if wanted is None:
            head = found.get("HEAD points to", "").removeprefix("ref: refs/heads/") or None
            names = ["HEAD"]
        else:
            head, names = wanted, [names[0], names[2], names[1]]
        for name in names:
            if _COMMIT.fullmatch(revision := found.get(name, "")):
                return head, name.removesuffix("^{}"), revision
        what = "nothing is committed there" if wanted is None else f"there is no branch, tag or commit {wanted}"
        raise Failed(f"{what} in {self._url}")

    def _get(self, ref: str, revision: str) -> None:
        """Fetch a revision, unless it is there; one that cannot be fetched by itself comes with everything else."""
        if not self._has(revision):
            try:
                self._fetch("--depth=1", f"+{ref}:{_REF}")
            except Failed:
                if ref != revision:
                    raise
                self._fetch("--depth=2147483647", *_ALL_REFS)
            self._call("gc", "--auto", "--quiet", "--prune=now")
        if not self._has(revision):
            raise Failed(f"{revision} is not in {self._url}, or it was changed just now")

    def _fetch(self, depth: str, *refs: str) -> None:
        plain = ("--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-gc", "--quiet", "--force")
        self._call("fetch", *plain, depth, "--", self._url, *refs)

    def _has(self, revision: str) -> bool:
        """Whether a revision is there with all its files."""
        there = self._start(["rev-list", "--objects", "--max-count=1", "--quiet", revision, "--"], silent=True)
        return there.returncode == 0

    def _measure(self, revision: str) -> tuple[int, int]:
        """Count the files of a revision, and their bytes; refuse more than fits."""
        listed = self._read(LIST_BYTES_MAX, "ls-tree", "-r", "-l", "-z", "--full-tree", revision)
        sizes = [entry.split(b"\t", 1)[0].split()[-1] for entry in listed.split(b"\0") if entry]
        size = sum(int(one) for one in sizes if one.isdigit())
        if size > TREE_BYTES_MAX:
            raise Failed(f"the files of {revision} have {size} bytes; at most {TREE_BYTES_MAX}")
        return len(sizes), size

    # Calls of git.

    def _call(self, *words: str) -> None:
        """Run git, which prints what is wrong."""
        done = self._start(list(words))
        if done.returncode:
            raise Failed(f"git {words[0]} ended with exit code {done.returncode}")

    def _read(self, size_max: int, *words: str) -> bytes:
        """Run git and return what it prints."""
        output = self._private / "output"
        with output.open("wb") as file:
            done = self._start(list(words), stdout=file.fileno())
        size = output.stat().st_size
        if done.returncode:
            raise Failed(f"git {words[0]} ended with exit code {done.returncode}")
        if size > size_max:
            raise Failed(f"git {words[0]} printed {size} bytes; at most {size_max}")
        return output.read_bytes()

    def _start(
        self, words: list[str], stdout: int | None = None, *, silent: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        settings = [part for one in self._settings for part in ("-c", one)]
        return subprocess.run(  # noqa: S603 - git, with words of our own and a URL that was checked
            [self._git, *settings, *words],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if silent else stdout,
            stderr=subprocess.DEVNULL if silent else sys.stdout.fileno(),
            check=False,
        )

    # Credentials.

    def _use_key(self, key: str | None) -> None:
        """Log in over ssh with a key and nothing else, and trust a host as it was when it was first seen."""
        options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new"]
        if key is not None:
            options += ["-o", "IdentitiesOnly=yes", "-i", key]
        if key is not None or "GIT_SSH_COMMAND" not in self._env:
            self._env["GIT_SSH_COMMAND"] = shlex.join(["ssh", *options])

    def _use_token(self, user: str, token: str) -> None:
        """Log in over https with a token, at this address and at none that it redirects to."""
        host = "/".join(self._url.split("/")[:3])
        self._settings += ["credential.helper=", f"credential.{host}.helper={_HELPER}"]
        self._env |= {"CHECKOUT_USER": user, "CHECKOUT_TOKEN": token}


def main(arguments: list[str]) -> int:
    """Run what a file says."""
    return run(Checkout | str, _run, arguments)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
