-- Objects that were kept. Each is spread over three tables:
-- `identity` makes it unique across all months, which a table that is partitioned by month cannot do. It is
--     partitioned by hash instead, so that it can be swept in parts.
-- `item` is what claims and labels update, so it is narrow: PostgreSQL copies a whole row to change it.
-- `payload` is written once, unless another model decides the object again.

CREATE TABLE month (
    number integer PRIMARY KEY
);

-- The lower 40 bits of an item's id. It does not restart each month: there are enough numbers for all.
CREATE SEQUENCE item_number;

CREATE TABLE identity (
    key bytea PRIMARY KEY,
    item bigint NOT NULL
) PARTITION BY HASH (key);
DO $$ BEGIN
    FOR part IN 0..15 LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF identity FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            'identity_' || to_char(part, 'FM00'), part);
    END LOOP;
END $$;

-- `tier`: 0 audited, 1 rejected, 2 skipped, 3 a copy, which no claim reads: the `leader` of its content stands
-- for it. `state`: 0 waiting, 1 labelled, 2 closed. Here and in `payload`, wide columns come first, so that
-- alignment costs no bytes.
CREATE TABLE item (
    id bigint PRIMARY KEY,
    rank double precision NOT NULL,
    received_at timestamptz NOT NULL,
    held_until timestamptz,
    model integer NOT NULL REFERENCES model,
    tier smallint NOT NULL CHECK (tier BETWEEN 0 AND 3),
    state smallint NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
    holder text,
    skipped_by text
) PARTITION BY RANGE (id);
-- Partial, so that labelled items, most of an old month, cost these indexes nothing.
CREATE INDEX item_waiting ON item (tier, rank, id) WHERE state = 0;
CREATE INDEX item_held ON item (holder) WHERE holder IS NOT NULL;
-- The item that has waited longest is one step in this index. Objects of one commit have the same time, so
-- PostgreSQL stores it once for all of them.
CREATE INDEX item_oldest ON item (tier, received_at) WHERE state = 0;

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

-- Labelled objects whose month was dropped, to learn from. Their labels are in `label`. `disagreed` is whether
-- an accepted object was kept because a shadow disagreed, and not drawn for the audit.
CREATE TABLE example (
    id bigint PRIMARY KEY,
    received_at timestamptz NOT NULL,
    probability double precision NOT NULL,
    seen_at timestamptz,
    model integer NOT NULL REFERENCES model,
    accepted boolean NOT NULL,
    object_id text NOT NULL,
    sender text NOT NULL,
    label text NOT NULL,
    features bytea NOT NULL,
    context text,
    shown text,
    disagreed boolean NOT NULL DEFAULT false
);
CREATE INDEX example_object ON example (hashtextextended(object_id, 0));

-- Dropped months whose identities, notes and keys of contexts are not deleted yet.
CREATE TABLE unswept (
    month integer PRIMARY KEY
);

-- Objects that each sender had kept on a day, and those that were over its limit.
CREATE TABLE sender_day (
    day date NOT NULL,
    sender text NOT NULL,
    kept bigint NOT NULL,
    over bigint NOT NULL,
    PRIMARY KEY (day, sender)
);

-- Counting millions of items takes seconds, and a counter in one row would make all transactions wait for its
-- lock. So a trigger inserts the changes of each statement as rows of their own, and readers sum them up. It
-- is a statement trigger with transition tables, since a row trigger would run once for each object.
CREATE TABLE tally (
    month integer NOT NULL,
    tier smallint NOT NULL,
    state smallint NOT NULL,
    n bigint NOT NULL
);

-- About one statement in 300 replaces the rows by their sums. The advisory lock keeps two from doing so at
-- once, and a statement that does not get it continues without. The statement holds a lock on `item`, which
-- dropping a month needs exclusively, so no sum of a month appears after the month was dropped.
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
