"""What all tests share: how hypothesis searches.

A slow machine is no fault, so an example has no deadline. CI tries the same examples each time, so that a change is
judged by what it changes; everywhere else chance goes on looking.
"""

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow]

settings.register_profile("here", deadline=None, suppress_health_check=SLOW)
settings.register_profile("ci", deadline=None, suppress_health_check=SLOW, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
