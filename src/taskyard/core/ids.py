"""Ids of tasks, graphs, attempts and bots.

The key of a task or a graph is the one of Swarming's TaskRequest, 63 bits:

    43 bits  milliseconds since 2010-01-01T00:00:00Z    } NOT'ed together, so that
    16 bits  random                                     } newer ids sort first
     4 bits  version of this layout, 0x8

Its text is sixteen lower-case hexadecimal digits, so texts sort as keys do. No store numbers anything: time and random
bits are arguments, and if a new key is already in use, another one is made with other random bits.
"""

import re
from dataclasses import dataclass
from typing import Final, NewType

from taskyard.core.states import BotId, Millis

#: The key of a task or a graph.
Key = NewType("Key", int)

#: 2010-01-01T00:00:00Z, where the time in a key begins.
EPOCH_MS: Final = 1_262_304_000_000
VERSION: Final = 0x8
TIME_BITS: Final = 43  # lasts into the year 2288
CHANCE_BITS: Final = 16
VERSION_BITS: Final = 4
KEY_DIGITS: Final = 16
#: The last millisecond that a key can hold.
LAST_MS: Final = EPOCH_MS + (1 << TIME_BITS) - 1
#: One call runs at most 16 ms ahead of the clock; a larger set of tasks is inserted in pages anyway.
MINT_MAX: Final = 1_000_000
#: Attempts are counted without end; this only keeps hostile text from becoming a number of any size.
ATTEMPT_DIGITS_MAX: Final = 100

# The keys that Swarming's schema gives to what hangs below a task or a bot. A TaskToRun, a TaskDimensions and a
# BotTaskDimensions have the hash of their dimensions as key: `matching.dimension_hash`.
TASK_RESULT_SUMMARY_KEY: Final = 1
FIRST_TASK_RUN_RESULT_KEY: Final = 1  # then one more for each attempt
PERFORMANCE_STATS_KEY: Final = 1
SECRET_BYTES_KEY: Final = 1
TASK_OUTPUT_KEY: Final = 1
FIRST_TASK_OUTPUT_CHUNK_KEY: Final = 1  # then one more for each chunk
BOT_SETTINGS_KEY: Final = "settings"
BOT_INFO_KEY: Final = "info"
BOT_DIMENSIONS_KEY: Final = 1
DIMENSION_AGGREGATION_KEY: Final = "current"
#: Drawn with five digits in the schema; with twelve, a bot may report a thousand events a second for 8 900 years.
BOT_EVENT_DIGITS: Final = 12

#: The distance between the keys of two neighbours that one call of `mint` made.
STEP: Final = 1 << VERSION_BITS

#: The span of a block of 1 024 neighbouring ids. With smaller ones, a bot has a block for every few of its tasks;
#: with larger ones, the tasks of other bots there take long to pass over.
BLOCK: Final = 1_024 * STEP

_PLACE_BITS = TIME_BITS + CHANCE_BITS
_PLACES = 1 << _PLACE_BITS
_KEY_TEXT = re.compile(rf"[0-7][0-9a-f]{{{KEY_DIGITS - 1}}}")
_ATTEMPT_TEXT = re.compile(rf"(.{{{KEY_DIGITS}}})-([1-9][0-9]{{0,{ATTEMPT_DIGITS_MAX - 1}}})")


@dataclass(frozen=True, slots=True)
class Stamp:
    """The parts of a key."""

    created_ms: Millis
    chance: int


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """One attempt of one task, numbered from 1."""

    key: Key
    number: int


def mint(now: Millis, count: int, chance: int, newest: Key | None = None) -> list[Key]:
    """Make `count` distinct keys for things that are created now, in the order in which they shall sort.

    Keys of one call share one moment of creation, so they sort in the order of the call: the tasks of a graph keep
    the order of its document under (priority, created, id). Keys of a later moment sort before all of them.
    A millisecond has 65 536 places; a call takes consecutive ones from `chance` on and spills into the milliseconds
    that follow. Who passes the `newest` key it has made is never given one twice, even if its clock steps back. So one
    call makes the keys of all that is created in one transaction, and the next transaction has a later moment: then
    creation order holds between them too.
    """
    if not 0 <= count <= MINT_MAX:
        raise ValueError(f"cannot make {count} keys in one call: it takes 0 to {MINT_MAX}")
    first = _place(now, chance)
    if newest is not None:
        first = max(first, _place_of(newest) + 1)
    if first + count > _PLACES:
        raise ValueError(f"cannot make {count} keys at {now} ms: time ends at {LAST_MS} ms")
    oldest_key = _key_at(first)
    newest_key = oldest_key - (count - 1) * STEP
    return [Key(key) for key in range(newest_key, oldest_key + 1, STEP)]


