"""How large what is said to the engine may be. `docs/commands.md` prints these beside the fields they bound."""

from typing import Final

from taskyard.core.graph.limits import DESCRIPTION_MAX
from taskyard.core.words import Reason

#: The largest number that both databases keep.
NUMBER_MAX: Final = 2**63 - 1
#: What any system says about the end of a process: a signal as a negative number, or 32 bits without a sign.
EXIT_CODE_MIN: Final = -(2**31)
EXIT_CODE_MAX: Final = 2**32 - 1
#: What one poll may report, and what it may renew: a transaction takes twice that many tasks. A bot with more to say
#: polls again.
POLL_WORDS_MAX: Final = 1_000
#: What an attempt publishes, in characters: facts for whoever comes after it. More belongs in an output.
RESULT_MAX: Final = 262_144
#: All results of one poll together: written in well under 100 ms.
RESULTS_MAX: Final = 4_194_304
#: What one poll may bring of what attempts print, and how large one piece may be, in bytes: written in a few
#: milliseconds.
OUTPUTS_MAX: Final = 1_048_576
PIECE_MAX: Final = 262_144
#: What an attempt says of its progress, in characters, and what it leaves for the next, in bytes.
PROGRESS_MAX: Final = 4_096
CHECKPOINT_MAX: Final = 65_536
#: What a person says of a decision, in characters.
COMMENT_MAX: Final = 4_096
#: From how many tasks on a graph may be run again or ended by one wish; a matrix counts as one.
LABELS_MAX: Final = 100
#: How many tasks a wish names that ends them with everything behind them: what one transaction looks at in no time.
WISHED_MAX: Final = 1_000
#: A pool may count its capacity from the slots of its bots, and weights go up to this.
SLOTS_MAX: Final = 1_000_000
#: Why a bot is unfit or away; a traceback fits.
WHY_MAX: Final = DESCRIPTION_MAX
#: What a bot may have: more keys and values than a slice may ask for, since it serves many kinds of them.
BOT_DIMENSIONS_MAX: Final = 128
BOT_DIMENSION_VALUES_MAX: Final = 128

#: Why a bot may say that an attempt ended badly; all other reasons are for the server to give.
REASONS_OF_BOTS: Final = frozenset(
    {
        Reason.EXIT_CODE,
        Reason.SIGNALED,
        Reason.TIMED_OUT,
        Reason.SILENT,
        Reason.BAD_RESULT,
        Reason.UNRENEWED,
        Reason.RETURNED,
    }
)
