"""The tokens of running tasks: sealed, not stored. One is good as long as its attempt is leased with its fence.

    ty_run_<task>_<attempt>_<fence>_<the first 128 bits of an HMAC-SHA256 over the rest>

Nothing here asks whether an attempt is still under way.
"""

import re
from collections.abc import Sequence
from hmac import compare_digest
from hmac import digest as hmac
from typing import Final, NamedTuple

RUN: Final = "ty_run_"
#: How many digits of the HMAC are kept.
DIGITS: Final = 32
KEY_BYTES: Final = 32
#: The sizes are those of what is sealed: a longer text is no token, and is not looked at.
_TEXT: Final = re.compile(
    rf"ty_run_([0-7][0-9a-f]{{15}})_([0-9]{{1,19}})_([0-9]{{1,19}})_([0-9a-f]{{{DIGITS}}})", re.ASCII
)


class RunToken(NamedTuple):
    """What a token of a running task says."""

    task: int
    attempt: int
    fence: int


class Seal:
    """Seals tokens, and knows its own seal again."""

    __slots__ = ("_keys",)

    def __init__(self, *keys: bytes) -> None:
        """Seal with the first key; what others sealed is good as well."""
        self._keys = keys
        self.learn(keys)

    def learn(self, keys: Sequence[bytes]) -> None:
        """Go by these keys from now on."""
        assert keys, "a seal has a key"
        assert all(len(key) == KEY_BYTES for key in keys), "the key of a seal has 32 bytes"
        self._keys = tuple(keys)

    def token(self, task: int, attempt: int, fence: int) -> str:
        """Seal a token for one attempt."""
        said = f"ty_run_{task:016x}_{attempt}_{fence}"
        return f"{said}_{_sealed(self._keys[0], said)}"

    def derived(self, text: str) -> bytes:
        """Give a secret of 32 bytes that follows from a text and from the key alone."""
        return hmac(self._keys[0], b"derived " + text.encode(), "sha256")

    def read(self, text: str) -> RunToken | None:
        """Read a token, if it has our seal."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        said = text[: -DIGITS - 1]
        if not any(compare_digest(_sealed(key, said), found[4]) for key in self._keys):
            return None
        return RunToken(int(found[1], 16), int(found[2]), int(found[3]))


def _sealed(key: bytes, said: str) -> str:
    return hmac(key, said.encode(), "sha256").hex()[:DIGITS]
