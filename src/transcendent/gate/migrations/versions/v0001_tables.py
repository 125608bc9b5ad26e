"""The first version: models, identities, items, payloads, labels, tokens and counts.

An object is spread over three tables. ``identity`` makes it unique across all months, which a table that is
partitioned by month cannot do; it is partitioned by hash instead, so that it can be swept in parts. ``item``
is what claims and labels update, so it is narrow: PostgreSQL copies a whole row to change it. ``payload`` is
written once, unless another model decides the object again.
"""

from alembic import op

revision = "0001"
down_revision = None
works_from = "0001"

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

-- No foreign key from payload: a cutoff may be dropped with its month.
CREATE TABLE cutoff (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model integer NOT NULL REFERENCES model,
    rank double precision,
    second double precision,
    share double precision NOT NULL CHECK (share BETWEEN 0 AND 1),
    decided bigint NOT NULL,
    rejected bigint NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((rank IS NULL) = (second IS NULL))
);
CREATE INDEX cutoff_newest ON cutoff (model, number);

-- The objects of the last window, in the intervals in which gates counted them.
CREATE TABLE ranks (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key uuid NOT NULL,
    gate uuid NOT NULL,
    model integer NOT NULL REFERENCES model,
    decided bigint NOT NULL,
    rejected bigint NOT NULL,
    lag bigint NOT NULL,
    sample bytea NOT NULL
);
CREATE INDEX ranks_newest ON ranks (model, number);

CREATE TABLE sender_day (
    day date NOT NULL,
    sender text NOT NULL,
    kept bigint NOT NULL,
    over bigint NOT NULL,
    PRIMARY KEY (day, sender)
);

CREATE TABLE works_from (
    version text NOT NULL
);
INSERT INTO works_from VALUES ('0001');

CREATE TABLE month (
    number integer PRIMARY KEY
);

-- The lower 40 bits of an item's id. It does not restart each month: there are enough numbers for all.
CREATE SEQUENCE item_number;

CREATE TABLE identity (
    key bytea PRIMARY KEY,
    item bigint NOT NULL
) PARTITION BY HASH (key);

-- Here and in payload, wide columns come first, so that alignment costs no bytes.
CREATE TABLE item (
    id bigint PRIMARY KEY,
    rank double precision NOT NULL,
    received_at timestamptz NOT NULL,
    held_until timestamptz,
    model integer NOT NULL REFERENCES model,
    tier smallint NOT NULL CHECK (tier BETWEEN 0 AND 2),
    state smallint NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
    holder text,
    skipped_by text
) PARTITION BY RANGE (id);
-- Partial, so that labelled items, most of an old month, cost these indexes nothing.
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
    cutoff bigint,
    label text NOT NULL,
    p_values bytea,
    features bytea NOT NULL,
    context text,
    seen_at timestamptz,
    shown text
) PARTITION BY RANGE (id);
-- Of a hash, since ids are often digests of 64 characters. A hash index would be slow if many ids were equal.
CREATE INDEX payload_object ON payload (hashtextextended(object_id, 0));

-- No foreign key to item: the history outlives dropped months.
CREATE TABLE label (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item bigint NOT NULL,
    object_id text NOT NULL,
    action text NOT NULL CHECK (action IN ('label', 'skip', 'undo', 'decide', 'close')),
    label text,
    reason text,
    note text,
    author text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((action = 'label') = (label IS NOT NULL))
);
-- The last action of an item is one step in this index.
CREATE INDEX label_item ON label (item, id);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'labels are only added: they are never changed or deleted';
END $$;
CREATE TRIGGER label_only_grows BEFORE UPDATE OR DELETE ON label
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
-- TRUNCATE fires no trigger of rows.
CREATE TRIGGER label_only_grows_whole BEFORE TRUNCATE ON label
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- 244 random bits; gen_random_bytes would need the extension pgcrypto.
INSERT INTO secret VALUES ('audit', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

CREATE TABLE token (
    id text PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('client', 'analyst', 'operator')),
    hash text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);
-- Partial, so that a name whose token was revoked can get another.
CREATE UNIQUE INDEX token_name ON token (name) WHERE revoked_at IS NULL;
"""

# Counting millions of items takes seconds, and a counter in one row would make all transactions wait for its
# lock. So a trigger inserts the changes of each statement as rows of their own, and readers sum them up. It
# is a statement trigger with transition tables, since a row trigger would run once for each object.
#
# About one statement in 300 replaces the rows by their sums; the advisory lock keeps two from doing so at
# once, and a statement that does not get it continues without. The statement holds a lock on `item`, which
# dropping a month needs exclusively, so that no sum of a month appears after the month was dropped.
_COUNTS = """
CREATE TABLE tally (
    month integer NOT NULL,
    tier smallint NOT NULL,
    state smallint NOT NULL,
    n bigint NOT NULL
);

CREATE FUNCTION tally_items() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tally SELECT id >> 40, tier, state, count(*) FROM added GROUP BY 1, 2, 3;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO tally SELECT id >> 40, tier, state, -count(*) FROM removed GROUP BY 1, 2, 3;
    ELSE
        INSERT INTO tally SELECT id >> 40, tier, state, sum(n) FROM (
            SELECT id, tier, state, 1 AS n FROM added UNION ALL SELECT id, tier, state, -1 FROM removed
        ) AS changed GROUP BY 1, 2, 3 HAVING sum(n) <> 0;
    END IF;
    IF random() < 0.003 AND pg_try_advisory_xact_lock(1951555952) THEN
        WITH old AS (DELETE FROM tally RETURNING *)
        INSERT INTO tally SELECT month, tier, state, sum(n) FROM old GROUP BY 1, 2, 3 HAVING sum(n) <> 0;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tally_added AFTER INSERT ON item REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tally_items();
CREATE TRIGGER tally_removed AFTER DELETE ON item REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION tally_items();
CREATE TRIGGER tally_changed AFTER UPDATE ON item REFERENCING OLD TABLE AS removed NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tally_items();
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(_TABLES)
    op.execute(_COUNTS)
    for part in range(16):
        op.execute(
            f"CREATE TABLE identity_{part:02} PARTITION OF identity "
            f"FOR VALUES WITH (MODULUS 16, REMAINDER {part})"
        )


def downgrade() -> None:
    """Drop the tables and their contents."""
    op.execute("DROP TABLE tally, token, label, payload, item, identity, month, works_from")
    op.execute("DROP TABLE sender_day, ranks, cutoff, model, secret")
    op.execute("DROP SEQUENCE item_number")
    op.execute("DROP FUNCTION refuse_change, tally_items")
