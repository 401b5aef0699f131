"""Scopes are compared whole: a pool whose name resembles another's, in whatever way, is another pool."""

from hypothesis import given
from hypothesis import strategies as st

from taskyard.server.tokens import RIGHTS, rights_of, scope, scope_fault
from tests.each_row import each_row

#: What is given, and a pool and right for which it must not be enough.
NOT_ENOUGH = [
    ("pool:ab:read", "abc", "read"),
    ("pool:abc:read", "ab", "read"),
    ("pool:ab:read", "a", "read"),
    ("pool:lab:read", "LAB", "read"),
    ("pool:lab:read", "lab ", "read"),
    ("pool:lab:read", "lab/x", "read"),
    ("pool:lab:read", "lab%2fx", "read"),
    ("pool:lab:read", "l\u0430b", "read"),
    ("pool:la*:read", "lab", "read"),
    ("pool:l?b:read", "lab", "read"),
    ("pool:.*:read", "lab", "read"),
    ("pool:%:read", "lab", "read"),
    ("pool:**:read", "lab", "read"),
    ("pool::read", "lab", "read"),
    ("pool::read", "", "read"),
    ("pool:lab:read", "lab", "submit"),
    ("pool:lab:submit", "lab", "read"),
    ("pool:lab:submit", "lab", "cancel"),
    ("pool:lab:bot", "lab", "read"),
    ("pool:lab:READ", "lab", "read"),
    ("pool:lab:*", "lab", "read"),
    ("pool:lab", "lab", "read"),
    ("pool:lab:read:", "lab", "read"),
    (" pool:lab:read", "lab", "read"),
    ("POOL:lab:read", "lab", "read"),
    ("pool:a:read,pool:lab:read", "lab", "read"),
    ("pool:a:read pool:lab:read", "lab", "read"),
    ("Admin", "lab", "read"),
    ("admin ", "lab", "read"),
    ("admin:*", "lab", "read"),
    ("*", "lab", "read"),
    ("", "lab", "read"),
    ("pool:x:pool:lab:read", "lab", "read"),
    ("pool:lab:admin", "lab2", "admin"),
]
POOLS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@each_row(("given_scope", "pool", "right"), NOT_ENOUGH)
def test_what_only_resembles_a_scope_gives_nothing(given_scope: str, pool: str, right: str) -> None:
    rights = rights_of([given_scope])
    assert rights.missing_scopes(right, {pool})
    assert not rights.has_in_any(right, {pool})
    assert not rights.admin


@given(POOLS, POOLS, st.sampled_from(RIGHTS), st.sampled_from(RIGHTS))
def test_a_scope_is_good_for_its_own_pool_and_right_alone(mine: str, other: str, given_right: str, wanted: str) -> None:
    text = scope(mine, given_right)
    rights = rights_of([text])
    fits = scope_fault(text) is None and mine in {other, "*"} and given_right in {wanted, "admin"}
    assert rights.has_in_any(wanted, {other}) == fits
    assert (rights.missing_scopes(wanted, {other}) == []) == fits
