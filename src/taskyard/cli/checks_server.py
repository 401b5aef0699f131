"""Checks of what is not on this machine: the server with its version, its clock and our token; and PostgreSQL."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from taskyard.cli import profile
from taskyard.cli.check import Check, fault, ok, warning

if TYPE_CHECKING:
    from taskyard.cli.session import Server
    from taskyard.wire.api import About

#: How long a server or a database may take to answer.
ANSWER_MAX_S: Final = 5.0
#: Clocks further apart than this make times hard to compare; further than that something is wrong.
APART_MS: Final = 2_000
APART_MAX_MS: Final = 60_000
#: A token that ends sooner is worth a word.
TOKEN_LEFT_MS: Final = 7 * 86_400_000
POSTGRESQL_MIN: Final = 150_000


def server(named: "Server") -> Iterator[Check]:
    """Ask the server who it is and who we are."""
    from taskyard.sdk.client import Client  # noqa: PLC0415 - it costs time to load
    from taskyard.sdk.errors import ClientError, NotFound, Unauthorised, Unreachable  # noqa: PLC0415

    target = named.target()
    began = time.time()
    try:
        with Client(target.url, target.token, timeout_s=ANSWER_MAX_S, ca_file=target.ca_file) as client:
            about = client.about()
    except Unreachable as error:
        yield _unreachable(target.url, error.why)
    except Unauthorised as error:
        yield ok("server", f"{target.url} answers")
        yield fault("token", str(error), "set TASKYARD_TOKEN, or have an admin make one: taskyard token create")
    except NotFound:
        yield warning("server", f"{target.url} is older than this program", "upgrade the server")
    except ClientError as error:
        yield fault("server", str(error), "see whether the address is that of a Taskyard server")
    else:
        yield _version(target.url, about)
        yield _clock(about.now_ms - round((began + time.time()) * 500))
        yield _token(about)


def postgresql() -> Iterator[Check]:
    """Reach PostgreSQL, if the environment says that there is one."""
    configured = _configured()
    if not configured:
        return
    import psycopg  # noqa: PLC0415 - it costs time to load

    try:
        with psycopg.connect("", connect_timeout=round(ANSWER_MAX_S)) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        yield fault("postgresql", f"cannot be reached: {said}", f"see {', '.join(configured)} in the environment")
        return
    if version < POSTGRESQL_MIN:
        yield fault("postgresql", f"it is version {version // 10_000}, and 15 is needed", "upgrade PostgreSQL")
    else:
        yield ok("postgresql", f"version {version // 10_000} answers")


def _configured() -> list[str]:
    """Name what PostgreSQL's own programs go by; one of them says that there is one to be used."""
    said = {
        "PGHOST": os.environ.get("PGHOST"),
        "PGHOSTADDR": os.environ.get("PGHOSTADDR"),
        "PGSERVICE": os.environ.get("PGSERVICE"),
        "PGDATABASE": os.environ.get("PGDATABASE"),
    }
    return [name for name, value in said.items() if value]


def _unreachable(url: str, why: str) -> Check:
    if url.rstrip("/") == profile.DEFAULT_URL:
        return warning(
            "server", f"nobody answers at {url} ({why})", "start one with `taskyard up`, or name one by TASKYARD_URL"
        )
    return fault("server", f"nobody answers at {url} ({why})", "start it, or name another by TASKYARD_URL")


def _version(url: str, about: "About") -> Check:
    from importlib.metadata import version  # noqa: PLC0415

    here = version("taskyard")
    if about.version == here:
        return ok("server", f"{url} answers, version {here} as here")
    return warning("server", f"{url} has version {about.version}, and here is {here}", "upgrade the older one")


def _clock(apart_ms: int) -> Check:
    """Compare the server's clock with ours."""
    said = f"the server's clock is {abs(apart_ms) / 1000:.1f} s {'ahead' if apart_ms > 0 else 'behind'}"
    if abs(apart_ms) > APART_MAX_MS:
        return fault("clock", said, "set the clocks, by NTP if you can")
    if abs(apart_ms) > APART_MS:
        return warning("clock", said, "set the clocks, by NTP if you can")
    return ok("clock", "the same as the server's")


def _token(about: "About") -> Check:
    scopes = ", ".join(about.scopes) or (f"pool {about.pool}" if about.pool else "nothing")
    said = f"{about.actor}, a {about.kind} with {scopes}"
    if about.expires_ms is None:
        return ok("token", said)
    until = datetime.fromtimestamp(about.expires_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if about.expires_ms - about.now_ms < TOKEN_LEFT_MS:
        return warning("token", f"{said}, until {until}", "have an admin make another: taskyard token create")
    return ok("token", f"{said}, until {until}")
