"""The limits of results and output that the runner and warm workers need, too.

They are apart from the messages because importing those loads the core, which would slow the start of every worker.
"""

from typing import Final

import msgspec

#: The result that an attempt publishes, in characters: facts for its dependents. Larger data belongs in a file.
RESULT_MAX: Final = 262_144
#: One piece of output in a poll, in bytes: stored in a few milliseconds.
PIECE_MAX: Final = 262_144
#: The value of a `Raw` field that was not sent: such a field cannot be None.
NOTHING: Final = msgspec.Raw()
