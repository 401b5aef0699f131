"""The commands about tokens: `token create`, `list`, `revoke`, `rotate`, `rekey`. Secrets are printed once."""

from dataclasses import asdict
from typing import Annotated, Final, Literal, NamedTuple

from taskyard.cli import forms, reports, spans, text
from taskyard.cli.grammar import Parameter
from taskyard.cli.session import HERE, Server, connected

EXAMPLES: Final = """\
Examples:

    taskyard token list
    taskyard token list -o json
"""
CREATE_EXAMPLES: Final = """\
Examples:

    taskyard token create --name ci --scope pool:lab:read --expires 30d
    taskyard token create --kind bot --name rack4 --pool lab
    taskyard token create --kind enrolment --name lab --pool lab --expires 1d
"""
REVOKE_EXAMPLES: Final = """\
Examples:

    taskyard token revoke 00c0ffee12345678
"""

ROTATE_EXAMPLES: Final = """\
Examples:

    taskyard token rotate 00c0ffee12345678            the old one ends at once
    taskyard token rotate 00c0ffee12345678 --keep 1h  it ends in an hour
"""
KEY_EXAMPLES: Final = """\
Examples:

    taskyard token rekey        tasks that run now keep their tokens
    taskyard token rekey --now  the key is known to others: they end, too
"""

_COLUMNS: Final[list[forms.Column]] = [
    ("id", lambda one: one.id),
    ("kind", lambda one: one.kind),
    ("name", lambda one: one.name),
    ("pool", lambda one: one.pool),
    ("scopes", lambda one: " ".join(one.scopes)),
    ("made", lambda one: forms.age(one.created_ms)),
    ("expires", lambda one: None if one.expires_ms is None else forms.moment(one.expires_ms)),
    ("revoked", lambda one: one.revoked_ms is not None),
]


class Wish(NamedTuple):
    """What a new token is for."""

    name: Annotated[str, Parameter(help="Who or what it is for; audits name it.")]
    kind: Annotated[Literal["user", "bot", "enrolment"], Parameter(help="Who may use it.")] = "user"
    pool: Annotated[str | None, Parameter(help="The pool of the bots that it is for.", completes="pool")] = None
    scope: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            help="What it may do, as often as needed: admin, or pool:NAME:read, submit, cancel, approve, admin.",
        ),
    ] = None
    expires: Annotated[
        str | None, Parameter(validator=spans.check, help="How long it is good: 12h, 30d; for good unless told.")
    ] = None


def create(*, wish: Wish, output: forms.Form = "name", server: Server = HERE) -> int:
    """Make a token. Its secret goes to stdout, this once."""
    span_ms = None if wish.expires is None else spans.seconds_of(wish.expires) * 1000
    with connected(server) as client:
        made = client.new_token(wish.kind, wish.name, pool=wish.pool, scopes=wish.scope or (), expires_in_ms=span_ms)
        return forms.give_one(
            asdict(made), output, lambda: [text.harmless(made.token), *forms.pairs(made.view, _COLUMNS)], made.token
        )


def tokens(*, listing: forms.Listing = forms.TABLE, server: Server = HERE) -> int:
    """List tokens, without their secrets."""
    with connected(server) as client:
        return forms.give_all(client.tokens(), listing, _COLUMNS, lambda one: one.id)


def revoke(
    *ids: Annotated[str, Parameter(name="ID", help="The token's id, as `token list` gives it.")],
    output: forms.Form = "name",
    server: Server = HERE,
) -> int:
    """End tokens at once."""
    with connected(server) as client:
        revoked = [client.revoke_token(id) for id in ids]
    for one in revoked:
        reports.talk(f"token {text.harmless(one.id)} ({text.harmless(one.name)}) is revoked")
    return forms.give_all(revoked, forms.Listing(output), _COLUMNS, lambda one: one.id)


def rotate(
    id: Annotated[str, Parameter(help="The token's id, as `token list` gives it.")],
    /,
    *,
    keep: Annotated[
        str, Parameter(validator=spans.check, help="How long the old token stays good: 12h, at most 30d.")
    ] = "0s",
    output: forms.Form = "name",
    server: Server = HERE,
) -> int:
    """Make a token that may do what another may, and end that one. The new secret goes to stdout, this once."""
    with connected(server) as client:
        made = client.rotate_token(id, keep_ms=spans.seconds_of(keep) * 1000)
        return forms.give_one(
            asdict(made), output, lambda: [text.harmless(made.token), *forms.pairs(made.view, _COLUMNS)], made.token
        )


def rotate_key(
    *,
    now: Annotated[
        bool, Parameter(negative="", help="End the tokens of tasks that run now, too: they lose their access.")
    ] = False,
    server: Server = HERE,
) -> int:
    """Change the key by which the tokens of running tasks are sealed."""
    with connected(server) as client:
        kept = client.rotate_run_key(keep=not now).kept
    what = "stay good until those end" if kept else "are good for nothing"
    reports.talk(f"the key of run tokens is changed; tokens of tasks that run now {what}")
    return 0
