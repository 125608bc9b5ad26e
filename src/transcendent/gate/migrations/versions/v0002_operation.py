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


# Counts of decided objects, by the process that decided them; a number of objects for each cell. The rows of
# a minute are folded into the monitor together, once all processes that live have flushed it.
_MONITORS = """
ALTER TABLE process ADD COLUMN flushed bigint;

CREATE TABLE minute_counts (
    deployment bigint NOT NULL REFERENCES deployment,
    minute bigint NOT NULL,
    process uuid NOT NULL,
    objects bigint NOT NULL,
    cells integer[] NOT NULL,
    counts bigint[] NOT NULL,
    PRIMARY KEY (deployment, minute, process)
);

-- The state is text, since jsonb would change the numbers' form.
CREATE TABLE monitor (
    deployment bigint PRIMARY KEY REFERENCES deployment,
    folded bigint NOT NULL DEFAULT -1,
    folded_at timestamptz,
    state text,
    problem text,
    objects bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0,
    expected double precision,
    log_value double precision NOT NULL DEFAULT 0,
    audited text
);

-- At most one alarm of a kind for a deployment: it stands until another deployment, and is not repeated.
CREATE TABLE alarm (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    deployment bigint NOT NULL REFERENCES deployment,
    kind text NOT NULL CHECK (kind IN ('drift', 'rejections', 'harm')),
    at bigint NOT NULL,
    log_value double precision NOT NULL,
    raised_at timestamptz NOT NULL DEFAULT now(),
    acknowledged_at timestamptz,
    acknowledged_by text,
    reason text,
    UNIQUE (deployment, kind)
);
"""
_NO_MONITORS = "DROP TABLE alarm, monitor, minute_counts; ALTER TABLE process DROP COLUMN flushed"


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
