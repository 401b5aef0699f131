"""Enrolment: a new bot exchanges an enrolment token for a token of its own, and keeps that."""

import hashlib
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from taskyard.bot.config import BotConfig
from taskyard.bot.server_client import ServerClient, retry_until_answered

#: How an enrolment token begins.
ENROLMENT_PREFIX: Final = "ty_enrol_"


class _Kept(msgspec.Struct):
    """The enrolment file. It is written before the request, so that the bot can repeat it if the answer is lost."""

    by: str  # the digest of the enrolment token
    key: str  # the idempotency key of the request: repeated with it, the answer is the same
    token: str = ""  # the bot's own token; empty until the server has sent it


async def with_own_token(config: BotConfig, file: Path) -> BotConfig:
    """Exchange the enrolment token of a bot for its own token; a bot with its own token keeps that."""
    if not config.token.startswith(ENROLMENT_PREFIX):
        return config
    kept = _kept(file, hashlib.sha256(config.token.encode()).hexdigest())
    if not kept.token:
        _write(file, kept)
        kept.token = await retry_until_answered(lambda: _ask(config, kept.key))
        _write(file, kept)
    return replace(config, token=kept.token)


async def _ask(config: BotConfig, key: str) -> str:
    client = ServerClient(config)
    try:
        return await client.enrol(config.name, key)
    finally:
        client.close()


def _kept(file: Path, by: str) -> _Kept:
    """Read the enrolment file; start a new one if there is none, or it belongs to another enrolment token."""
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=_Kept)
    except (FileNotFoundError, msgspec.MsgspecError):
        kept = None
    return kept if kept is not None and kept.by == by else _Kept(by, secrets.token_hex(16))


def _write(file: Path, kept: _Kept) -> None:
    """Write the file atomically, readable by its owner only."""
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(msgspec.json.encode(kept))
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)
