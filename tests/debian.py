"""Programs of Debian packages for tests: message brokers, a pooler of connections, and a browser.

Root installs the packages with apt-get, without starting their services. An ordinary user downloads them, with all
that they need, and unpacks them into a folder of the home. `python -m tests.debian` does so before tests run; tests
that need a program which cannot be had are counted as `NOT TESTED` in pytest's summary line.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

#: What tests need: a program by its path in a package, and that package.
PROGRAMS: Final[Mapping[str, tuple[str, str]]] = {
    "RabbitMQ": ("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server", "rabbitmq-server"),
    "Redis": ("usr/bin/redis-server", "redis-server"),
    "pgbouncer": ("usr/sbin/pgbouncer", "pgbouncer"),
    "Chromium": ("usr/lib/chromium/chromium", "chromium"),
}
#: Where an ordinary user keeps them, and where all users keep the lock.
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taskyard-tests"
#: Downloading and installing takes ten seconds; this is for a slow network.
INSTALL_S: Final = 300
#: For how long a failure is remembered, so that six processes do not all wait for a network that is not there.
REMEMBERED_S: Final = 600
#: The skip reason of a test that needs what cannot be had begins so.
NOT_TESTED: Final = "not tested: "
#: Scripts of Erlang name the folder into which Debian installs it.
_ERLANG: Final = "usr/lib/erlang"
_POLICY: Final = Path("/usr/sbin/policy-rc.d")


class NotAvailable(Exception):
    """A program cannot be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that can be run, and what its environment needs."""

    path: Path
    root: Path  # the folder that is `/` for its package
    environment: Mapping[str, str]


@cache
def find_program(name: str) -> Program:
    """Find one of `PROGRAMS`, install it if need be; raise `NotAvailable` if that fails."""
    with _locked():  # a program that is being installed can be found before it can be run
        return _find(name) or _install(name)


def _find(name: str) -> Program | None:
    pattern, _ = PROGRAMS[name]
    for root in (Path("/"), CACHE / "root"):
        for path in sorted(root.glob(pattern)):
            return Program(path, root, _environment(root))
    return None


def _environment(root: Path) -> dict[str, str]:
    """What a program below a folder finds its libraries and other programs by."""
    if root == Path("/"):
        return {}
    libraries = [str(path) for path in (root / "usr/lib").glob("*-linux-gnu*")]
    programs = [str(root / "usr/bin"), str(root / _ERLANG / "bin"), os.environ.get("PATH", os.defpath)]
    return {"LD_LIBRARY_PATH": ":".join(libraries), "PATH": ":".join(programs)}


def _install(name: str) -> Program:
    failed = CACHE / f"failed-{PROGRAMS[name][1]}"
    with suppress(FileNotFoundError):
        if time.time() - failed.stat().st_mtime < REMEMBERED_S:
            raise NotAvailable(failed.read_text(encoding="utf-8"))
    try:
        _install_package(PROGRAMS[name][1])
    except (OSError, subprocess.SubprocessError, NotAvailable) as fault:
        reason = f"{name} cannot be installed: {_reason(fault)}"
        failed.write_text(reason, encoding="utf-8")
        raise NotAvailable(reason) from fault
    found = _find(name)
    assert found is not None, f"the package {PROGRAMS[name][1]} has no {PROGRAMS[name][0]}"
    return found


def _install_package(package: str) -> None:
    if not shutil.which("apt-get"):
        raise NotAvailable("there is no apt-get here")
    if os.geteuid():
        _unpack(package)
        return
    _run("apt-get", "update", "-qq")
    with _services_forbidden():
        options = ["-o", "DPkg::Lock::Timeout=120", "--no-install-recommends"]
        _run("apt-get", "install", "-qq", "-y", *options, package)


def _unpack(package: str) -> None:
    """Download a package with what it needs that the machine lacks, and unpack all of it into the cache."""
    debs, root = CACHE / "debs", CACHE / "root.new"
    for folder in (CACHE / "lists/partial", CACHE / "archives/partial", debs):
        folder.mkdir(parents=True, exist_ok=True)
    options = [f"Dir::State::Lists={CACHE}/lists", f"Dir::Cache={CACHE}", "Debug::NoLocking=1"]
    apt = ["apt-get", *(part for option in options for part in ("-o", option))]
    _run(*apt, "update", "-qq")
    plan = _run(*apt, "-s", "--no-install-recommends", "install", package)
    needed = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    _run(*apt, "download", "-qq", *needed, cwd=debs)
    # Made beside the old one and then renamed: whoever finds a program finds all that it needs.
    shutil.rmtree(root, ignore_errors=True)
    if (CACHE / "root").exists():
        shutil.copytree(CACHE / "root", root, symlinks=True)
    for deb in debs.glob("*.deb"):
        _run("dpkg-deb", "-x", str(deb), str(root))
        deb.unlink()
    _move_erlang(root, CACHE / "root")
    shutil.rmtree(CACHE / "root", ignore_errors=True)
    root.rename(CACHE / "root")


def _move_erlang(root: Path, final: Path) -> None:
    """Let the scripts of Erlang, which name an absolute folder, name the one they will be in."""
    old, new = f"=/{_ERLANG}", f"={final / _ERLANG}"
    for script in (*(root / _ERLANG).glob("bin/*"), *(root / _ERLANG).glob("erts-*/bin/*")):
        if not script.is_symlink() and script.is_file() and script.read_bytes().startswith(b"#!"):
            script.write_text(script.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def _run(*command: str, cwd: Path | None = None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=INSTALL_S, check=True
    ).stdout


@contextmanager
def _services_forbidden() -> Iterator[None]:
    """Forbid packages to start services while they are installed, as Debian's policy describes."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


@contextmanager
def _locked() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _reason(fault: BaseException) -> str:
    if isinstance(fault, subprocess.CalledProcessError):
        said = [line for line in f"{fault.stderr}".splitlines() if line.strip()]
        return said[-1] if said else f"{fault.cmd[0]} failed"
    return str(fault)


def main() -> None:
    """Bring all programs; say which cannot be had."""
    for name in PROGRAMS:
        try:
            print(f"{name}: {find_program(name).path}")  # noqa: T201
        except NotAvailable as fault:
            print(f"NOT TESTED WITH {name.upper()}: {fault}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
