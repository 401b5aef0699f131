"""The Celery engine: a bot hands its attempts to Celery workers.

`engine.py` is the side of the bot, `worker.py` that of a Celery worker, and `messages.py` what they say to one another.
This module is the Celery app of both: `celery -A taskyard.bot.engines.celery worker` starts a worker, as does
`taskyard celery-worker`.
"""

from taskyard.bot.engines.celery.app import app as app
from taskyard.bot.engines.celery.app import run_attempt as run_attempt
