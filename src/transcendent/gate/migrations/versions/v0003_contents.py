"""Contents: which items have the same features, which campaigns they form, and labels that nobody gave.

``item`` stays as narrow as it is, and requests write none of these tables: one process at a time fills them
soon after objects were kept.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
works_from = "0001"

# A copy waits in tier 3, which no claim reads: the `leader` of its content stands for it. NOT VALID, so that
# items are not read while the table is locked; no row has another tier.
_COPIES = """
ALTER TABLE item DROP CONSTRAINT item_tier_check;
ALTER TABLE item ADD CONSTRAINT item_tier_check CHECK (tier BETWEEN 0 AND 3) NOT VALID;

-- `label` is that of a person, for the item `labelled`. `contested` content had two. `place` is its place in
-- a random order that nobody can foresee.
CREATE TABLE content (
    key bytea PRIMARY KEY,
    place double precision NOT NULL,
    leader bigint,
    labelled bigint,
    label text,
    campaign text,
    contested boolean NOT NULL DEFAULT false
);
CREATE INDEX content_campaign ON content (campaign) WHERE campaign IS NOT NULL;

-- A person has given an `opened` item a label: few of those that have the same features.
CREATE TABLE item_content (
    item bigint PRIMARY KEY,
    key bytea NOT NULL,
    opened boolean NOT NULL DEFAULT false
);
CREATE INDEX item_content_key ON item_content (key, item);
CREATE INDEX item_content_opened ON item_content (key) WHERE opened;

-- Items with a smaller number all have a content.
CREATE TABLE contents_known (
    before bigint NOT NULL
);
INSERT INTO contents_known VALUES (0);
"""
_NO_COPIES = """
DROP TABLE contents_known, item_content, content;
UPDATE item SET tier = 1 WHERE tier = 3;
ALTER TABLE item DROP CONSTRAINT item_tier_check;
ALTER TABLE item ADD CONSTRAINT item_tier_check CHECK (tier BETWEEN 0 AND 2) NOT VALID;
"""

# A label that nobody gave to an item is a row of `label` like any other, and has a row here. It follows from
# the labels `sources`: if one of those is taken back, so is this one.
_INFERRED = """
CREATE TABLE inferred (
    label bigint PRIMARY KEY,
    item bigint NOT NULL,
    how text NOT NULL CHECK (how IN ('copy', 'campaign', 'settled')),
    sources bigint[] NOT NULL
);
CREATE INDEX inferred_item ON inferred (item);
CREATE INDEX inferred_sources ON inferred USING gin (sources);

-- What is left to do after a request that concerns many items: copies get a label, labels that follow from
-- others are taken back, or copies of contested content are to wait by themselves. Work goes down from
-- `before`, the number of an item, or that of a label to take back.
CREATE TABLE label_work (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('label', 'undo', 'release')),
    key bytea,
    before bigint NOT NULL,
    how text[] NOT NULL,
    sources bigint[] NOT NULL,
    label text,
    model integer,
    remark bigint,
    author text NOT NULL
);
"""
# Without this table they would be labels of their authors: they are taken back.
_NO_INFERRED = """
WITH stands AS (
    SELECT item.id FROM inferred JOIN item ON item.id = inferred.item AND item.state = 1
    WHERE inferred.label = (SELECT max(id) FROM label WHERE label.item = inferred.item)
), history AS (
    INSERT INTO label (item, action, author) SELECT id, 'undo', 'gate' FROM stands
)
UPDATE item SET state = 0 FROM stands WHERE item.id = stands.id;
DELETE FROM example USING inferred WHERE inferred.item = example.id
    AND inferred.label = (SELECT max(id) FROM label WHERE label.item = inferred.item);
DROP TABLE label_work, inferred
"""

# What a campaign looks like, in plain values; its members are the contents that name it. Labels up to
# `looks_after` prove nothing about it: then one of them split it.
_CAMPAIGNS = """
CREATE TABLE campaign (
    id text PRIMARY KEY,
    described jsonb NOT NULL,
    looks_after bigint NOT NULL DEFAULT 0,
    found_at timestamptz NOT NULL DEFAULT now()
);

-- When a process last began to look for campaigns, and what there was to see when one last finished.
CREATE TABLE grouped (
    started_at timestamptz NOT NULL,
    seen text NOT NULL
);
INSERT INTO grouped VALUES (now(), '');
"""
_NO_CAMPAIGNS = "DROP TABLE grouped, campaign"

# `near` is an item of the nearest content that has a label, at a `distance`. What was labelled since then,
# `compared_at`, is still to be compared. One process at a time does so, and notes when it begins.
_SUGGESTIONS = """
ALTER TABLE content ADD COLUMN near bigint, ADD COLUMN distance double precision,
    ADD COLUMN compared_at timestamptz;
CREATE INDEX content_labelled ON content (labelled) WHERE labelled IS NOT NULL;
CREATE INDEX content_unlabelled ON content (leader) WHERE label IS NULL;
CREATE INDEX content_new ON content (leader) WHERE label IS NULL AND compared_at IS NULL;
CREATE INDEX content_compared ON content (compared_at) WHERE distance IS NOT NULL;

CREATE TABLE case_work (
    began_at timestamptz NOT NULL
);
INSERT INTO case_work VALUES ('-infinity');
"""
_NO_SUGGESTIONS = """
DROP TABLE case_work;
DROP INDEX content_labelled, content_unlabelled, content_new, content_compared;
ALTER TABLE content DROP COLUMN near, DROP COLUMN distance, DROP COLUMN compared_at;
"""

# Items that would have been settled with a label, but were drawn to be looked at all the same; the rank of
# the draw orders those of a day. An operator's switch has rows that are only added: the last one holds.
_SETTLING = """
INSERT INTO secret VALUES ('settle', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

CREATE TABLE settled_look (
    item bigint PRIMARY KEY,
    label text NOT NULL,
    distance double precision NOT NULL,
    draw double precision NOT NULL,
    drawn_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE settling_switch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action text NOT NULL CHECK (action IN ('stop', 'resume')),
    author text NOT NULL,
    reason text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE alarm DROP CONSTRAINT alarm_kind_check;
ALTER TABLE alarm ADD CONSTRAINT alarm_kind_check
    CHECK (kind IN ('drift', 'rejections', 'harm', 'settling'));
"""
_NO_SETTLING = """
DELETE FROM alarm WHERE kind = 'settling';
ALTER TABLE alarm DROP CONSTRAINT alarm_kind_check;
ALTER TABLE alarm ADD CONSTRAINT alarm_kind_check CHECK (kind IN ('drift', 'rejections', 'harm'));
DROP TABLE settling_switch, settled_look;
DELETE FROM secret WHERE name = 'settle';
"""


def upgrade() -> None:
    """Create the tables."""
    for sql in (_COPIES, _INFERRED, _CAMPAIGNS, _SUGGESTIONS, _SETTLING):
        op.execute(sql)


def downgrade() -> None:
    """Drop the tables and their contents; copies wait on their own again."""
    for sql in (_NO_SETTLING, _NO_SUGGESTIONS, _NO_CAMPAIGNS, _NO_INFERRED, _NO_COPIES):
        op.execute(sql)
