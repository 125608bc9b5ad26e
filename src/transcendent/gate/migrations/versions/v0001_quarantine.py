"""The quarantine: models, identities, items, payloads and labels."""

from alembic import op

revision = "0001"
down_revision = None

_TABLES = """
CREATE TABLE secret (
    name text PRIMARY KEY,
    value bytea NOT NULL
);

CREATE TABLE model (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    classes jsonb NOT NULL,
    features jsonb NOT NULL,
    first_used timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE month (
    number integer PRIMARY KEY
);

CREATE SEQUENCE item_number;

CREATE TABLE identity (
    key bytea PRIMARY KEY,
    item bigint NOT NULL
) PARTITION BY HASH (key);

CREATE TABLE item (
    id bigint PRIMARY KEY,
    rank double precision NOT NULL,
    received_at timestamptz NOT NULL,
    held_until timestamptz,
    model integer NOT NULL REFERENCES model,
    tier smallint NOT NULL CHECK (tier BETWEEN 0 AND 2),
    state smallint NOT NULL DEFAULT 0 CHECK (state IN (0, 1)),
    holder text,
    skipped_by text
) PARTITION BY RANGE (id);
CREATE INDEX item_waiting ON item (tier, rank, id) WHERE state = 0;
CREATE INDEX item_held ON item (holder) WHERE holder IS NOT NULL;

CREATE TABLE payload (
    id bigint PRIMARY KEY,
    credibility double precision NOT NULL,
    confidence double precision NOT NULL,
    probability double precision NOT NULL CHECK (probability > 0 AND probability <= 1),
    votes integer,
    doubt smallint,
    accepted boolean NOT NULL,
    object_id text NOT NULL,
    sender text NOT NULL,
    label text NOT NULL,
    p_values bytea,
    features bytea NOT NULL
) PARTITION BY RANGE (id);

CREATE TABLE label (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item bigint NOT NULL,
    object_id text NOT NULL,
    action text NOT NULL CHECK (action IN ('label', 'skip', 'undo')),
    label text,
    reason text,
    note text,
    author text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((action = 'label') = (label IS NOT NULL))
);
CREATE INDEX label_item ON label (item, id);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'labels are only added: they are never changed or deleted';
END $$;
CREATE TRIGGER label_only_grows BEFORE UPDATE OR DELETE ON label
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER label_only_grows_whole BEFORE TRUNCATE ON label
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

INSERT INTO secret VALUES ('audit', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(_TABLES)
    for part in range(16):
        op.execute(
            f"CREATE TABLE identity_{part:02} PARTITION OF identity "
            f"FOR VALUES WITH (MODULUS 16, REMAINDER {part})"
        )


def downgrade() -> None:
    """Drop the tables and all that is in them."""
    op.execute("DROP TABLE label, payload, item, identity, month, model, secret")
    op.execute("DROP SEQUENCE item_number")
    op.execute("DROP FUNCTION refuse_change")
