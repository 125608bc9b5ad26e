-- Monitors of deployments, their alarms, and how shadows compare with the model that decides.

-- Counts of decided objects, by the process that decided them; a number of objects for each cell. The rows of
-- a minute are folded into the monitor together, once all processes that live have flushed it.
CREATE TABLE minute_counts (
    deployment bigint NOT NULL REFERENCES deployment,
    minute bigint NOT NULL,
    process uuid NOT NULL,
    objects bigint NOT NULL,
    cells integer[] NOT NULL,
    counts bigint[] NOT NULL,
    sums bigint[],
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
    sums bigint[],
    moved jsonb NOT NULL DEFAULT '[]',
    audited text
);

-- At most one alarm of a kind for a deployment: it stands until another deployment, and is not repeated.
CREATE TABLE alarm (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    deployment bigint NOT NULL REFERENCES deployment,
    kind text NOT NULL CHECK (kind IN ('drift', 'rejections', 'harm', 'settling')),
    at bigint NOT NULL,
    log_value double precision NOT NULL,
    moved jsonb NOT NULL DEFAULT '[]',
    raised_at timestamptz NOT NULL DEFAULT now(),
    acknowledged_at timestamptz,
    acknowledged_by text,
    reason text,
    UNIQUE (deployment, kind)
);

-- How the decisions of shadows compare with those that were answered: counts by the process that compared, a
-- number of objects for each pair of outcomes. An outcome is a label, or null if the object is rejected.
CREATE TABLE shadow_counts (
    active bigint NOT NULL REFERENCES deployment,
    shadow bigint NOT NULL REFERENCES deployment,
    hour bigint NOT NULL,
    process uuid NOT NULL,
    objects bigint NOT NULL,
    undecided bigint NOT NULL,
    dropped bigint NOT NULL,
    active_outcomes text[] NOT NULL,
    shadow_outcomes text[] NOT NULL,
    counts bigint[] NOT NULL,
    PRIMARY KEY (shadow, active, hour, process)
);

-- Where they disagree, the items that were drawn for a label.
CREATE TABLE disagreement (
    item bigint NOT NULL,
    shadow bigint NOT NULL REFERENCES deployment,
    active bigint NOT NULL REFERENCES deployment,
    hour bigint NOT NULL,
    draw double precision NOT NULL,
    active_outcome text,
    shadow_outcome text,
    PRIMARY KEY (item, shadow)
);
CREATE INDEX disagreement_shadow ON disagreement (shadow, active);