def last_key_since(moment: Millis) -> Key:
    """Give the greatest key that something created at a moment or later can have: what is newer has smaller keys."""
    return _key_at(_place(Millis(min(max(moment, EPOCH_MS), LAST_MS)), 0))


def block_of(id: int) -> int:
    """Return the block of neighbouring ids that an id is in."""
    return id // BLOCK


def stamp(key: Key) -> Stamp:
    """Return the parts of `key`."""
    place = _place_of(key)
    return Stamp(Millis(EPOCH_MS + (place >> CHANCE_BITS)), place & ((1 << CHANCE_BITS) - 1))


def text_of(key: Key) -> str:
    """Write `key` as text."""
    return f"{key:0{KEY_DIGITS}x}"


def key_of(text: str) -> Key:
    """Read a key; refuse a text that `text_of` would not write."""
    if not _KEY_TEXT.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no id: an id has {KEY_DIGITS} digits of 0-9 and a-f, the first at most 7")
    key = Key(int(text, 16))
    _place_of(key)
    return key


def attempt_text(attempt: AttemptKey) -> str:
    """Write the id of one attempt: the task's id, a dash and the number."""
    if attempt.number < 1:
        raise ValueError(f"there is no attempt {attempt.number}: attempts are numbered from 1")
    return f"{text_of(attempt.key)}-{attempt.number}"


def attempt_of(text: str) -> AttemptKey:
    """Read the id of one attempt."""
    parts = _ATTEMPT_TEXT.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text[:40]!r} is no id of an attempt: it is a task's id, a dash and a number from 1")
    return AttemptKey(key_of(parts[1]), int(parts[2]))


def bot_event_text(number: int, digits: int = BOT_EVENT_DIGITS) -> str:
    """Write the key of a bot's event, numbered from 0; keys go down from `ff...f`, so the newest sorts first."""
    left = 16**digits - 1 - number
    if number < 0 or left < 0:
        raise ValueError(f"a bot has no event {number}: events are numbered from 0 to {16**digits - 1}")
    return f"{left:0{digits}x}"


def bot_event_number(text: str) -> int:
    """Read the number of a bot's event out of its key."""
    if not re.fullmatch(r"[0-9a-f]+", text) or len(text) > BOT_EVENT_DIGITS:
        raise ValueError(f"{text[:40]!r} is no key of a bot's event: it has {BOT_EVENT_DIGITS} digits of 0-9 and a-f")
    return int(16 ** len(text)) - 1 - int(text, 16)


def pool_root(pool: str) -> str:
    """Return the root of all queues of a pool."""
    return f"pool:{pool}"


def bot_root(bot: BotId) -> str:
    """Return the root of the queues that only one bot serves."""
    return f"id:{bot}"


def _place(now: Millis, chance: int) -> int:
    if not EPOCH_MS <= now <= LAST_MS:
        raise ValueError(f"{now} ms cannot be in a key: the years 2010 to 2288 can ({EPOCH_MS} to {LAST_MS} ms)")
    if not 0 <= chance < 1 << CHANCE_BITS:
        raise ValueError(f"chance is {chance}: it has to fit in {CHANCE_BITS} bits")
    return (now - EPOCH_MS) << CHANCE_BITS | chance


def _key_at(place: int) -> Key:
    return Key((_PLACES - 1 - place) << VERSION_BITS | VERSION)


def _place_of(key: Key) -> int:
    version = key & ((1 << VERSION_BITS) - 1)
    if version != VERSION:
        raise ValueError(
            f"{text_of(key)} is no id: its last digit says version {version:x}, and only version {VERSION:x} is known"
        )
    return _PLACES - 1 - (key >> VERSION_BITS)
