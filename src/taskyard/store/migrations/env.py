"""What Alembic runs to carry out migrations: on the connection, and in the transaction, that `migration` opened.

It never looks at the declared tables: a version says itself what it makes, or later changes to the declarations would
change history.
"""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
