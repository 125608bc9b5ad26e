"""Counts that no scan is needed for, and which gates work with the tables.

Tokens have to be made again: their hashes are of another kind.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
works_from = "0003"

# A trigger adds what each statement changes. No two transactions write the same row, so none waits for
# another. Once in a few hundred statements the rows are summed up. Whoever does that has the table `item`
# locked for writing, so that no sum of a month appears after the month was dropped.
_TABLES = """
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
INSERT INTO tally SELECT id >> 40, tier, state, count(*) FROM item GROUP BY 1, 2, 3;

CREATE TABLE works_from (
    version text NOT NULL
);
INSERT INTO works_from VALUES ('0003');

DROP TABLE failure;
DELETE FROM token;
"""

_BACK = """
CREATE TABLE failure (
    source text NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX failure_source ON failure (source, at);
CREATE INDEX failure_at ON failure (at);
DROP TRIGGER tally_added ON item;
DROP TRIGGER tally_removed ON item;
DROP TRIGGER tally_changed ON item;
DROP FUNCTION tally_items;
DROP TABLE tally, works_from;
DELETE FROM token;
"""


def upgrade() -> None:
    """Count what there is, and all that comes: tokens have to be made again."""
    op.execute(_TABLES)


def downgrade() -> None:
    """Drop the counts: tokens have to be made again."""
    op.execute(_BACK)
