"""The tokens of running tasks: sealed, not stored. One is good as long as its attempt is leased with its fence.

    ty_run_<task>_<attempt>_<fence>_<the first 128 bits of an HMAC-SHA256 over the rest>

Nothing here asks whether an attempt is still under way.
"""

import re
from hmac import compare_digest
from hmac import digest as hmac
from typing import Final, NamedTuple

RUN: Final = "ty_run_"
#: How many digits of the HMAC are kept.
DIGITS: Final = 32
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

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        assert len(key) == 32, "the key of a seal has 32 bytes"
        self._key = key

    def token(self, task: int, attempt: int, fence: int) -> str:
        """Seal a token for one attempt."""
        said = f"ty_run_{task:016x}_{attempt}_{fence}"
        return f"{said}_{hmac(self._key, said.encode(), 'sha256').hex()[:DIGITS]}"

    def read(self, text: str) -> RunToken | None:
        """Read a token, if it has our seal."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        said = text[: -DIGITS - 1]
        if not compare_digest(hmac(self._key, said.encode(), "sha256").hex()[:DIGITS], found[4]):
            return None
        return RunToken(int(found[1], 16), int(found[2]), int(found[3]))
