"""Lets every Python that finds this file live years away: its clock on the wall is wrong, the one that ticks is not."""

import os
import time

# Of the variables that nobody knows, bots pass only those on that begin so.
_SECONDS = float(os.environ.get("LC_YEARS_AWAY", "0")) * 365 * 86_400
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _SECONDS
time.time_ns = lambda: _time_ns() + int(_SECONDS) * 1_000_000_000
