"""Operation: processes and deployments, monitors, events, deletion, tokens that expire.

Gates of the version before go on working: they neither read nor write what is new here.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
works_from = "0001"

# Deployments and artifacts are only added. An artifact's bytes are already compressed, hence EXTERNAL.
_MODELS = """
CREATE TABLE artifact (
    model integer PRIMARY KEY REFERENCES model,
    content bytea NOT NULL,
    author text NOT NULL,
    added_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE artifact ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE deployment (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model integer NOT NULL REFERENCES model,
    action text NOT NULL CHECK (action IN ('pinned', 'prepare', 'shadow', 'active', 'observe', 'retire')),
    settings jsonb NOT NULL,
    author text NOT NULL,
    reason text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE process (
    id uuid PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    deployment bigint,
    loaded integer[] NOT NULL DEFAULT '{}',
    problem text,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now()
);
"""
_NO_MODELS = "DROP TABLE process, deployment, artifact"


_MONITORS = ""
_NO_MONITORS = ""


_EVENTS = ""
_NO_EVENTS = ""


_DELETION = ""
_NO_DELETION = ""


# `revoked_at` may now be in the future: it is when a token ends. Gates of the version before take such a
# token for revoked, so none of them accepts one that has expired. The index still allows a name only one
# token without an end.
_TOKENS = """
ALTER TABLE token DROP CONSTRAINT token_role_check;
ALTER TABLE token ADD CONSTRAINT token_role_check
    CHECK (role IN ('client', 'analyst', 'operator', 'metrics'));
"""
_NO_TOKENS = """
DELETE FROM token WHERE role = 'metrics';
ALTER TABLE token DROP CONSTRAINT token_role_check;
ALTER TABLE token ADD CONSTRAINT token_role_check
    CHECK (role IN ('client', 'analyst', 'operator'));
"""


# The item that has waited longest is one step in this index. Objects of one commit have the same time, so
# that PostgreSQL stores it once for all of them. Created first: it takes longest, and later statements lock
# tables that requests read.
_METRICS = "CREATE INDEX item_oldest ON item (tier, received_at) WHERE state = 0"
_NO_METRICS = "DROP INDEX item_oldest"


def upgrade() -> None:
    """Create the tables."""
    for sql in (_METRICS, _MODELS, _MONITORS, _EVENTS, _DELETION, _TOKENS):
        if sql:
            op.execute(sql)


def downgrade() -> None:
    """Drop the tables and their contents."""
    for sql in (_NO_TOKENS, _NO_DELETION, _NO_EVENTS, _NO_MONITORS, _NO_MODELS, _NO_METRICS):
        if sql:
            op.execute(sql)
