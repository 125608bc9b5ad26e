-- Which items have the same features, which campaigns they form, and what is settled without a look. `item`
-- stays narrow, and requests write none of these tables: one process at a time fills them soon after objects
-- were kept.

-- `label` is that of a person, for the item `labelled`. `contested` content had two. `place` is its place in
-- a random order that nobody can foresee. `near` is an item of the nearest content that has a label, at a
-- `distance`; what was labelled after `compared_at` is still to be compared.
CREATE TABLE content (
    key bytea PRIMARY KEY,
    place double precision NOT NULL,
    leader bigint,
    labelled bigint,
    label text,
    campaign text,
    contested boolean NOT NULL DEFAULT false,
    near bigint,
    distance double precision,
    compared_at timestamptz
);
CREATE INDEX content_campaign ON content (campaign) WHERE campaign IS NOT NULL;
CREATE INDEX content_labelled ON content (labelled) WHERE labelled IS NOT NULL;
CREATE INDEX content_unlabelled ON content (leader) WHERE label IS NULL;
CREATE INDEX content_new ON content (leader) WHERE label IS NULL AND compared_at IS NULL;
CREATE INDEX content_compared ON content (compared_at) WHERE distance IS NOT NULL;

-- One process at a time compares contents with the labelled ones, and notes when it begins.
CREATE TABLE case_work (
    began_at timestamptz NOT NULL
);
INSERT INTO case_work VALUES ('-infinity');

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

-- What a campaign looks like, in plain values; its members are the contents that name it. Labels up to
-- `looks_after` prove nothing about it: then one of them split it.
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

-- Items that would have been settled with a label, but were drawn to be looked at all the same; the rank of
-- the draw orders those of a day.
CREATE TABLE settled_look (
    item bigint PRIMARY KEY,
    label text NOT NULL,
    distance double precision NOT NULL,
    draw double precision NOT NULL,
    drawn_at timestamptz NOT NULL DEFAULT now()
);

-- An operator's switch. Rows are only added: the last one holds.
CREATE TABLE settling_switch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action text NOT NULL CHECK (action IN ('stop', 'resume')),
    author text NOT NULL,
    reason text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
);
