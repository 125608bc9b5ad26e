"""Access: tokens, and the attempts that failed."""

from alembic import op

revision = "0002"
down_revision = "0001"

_TABLES = """
CREATE TABLE token (
    id text PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('client', 'analyst', 'operator')),
    hash text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);
CREATE UNIQUE INDEX token_name ON token (name) WHERE revoked_at IS NULL;

CREATE TABLE failure (
    source text NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX failure_source ON failure (source, at);
CREATE INDEX failure_at ON failure (at);
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(_TABLES)


def downgrade() -> None:
    """Drop the tables: tokens have to be made again."""
    op.execute("DROP TABLE token, failure")
