"""What a bot does for a payload: start a program, or call a function in a warm worker.

A payload was found good by the server; one that this bot cannot run all the same, since it is of a kind that came later
or its functions are not there, is an `Unfit` with a sentence for the person who reads the output. It starts nothing.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from taskyard.bot.config import BotConfig
from taskyard.wire.bot_protocol import NOTHING, Lease
from taskyard.wire.durations import span_ms

#: What runs a script unless it names a shell.
SHELL: Final = "/bin/sh"
#: A script ends at its first failing command: a failure that it went past would not be seen.
SHELL_OPTIONS: Final = ("-e",)
#: What a payload that says nothing about it gets.
TIMEOUT_SECONDS: Final = 86_400.0
GRACE_SECONDS: Final = 30.0
#: Kinds that only the server runs, or that nobody runs on a bot of this version.
OTHER_KINDS: Final = ("ansible", "approval", "graph", "noop")


class Unfit(Exception):
    """This bot cannot run that."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an attempt may take, be silent, and take to end itself, in seconds."""

    timeout_s: float = TIMEOUT_SECONDS
    silence_s: float | None = None
    grace_s: float = GRACE_SECONDS


class Program(msgspec.Struct, frozen=True):
    """A program to start. With a script, its text is the last argument, as a file."""

    argv: tuple[str, ...]
    script: str | None
    env: dict[str, str]
    cwd: str | None  # None: a fresh folder
    limits: Limits

    @property
    def name(self) -> str:
        """What tells it from others that may take another time."""
        return self.argv[0] if self.script is None else f"script {hash(self.script)}"


class Function(msgspec.Struct, frozen=True):
    """A function to call with JSON arguments."""

    name: str  # module:function
    args: msgspec.Raw  # a list or an object; empty if none were given
    env: dict[str, str]
    cwd: str | None
    limits: Limits
    fresh: bool = False  # it gets a process of its own


class _Payload(msgspec.Struct):
    """What is read of a payload."""

    command: list[str] | None = None
    script: str | None = None
    shell: str | None = None
    python: str | None = None
    args: msgspec.Raw = NOTHING
    fresh: bool = False
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    cwd: str | None = None
    timeout: str | None = None
    io_timeout: str | None = None
    grace: str | None = None


_PAYLOAD: Final = msgspec.json.Decoder(_Payload)
_USUAL: Final = Limits()


def work_of(payload: msgspec.Raw) -> Program | Function:
    """Say what to do for a payload, or why it cannot be done (`Unfit`)."""
    try:
        read = _PAYLOAD.decode(payload)
        limits = _limits(read)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unfit(f"this bot cannot read the payload: {error}") from error
    if read.secrets:
        raise Unfit("this bot cannot fill in secrets yet")
    if read.python is not None:
        return Function(read.python, read.args, read.env, read.cwd, limits, read.fresh)
    if read.script is not None:
        shell = SHELL if read.shell in (None, "sh") else read.shell
        return Program((shell, *SHELL_OPTIONS), read.script, read.env, read.cwd, limits)
    if read.command:
        return Program(tuple(read.command), None, read.env, read.cwd, limits)
    raise Unfit(f"this bot runs command, script and python; it cannot run {_kind(payload)}")


def _limits(read: _Payload) -> Limits:
    if read.timeout is read.io_timeout is read.grace is None:
        return _USUAL
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


def _kind(payload: msgspec.Raw) -> str:
    fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    return next((kind for kind in OTHER_KINDS if kind in fields), "a payload without any of them")


# The environment of what a bot starts: some of the bot's own, what the payload says, and who the attempt is.
#
# Unless whoever started the bot wants all of its environment passed on, nothing is in it that was not named here or by
# the payload. The bot's token never is, nor anything else of Taskyard's that is around the bot itself.


#: What programs need to find their way on a machine.
PASSED_ON: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "TERM",
    "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SYSTEMROOT",
    "SYSTEMDRIVE", "WINDIR", "PATHEXT", "COMSPEC", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "XDG_RUNTIME_DIR",
})  # fmt: skip


#: What belongs to the login of one user, and is not for another.
OF_A_LOGIN: Final = frozenset({"XDG_RUNTIME_DIR", "MAIL", "PWD", "OLDPWD", "SUDO_COMMAND", "SUDO_USER"})
#: How the names begin of what Taskyard says to whatever it starts: the bot's token, and who the bot itself is.
OURS: Final = "TASKYARD_"


def passed_on(own: Mapping[str, str] | None = None, everything: bool = False) -> dict[str, str]:
    """Choose what everything that a bot starts has of the bot's own environment."""
    source = os.environ if own is None else own
    if everything:
        return {name: value for name, value in source.items() if not name.startswith(OURS)}
    return {name: value for name, value in source.items() if name in PASSED_ON or name.startswith("LC_")}


class Surroundings:
    """Writes the environment of each attempt of one bot."""

    def __init__(self, config: BotConfig) -> None:
        self._url = {"TASKYARD_URL": config.url}
        if config.ca_file is not None:
            self._url["TASKYARD_CA_FILE"] = os.path.abspath(config.ca_file)
        self._passed_on = passed_on(everything=config.inherit)
        if config.user is not None:
            self._passed_on = {
                name: value for name, value in self._passed_on.items() if name not in OF_A_LOGIN
            } | config.user.environment
        self._marker = config.marker

    @property
    def of_runner(self) -> dict[str, str]:
        """What the runner has, and so every warm worker; the runner marks with it whatever it starts."""
        return {**self._passed_on, **self._url, "TASKYARD_BOT": self._marker}

    def of(self, lease: Lease, files: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """Write the whole environment of an attempt: the payload cannot take the place of what the bot says."""
        return {**self._passed_on, **given, **self._url, **files, **identity(lease)}


def identity(lease: Lease) -> dict[str, str]:
    """Say which attempt this is, and the word by which it may speak to the server."""
    return {
        "TASKYARD_TOKEN": lease.token,
        "TASKYARD_TASK_ID": lease.task,
        "TASKYARD_GRAPH_ID": lease.graph,
        "TASKYARD_LABEL": lease.label,
        "TASKYARD_ATTEMPT": str(lease.attempt),
    }
