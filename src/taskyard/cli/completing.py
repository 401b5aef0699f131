"""Completion on Tab: the command `completion`, and the hidden one that finds ids while somebody types.

Commands, options and fixed words stand in the scripts themselves; only ids and names are asked for, quickly or not at
all. What goes wrong meanwhile is nobody's business at a prompt: then there is just nothing to offer.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Literal

from taskyard.cli import kept, naming, profile, reports, shells, text
from taskyard.cli.exits import Exit
from taskyard.cli.grammar import Parameter
from taskyard.cli.parsing import Unusable

if TYPE_CHECKING:
    from taskyard.sdk.client import Client

EXAMPLES: Final = """\
Examples:

    eval "$(taskyard completion bash)"
    taskyard completion zsh > ~/.zfunc/_taskyard
    taskyard completion fish > ~/.config/fish/completions/taskyard.fish
"""
#: What a person can choose from; the newest come first.
OFFERED_MAX: Final = 50
#: Who presses Tab does not wait for longer.
SECONDS_MAX: Final = 1.0

Offer = tuple[str, str]


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell that is going to read the script.")],
    /,
) -> int:
    """Print a script that completes commands, options and ids on Tab."""
    return Exit.OK if reports.delivered(lambda: sys.stdout.write(shells.SCRIPTS[shell]())) else Exit.ERROR


def offer(kind: str, begun: str) -> int:
    """Print what a value of some kind can be, each with what it is, behind a tab; nothing when that takes too long."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(Exit.OK))
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    # It is never told what goes wrong: a prompt is no place for it.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    found = [one for one in islice(_OFFERS[kind](begun), OFFERED_MAX) if one[0].startswith(begun)]
    lines = (f"{text.harmless(value)}\t{text.harmless(what)}\n" for value, what in found)
    reports.delivered(lambda: sys.stdout.writelines(lines))
    return Exit.OK


def _asking(ask: "Callable[[Client, str], Iterator[Offer]]") -> Callable[[str], Iterator[Offer]]:
    """Make an offer of what the server knows, which is the one that is meant without any flag."""

    def found(begun: str) -> Iterator[Offer]:
        from taskyard.sdk.client import Client  # noqa: PLC0415 - it costs time to load
        from taskyard.sdk.errors import ClientError  # noqa: PLC0415

        try:
            target = profile.find(None, None)
            with Client(target.url, target.token, timeout_s=SECONDS_MAX, ca_file=target.ca_file) as client:
                yield from ask(client, begun)
        except (ClientError, Unusable):
            return

    return found


def _graphs(client: "Client", _: str) -> Iterator[Offer]:
    return ((one.id, f"{one.name} {one.state}") for one in client.graphs(limit=OFFERED_MAX))


def _tasks(client: "Client", begun: str) -> Iterator[Offer]:
    """Offer graphs, and of a graph that is there already its labels."""
    graph, has_graph, _ = begun.partition(naming.BETWEEN)
    if not has_graph:
        return ((f"{id}{naming.BETWEEN}", what) for id, what in _graphs(client, begun))
    return (
        (f"{graph}{naming.BETWEEN}{one.label}", one.state)
        for one in client.tasks(graph)
        if f"{graph}{naming.BETWEEN}{one.label}".startswith(begun)
    )


def _any(client: "Client", begun: str) -> Iterator[Offer]:
    return _tasks(client, begun) if naming.BETWEEN in begun else _graphs(client, begun)


def _bots(client: "Client", _: str) -> Iterator[Offer]:
    return ((one.id, f"in {one.pool}") for one in client.bots(limit=OFFERED_MAX))


def _pools(client: "Client", _: str) -> Iterator[Offer]:
    return ((one.name, f"{one.bots} bot{'s' * (one.bots != 1)}") for one in client.pools())


def _profiles(_: str) -> Iterator[Offer]:
    return ((one.name, one.url) for one in kept.read().profiles.values())


_OFFERS: Final[dict[str, Callable[[str], Iterator[Offer]]]] = {
    "graph": _asking(_graphs),
    "task": _asking(_tasks),
    "any": _asking(_any),
    "bot": _asking(_bots),
    "pool": _asking(_pools),
    "profile": _profiles,
}
#: The kinds of values that are offered.
KINDS: Final = frozenset(_OFFERS)
