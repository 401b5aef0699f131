"""Shifts the system clock of every Python that finds this file by years; the monotonic clock is right."""

import os
import time

# Of unknown variables, bots pass on only those that begin with LC_.
_SECONDS = float(os.environ.get("LC_YEARS_AWAY", "0")) * 365 * 86_400
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _SECONDS
time.time_ns = lambda: _time_ns() + int(_SECONDS) * 1_000_000_000
