-- Who may do what: secrets of the gates, tokens, and sessions of browsers.

-- Gates that share a database draw the same objects by these. A secret is 244 random bits; gen_random_bytes
-- would need the extension pgcrypto.
CREATE TABLE secret (
    name text PRIMARY KEY,
    value bytea NOT NULL
);
INSERT INTO secret SELECT name, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
FROM unnest(ARRAY['audit', 'shadow', 'settle']) AS name;

-- `revoked_at` may be in the future: it is when a token ends.
CREATE TABLE token (
    id text PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('client', 'analyst', 'labeller', 'operator', 'metrics', 'viewer')),
    hash text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);
-- Partial, so that a name whose token ends can get another one.
CREATE UNIQUE INDEX token_name ON token (name) WHERE revoked_at IS NULL;

-- Only hashes of what browsers hold: nobody who reads the tables can act as somebody else. `token` is the id
-- of the token that was used to sign in; it is null if that was a link.
CREATE TABLE session (
    hash bytea PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    token text,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX session_name ON session (name);

CREATE TABLE sign_in (
    hash bytea PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    ends_at timestamptz NOT NULL
);
