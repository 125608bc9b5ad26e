"""Alembic's entry point: runs migrations on the connection that it was given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transaction_per_migration=True)
with context.begin_transaction():
    context.run_migrations()
