"""Payloads: which program to start or function to call for a task, and with which environment.

The server has validated payloads. A bot can still be unable to run one, because its kind is newer than the bot: it
raises `UnsupportedPayload`, whose text goes to the task's output.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from taskyard.bot.config import BotConfig
from taskyard.bot.gpus import VISIBLE
from taskyard.wire.bot_protocol import NOTHING, Lease, Resources
from taskyard.wire.durations import span_ms
from taskyard.wire.plays import INVENTORY_FILE, REPOSITORY_FOLDER, repository_cache, secret_uses

#: What runs a script that names no shell.
SHELL: Final = "/bin/sh"
#: A script ends at its first failing command; otherwise a failure in the middle would go unnoticed.
SHELL_OPTIONS: Final = ("-e",)
#: Defaults of a payload that does not set them.
TIMEOUT_SECONDS: Final = 86_400.0
GRACE_SECONDS: Final = 30.0
#: How many payloads are remembered after they were read: the tasks of a graph often have the same one.
PARSED_MAX: Final = 16
#: Kinds that only the server runs, or that no bot of this version can run.
UNSUPPORTED_KINDS: Final = ("approval", "graph", "noop")
#: Variables that programs need to work on a machine.
PASSED_ON: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "TERM",
    "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SYSTEMROOT",
    "SYSTEMDRIVE", "WINDIR", "PATHEXT", "COMSPEC", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "XDG_RUNTIME_DIR",
})  # fmt: skip
#: Variables of a user's login, which another user must not get.
LOGIN_VARIABLES: Final = frozenset({"XDG_RUNTIME_DIR", "MAIL", "PWD", "OLDPWD", "SUDO_COMMAND", "SUDO_USER"})
#: The prefix of the variables that Taskyard sets: the bot's token, and its identity.
TASKYARD_PREFIX: Final = "TASKYARD_"


class UnsupportedPayload(Exception):
    """This bot cannot run the payload."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an attempt may run, be silent, and take to end after SIGTERM, in seconds."""

    timeout_s: float = TIMEOUT_SECONDS
    silence_s: float | None = None
    grace_s: float = GRACE_SECONDS


class Artifact(msgspec.Struct, frozen=True):
    """A file that is kept under a name."""

    path: str
    name: str
    type: str = "application/octet-stream"


class FileSpec(msgspec.Struct, frozen=True):
    """What a payload says of files. It has some, or there is no such object."""

    has_inputs: bool
    outputs: tuple[str | Artifact, ...]

    @property
    def patterns(self) -> list[str]:
        """Everything that is kept."""
        return [one if isinstance(one, str) else one.path for one in self.outputs]


class Program(msgspec.Struct, frozen=True):
    """A program to start. The text of a script is passed as a file, the last argument."""

    argv: tuple[str, ...]
    script: str | None
    env: dict[str, str]
    cwd: str | None  # None: a fresh folder
    limits: Limits
    caches: dict[str, str] = {}  # paths in the fresh folder, by name
    files: FileSpec | None = None
    needs_secrets: bool = False
    kind: str = ""  # `ansible` or `git`: a program of the bot's own runs it

    @property
    def name(self) -> str:
        """Identifies programs that are likely to take equally long."""
        return self.argv[0] if self.script is None else f"script {hash(self.script)}"


class Function(msgspec.Struct, frozen=True):
    """A function to call with JSON arguments."""

    name: str  # module:function
    args: msgspec.Raw  # a list or an object; empty if there are none
    env: dict[str, str]
    cwd: str | None
    limits: Limits
    fresh: bool = False  # call it in a process of its own
    files: FileSpec | None = None
    needs_secrets: bool = False  # which implies that: no other call may find them in memory


class _Payload(msgspec.Struct):
    """The fields of a payload that a bot reads."""

    command: list[str] | None = None
    script: str | None = None
    shell: str | None = None
    python: str | None = None
    args: msgspec.Raw = NOTHING
    ansible: msgspec.Raw = NOTHING
    git: msgspec.Raw = NOTHING
    fresh: bool = False
    env: dict[str, str] = {}
    secrets: dict[str, msgspec.Raw] = {}
    has_secret_bytes: bool = False
    caches: dict[str, str] = {}
    inputs: msgspec.Raw = NOTHING
    outputs: tuple[str | Artifact, ...] = ()
    cwd: str | None = None
    timeout: str | None = None
    io_timeout: str | None = None
    grace: str | None = None


_PAYLOAD: Final = msgspec.json.Decoder(_Payload)
_DEFAULT_LIMITS: Final = Limits()


@lru_cache(maxsize=PARSED_MAX)  # benchmarks.endtoend, no-ops
def parse_payload(payload: bytes) -> Program | Function:
    """Decide what to run for a payload; raise UnsupportedPayload if this bot cannot run it."""
    try:
        read = _PAYLOAD.decode(payload)
        limits = _limits(read)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnsupportedPayload(f"this bot cannot read the payload: {error}") from error
    secret = bool(read.secrets) or read.has_secret_bytes
    if read.caches:
        _check_caches(read)
    files = FileSpec(bytes(read.inputs) not in (b"", b"[]"), read.outputs) if read.inputs or read.outputs else None
    if read.python is not None:
        return Function(read.python, read.args, read.env, read.cwd, limits, read.fresh or secret, files, secret)
    if read.script is not None:
        shell = SHELL if read.shell in (None, "sh") else read.shell
        return Program((shell, *SHELL_OPTIONS), read.script, read.env, read.cwd, limits, read.caches, files, secret)
    if read.command:
        return Program(tuple(read.command), None, read.env, read.cwd, limits, read.caches, files, secret)
    if read.ansible:
        return _own_program("ansible", read.ansible, read, limits, files)
    if read.git:
        return _own_program("git", read.git, read, limits, files)
    raise UnsupportedPayload(f"this bot runs command, script, python, ansible and git; it cannot run {_kind(payload)}")


