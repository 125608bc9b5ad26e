"""Operation: processes and deployments, monitors, events, deletion, tokens that expire.

Gates of the version before go on working: they neither read nor write what is new here.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
works_from = "0001"

# Deployments and artifacts are only added. An artifact is read in parts, which EXTERNAL makes quick: without
# compression, a part is found without reading those before it.
_MODELS = """
CREATE TABLE artifact (
    model integer PRIMARY KEY REFERENCES model,
    content bytea NOT NULL,
    name text NOT NULL,
    rejector text NOT NULL,
    budget double precision,
    author text NOT NULL,
    reason text NOT NULL,
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


_TOKENS = ""
_NO_TOKENS = ""


def upgrade() -> None:
    """Create the tables."""
    for sql in (_MODELS, _MONITORS, _EVENTS, _DELETION, _TOKENS):
        if sql:
            op.execute(sql)


def downgrade() -> None:
    """Drop the tables and their contents."""
    for sql in (_NO_TOKENS, _NO_DELETION, _NO_EVENTS, _NO_MONITORS, _NO_MODELS):
        if sql:
            op.execute(sql)
