"""What a server is told when it starts. It never changes while the server runs."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

#: How many requests of people may be under way at once; whoever comes then is asked to come again.
IN_FLIGHT_MAX: Final = 256
#: How many of them may follow an output.
FOLLOWERS_MAX: Final = 64
#: How many threads look at the database or check documents for people.
THREADS_MAX: Final = 32
#: How long a stop waits for what is under way.
STOP_MAX_S: Final = 10
#: How long a connection may stay open between two requests: longer than any poll waits.
KEEP_ALIVE_S: Final = 75


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is told."""

    public_url: str = ""  # where people find it, without a slash at the end; empty: addresses are relative
    authentication: bool = True  # off only where nobody else can connect
    in_flight_max: int = IN_FLIGHT_MAX  # how many requests of people may be under way at once
    followers_max: int = FOLLOWERS_MAX  # how many of them may follow an output
    threads_max: int = THREADS_MAX  # how many threads work for people
    people_later: bool = False  # the routes of people are made when the first of them comes


class Exposed(ValueError):
    """Everybody could do everything."""


def check_binding(host: str, auth_on: bool) -> None:
    """Refuse to be reachable from other machines without authentication."""
    if not auth_on and not is_loopback(host):
        raise Exposed(
            f"authentication is off and {host or 'every address'} can be reached from other machines: "
            "switch authentication on, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may lead anywhere