def _own_program(kind: str, work: msgspec.Raw, read: _Payload, limits: Limits, files: FileSpec | None) -> Program:
    """Run a kind of work by a program of the bot's own, which reads it from a file."""
    spec = msgspec.json.decode(work)
    caches, cwd = read.caches, read.cwd
    if kind == "git":
        caches, cwd = {repository_cache(spec if isinstance(spec, str) else spec["url"]): REPOSITORY_FOLDER}, None
        files = FileSpec(False, read.outputs or ("**",))
    elif isinstance(spec, dict) and "inventory_source" in spec:
        listed = INVENTORY_FILE if cwd is None or os.path.isabs(cwd) else os.path.join(cwd, INVENTORY_FILE)
        files = FileSpec(files is not None and files.has_inputs, (*read.outputs, listed))
    secret = bool(read.secrets) or read.has_secret_bytes or any(secret_uses({kind: spec}))
    argv = (sys.executable, "-P", "-m", f"taskyard.bot.{kind}")
    return Program(argv, bytes(work).decode(), read.env, cwd, limits, caches, files, secret, kind)


def _check_caches(read: _Payload) -> None:
    """Refuse caches that this bot cannot place."""
    if read.python is not None or read.cwd is not None:
        raise UnsupportedPayload("this bot places caches only in the fresh folder of a program")
    for path in read.caches.values():
        if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
            raise UnsupportedPayload(f"the path of a cache must be relative and without ..: {path!r}")


def _limits(read: _Payload) -> Limits:
    if read.timeout is read.io_timeout is read.grace is None:
        return _DEFAULT_LIMITS
    return Limits(
        timeout_s=_seconds(read.timeout, TIMEOUT_SECONDS),
        silence_s=_seconds(read.io_timeout, 0.0) or None,
        grace_s=_seconds(read.grace, GRACE_SECONDS),
    )


def _seconds(text: str | None, default: float) -> float:
    if not text:
        return default
    ms = span_ms(text)
    if ms is None:
        raise ValueError(f"{text!r} is not a duration")
    return ms / 1000


def _kind(payload: bytes) -> str:
    fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    return next((kind for kind in UNSUPPORTED_KINDS if kind in fields), "a payload without any of them")


# The environment of tasks: a part of the bot's own, what the payload sets, and the attempt's identity.
#
# Unless the bot is told to pass on all of its environment, only the variables named here and in the payload are set.
# The bot's token and other TASKYARD_ variables of the bot are never passed on.


def passed_on(own: Mapping[str, str] | None = None, everything: bool = False) -> dict[str, str]:
    """Select the part of the bot's environment that everything it starts gets."""
    source = os.environ if own is None else own
    if everything:
        return {name: value for name, value in source.items() if not name.startswith(TASKYARD_PREFIX)}
    return {name: value for name, value in source.items() if name in PASSED_ON or name.startswith("LC_")}


class TaskEnvironment:
    """Builds the environment of each attempt of one bot."""

    def __init__(self, config: BotConfig) -> None:
        self._url = {"TASKYARD_URL": config.url}
        if config.ca_file is not None:
            self._url["TASKYARD_CA_FILE"] = os.path.abspath(config.ca_file)
        self._passed_on = passed_on(everything=config.inherit)
        if config.user is not None:
            self._passed_on = {
                name: value for name, value in self._passed_on.items() if name not in LOGIN_VARIABLES
            } | config.user.environment
        self._marker = config.marker

    @property
    def for_runner(self) -> dict[str, str]:
        """The environment of the runner, and so of warm workers; the runner adds marks to what it starts."""
        return {**self._passed_on, **self._url, "TASKYARD_BOT": self._marker}

    def for_attempt(
        self, lease: Lease, files: Mapping[str, str], payload_env: Mapping[str, str], gpus: Sequence[str] = ()
    ) -> dict[str, str]:
        """Build the whole environment of an attempt: the payload cannot override what the bot sets."""
        return {**self._passed_on, **payload_env, **self._url, **files, **attempt_environment(lease, gpus)}


def attempt_environment(lease: Lease, gpus: Sequence[str] = ()) -> dict[str, str]:
    """Name the attempt and what it takes, and pass the token by which it may speak to the server."""
    named = {
        "TASKYARD_TOKEN": lease.token,
        "TASKYARD_TASK_ID": lease.task,
        "TASKYARD_GRAPH_ID": lease.graph,
        "TASKYARD_LABEL": lease.label,
        "TASKYARD_ATTEMPT": str(lease.attempt),
    }
    return named if lease.takes is None else named | _taken(lease.takes, gpus)


def _taken(takes: Resources, gpus: Sequence[str]) -> dict[str, str]:
    """Say what the attempt takes of its bot; of what it did not name, nothing is said."""
    found = {"TASKYARD_SLOTS": str(takes.slots)}
    if takes.cpus:
        found["TASKYARD_CPUS"] = f"{takes.cpus / 1000:g}"
    if takes.memory:
        found["TASKYARD_MEMORY_MB"] = str(takes.memory)
    if gpus:
        found[VISIBLE] = ",".join(gpus)
    return found
