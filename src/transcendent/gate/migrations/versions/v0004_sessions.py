"""Sessions of browsers, links to sign in with, and the role of those who only watch."""

from alembic import op

revision = "0004"
down_revision = "0003"
works_from = "0001"

# Only hashes of what browsers hold: who reads the tables cannot act as somebody. `token` is the id of the
# token that was given to sign in; without one it was a link.
_SESSIONS = """
CREATE TABLE session (
    hash bytea PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    token text,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX session_name ON session (name);

CREATE TABLE sign_in (
    hash bytea PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    ends_at timestamptz NOT NULL
);

ALTER TABLE token DROP CONSTRAINT token_role_check;
ALTER TABLE token ADD CONSTRAINT token_role_check
    CHECK (role IN ('client', 'analyst', 'labeller', 'operator', 'metrics', 'viewer'));
"""
# What people did last, for those who want to see it or to take it back.
_AUTHORS = """
CREATE INDEX label_author ON label (author, written_at);
CREATE INDEX opinion_writer ON opinion (writer, written_at);
"""
_NO_AUTHORS = "DROP INDEX opinion_writer, label_author"
_NO_SESSIONS = """
DROP TABLE sign_in, session;
DELETE FROM token WHERE role = 'viewer';
ALTER TABLE token DROP CONSTRAINT token_role_check;
ALTER TABLE token ADD CONSTRAINT token_role_check
    CHECK (role IN ('client', 'analyst', 'labeller', 'operator', 'metrics'));
"""


def upgrade() -> None:
    """Create the tables and indexes."""
    op.execute(_SESSIONS)
    op.execute(_AUTHORS)


def downgrade() -> None:
    """Drop the tables, the indexes and the tokens of viewers."""
    op.execute(_NO_AUTHORS)
    op.execute(_NO_SESSIONS)
