"""What a bot does for a payload: start a program, or call a function in a warm worker.

A payload was found good by the server; one that this bot cannot run all the same, since it is of a kind that came later
or its functions are not there, is an `Unfit` with a sentence for the person who reads the output. It starts nothing.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from taskyard.bot.spans import span_s
from taskyard.wire.bots import NOTHING

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
    silence_s = span_s(read.io_timeout) if read.io_timeout else 0.0
    return Limits(
        timeout_s=span_s(read.timeout) if read.timeout else TIMEOUT_SECONDS,
        silence_s=silence_s or None,
        grace_s=span_s(read.grace) if read.grace else GRACE_SECONDS,
    )


def _kind(payload: msgspec.Raw) -> str:
    fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    return next((kind for kind in OTHER_KINDS if kind in fields), "a payload without any of them")
