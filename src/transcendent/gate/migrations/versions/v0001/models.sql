-- Models, their deployments, and the processes that serve them.

CREATE TABLE model (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    classes jsonb NOT NULL,
    features jsonb NOT NULL,
    first_used timestamptz NOT NULL DEFAULT now()
);

-- Artifacts and deployments are only added. An artifact is read in parts, which EXTERNAL makes quick: without
-- compression, a part is found without reading those before it.
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

-- `flushed` is the last minute whose counts the process has written, `p99` the seconds that 99% of its last
-- answers did not exceed.
CREATE TABLE process (
    id uuid PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    deployment bigint,
    loaded integer[] NOT NULL DEFAULT '{}',
    problem text,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    flushed bigint,
    p99 double precision
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

-- What a model was taught is stored as a whole: a comparison then finds labels that were undone since, or
-- committed late. The number of the last label would not show them.
CREATE TABLE learning (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    base integer NOT NULL REFERENCES model,
    model integer NOT NULL REFERENCES model,
    what text NOT NULL,
    items bigint[] NOT NULL,
    labels text[] NOT NULL,
    report jsonb NOT NULL,
    author text NOT NULL,
    learnt_at timestamptz NOT NULL DEFAULT now()
);
