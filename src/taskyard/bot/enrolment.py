"""How a newcomer becomes a bot: it shows an enrolment token once, and keeps the token of its own that it gets."""

import hashlib
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from taskyard.bot.config import BotConfig
from taskyard.bot.server_client import Link, answered

#: How an enrolment token begins.
ENROLMENT: Final = "ty_enrol_"


class _Kept(msgspec.Struct):
    """What a bot keeps of its enrolment, from before it asks: so it can ask again if the answer is lost."""

    by: str  # the digest of the enrolment token
    key: str  # of the request: repeated with it, the answer is the same
    token: str = ""  # the bot's own; empty until it was told


async def enrolled(config: BotConfig, file: Path) -> BotConfig:
    """Give a bot that was started with an enrolment token its own token; any other has one already."""
    if not config.token.startswith(ENROLMENT):
        return config
    kept = _kept(file, hashlib.sha256(config.token.encode()).hexdigest())
    if not kept.token:
        _write(file, kept)
        kept.token = await answered(lambda: _ask(config, kept.key))
        _write(file, kept)
    return replace(config, token=kept.token)


async def _ask(config: BotConfig, key: str) -> str:
    link = Link(config)
    try:
        return await link.enrol(config.name, key)
    finally:
        link.close()


def _kept(file: Path, by: str) -> _Kept:
    """Read what is kept of an enrolment with this token; of another one, nothing is of use."""
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=_Kept)
    except (FileNotFoundError, msgspec.MsgspecError):
        kept = None
    return kept if kept is not None and kept.by == by else _Kept(by, secrets.token_hex(16))


def _write(file: Path, kept: _Kept) -> None:
    """Write a file that is whole whenever the bot ends, and that nobody else can read."""
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(msgspec.json.encode(kept))
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)
