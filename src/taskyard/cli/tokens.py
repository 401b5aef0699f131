"""The commands about tokens: `token create`, `token list`, `token revoke`. Secrets are printed once."""

from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from taskyard.cli import forms, reports, spans, text
from taskyard.cli.exits import Exit
from taskyard.cli.session import HERE, Server, connected

EXAMPLES: Final = """\
Examples:

    taskyard token create --name ci --scope pool:lab:read --expires 30d
    taskyard token create --kind bot --name rack4 --pool lab
    taskyard token create --kind enrolment --name lab --pool lab --expires 1d
    taskyard token list
    taskyard token revoke 7f3a...
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


def app() -> App:
    """Make `token` with what is below it."""
    made = App(name="token", help="Make, list and revoke tokens.", help_epilogue=EXAMPLES)
    made.default(tokens)
    made.command(create, name="create", help_epilogue=EXAMPLES)
    made.command(tokens, name="list", help_epilogue=EXAMPLES)
    made.command(revoke, name="revoke", help_epilogue=EXAMPLES)
    return made


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Wish:
    """What a new token is for."""

    name: Annotated[str, Parameter(help="Who or what it is for; audits name it.")]
    kind: Annotated[Literal["user", "bot", "enrolment"], Parameter(help="Who may use it.")] = "user"
    pool: Annotated[str | None, Parameter(help="The pool of the bots that it is for.")] = None
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
        lines = [made.token, *forms.table([[title, forms.cell(value(made.view))] for title, value in _COLUMNS])]
        return forms.give_one(asdict(made), output, lambda: lines, made.token)


def tokens(*, output: forms.Form = "table", server: Server = HERE) -> int:
    """List tokens, without their secrets."""
    with connected(server) as client:
        return forms.give_all(client.tokens(), output, _COLUMNS, lambda one: one.id)


def revoke(
    id: Annotated[str, Parameter(help="The token's id, as `token list` gives it.")], /, *, server: Server = HERE
) -> int:
    """End a token at once."""
    with connected(server) as client:
        revoked = client.revoke_token(id)
    reports.talk(f"token {text.harmless(revoked.id)} ({text.harmless(revoked.name)}) is revoked")
    return Exit.OK
