"""Run by Alembic: apply migrations on the connection, and in the transaction, that `migrate` opened.

Migrations do not use the tables in `schema`, because later changes there would change what an old migration does.
"""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
