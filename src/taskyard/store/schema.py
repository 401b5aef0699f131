"""The schema: every table, declared once for both databases.

Whatever people name has its key from `core.ids`; the database counts only what the house keeps for itself. SQLAlchemy
declares and migrates the tables; no query goes through it. `docs/entities.md` maps the entities of TaskCluster and
Swarming to them.
"""

from taskyard.store.tables import access, fleet, keeping, work
from taskyard.store.tables.columns import metadata

__all__ = ["access", "fleet", "keeping", "metadata", "work"]
