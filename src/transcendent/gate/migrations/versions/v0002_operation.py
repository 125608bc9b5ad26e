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


_MONITORS = ""
_NO_MONITORS = ""


# An event is written by a trigger, in the transaction of what it tells, so that gates of the version before
# and every later writer are covered. It names items by their numbers alone: what they hold is read from their
# rows, and is gone with them. A rejection is its item's row; the event has the numbers of those that one
# statement has inserted, so a batch costs one row.
#
# Events are read in the order of their transactions. A restored database may be on a server that counts its
# transactions from a lower number: `ahead` is what is added so that the order goes on.
#
# SECURITY DEFINER: the role of gates that run meanwhile has no rights on tables that are new. The search path
# then ends with pg_temp, so that no temporary table of that role stands in for one of these.
_EVENTS = """
CREATE TABLE event_order (
    ahead bigint NOT NULL
);
INSERT INTO event_order VALUES (0);

CREATE FUNCTION event_transaction() RETURNS bigint LANGUAGE sql SECURITY DEFINER
    AS $$ SELECT pg_current_xact_id()::text::bigint + ahead FROM event_order $$;

CREATE TABLE event (
    transaction bigint NOT NULL DEFAULT event_transaction(),
    number bigint GENERATED ALWAYS AS IDENTITY,
    written_at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    items bigint[] NOT NULL DEFAULT '{}',
    detail jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (transaction, number)
);

CREATE FUNCTION tell_rejected() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER AS $$ BEGIN
    INSERT INTO event (kind, items) SELECT 'rejected', array_agg(id ORDER BY id) FROM added
    WHERE tier = 1 HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_rejected AFTER INSERT ON item REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_rejected();

CREATE FUNCTION tell_label() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER AS $$ BEGIN
    INSERT INTO event (kind, items, detail)
    SELECT CASE action WHEN 'label' THEN 'labelled' WHEN 'skip' THEN 'skipped' WHEN 'undo' THEN 'undone'
            WHEN 'decide' THEN 'decided' WHEN 'close' THEN 'closed' ELSE action END,
        array_agg(item ORDER BY item),
        jsonb_strip_nulls(jsonb_build_object('label', label, 'reason', reason, 'author', author))
    FROM added GROUP BY action, label, reason, author;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_label AFTER INSERT ON label REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_label();

CREATE FUNCTION tell_deployment() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER AS $$ BEGIN
    INSERT INTO event (kind, detail) SELECT 'deployed', jsonb_build_object('deployment', added.id,
        'action', added.action, 'model', model.digest, 'author', added.author, 'reason', added.reason)
    FROM added JOIN model ON model.id = added.model ORDER BY added.id;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_deployment AFTER INSERT ON deployment REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_deployment();

-- The event after which the deliveries of a target have not been made yet.
CREATE TABLE webhook (
    target text PRIMARY KEY,
    transaction bigint NOT NULL,
    number bigint NOT NULL,
    place bigint NOT NULL
);

CREATE TABLE delivery (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target text NOT NULL,
    transaction bigint NOT NULL,
    number bigint NOT NULL,
    place bigint NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT now(),
    dead boolean NOT NULL DEFAULT false,
    problem text
);
CREATE INDEX delivery_due ON delivery (target, due_at) WHERE NOT dead;

-- Labels of other systems. `action` is the label of an item that was settled by it; otherwise the item stays
-- as it is: labels of accepted objects are no part of the audit.
CREATE TABLE outside_label (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item bigint NOT NULL,
    action bigint,
    label text NOT NULL,
    source text NOT NULL,
    reason text,
    teach boolean NOT NULL,
    author text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outside_label_item ON outside_label (item, id);
CREATE INDEX outside_label_action ON outside_label (action) WHERE action IS NOT NULL;
CREATE TRIGGER outside_label_only_grows BEFORE UPDATE OR DELETE ON outside_label
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER outside_label_only_grows_whole BEFORE TRUNCATE ON outside_label
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE FUNCTION tell_outside_label() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER AS $$ BEGIN
    INSERT INTO event (kind, items, detail) SELECT 'outside', ARRAY[item], jsonb_strip_nulls(
        jsonb_build_object('label', label, 'source', source, 'reason', reason, 'author', author))
    FROM added WHERE action IS NULL ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_outside_label AFTER INSERT ON outside_label REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_outside_label();

DO $$ DECLARE function text; BEGIN
    FOREACH function IN ARRAY ARRAY['event_transaction', 'tell_rejected', 'tell_label', 'tell_deployment',
        'tell_outside_label'] LOOP
        EXECUTE format('ALTER FUNCTION %I SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
"""
_NO_EVENTS = """
DROP TABLE outside_label, delivery, webhook;
DROP FUNCTION tell_outside_label;
DROP TRIGGER tell_deployment ON deployment;
DROP TRIGGER tell_label ON label;
DROP TRIGGER tell_rejected ON item;
DROP FUNCTION tell_deployment, tell_label, tell_rejected;
DROP TABLE event;
DROP FUNCTION event_transaction;
DROP TABLE event_order;
"""


_DELETION = ""
_NO_DELETION = ""


# `revoked_at` may now be in the future: it is when a token ends. Gates of the version before take such a
# token for revoked, so none of them accepts one that has expired. The index still allows a name only one
# token without an end.
_TOKENS = """
ALTER TABLE token DROP CONSTRAINT token_role_check;
ALTER TABLE token ADD CONSTRAINT token_role_check
    CHECK (role IN ('client', 'analyst', 'labeller', 'operator', 'metrics'));
"""
_NO_TOKENS = """
DELETE FROM token WHERE role IN ('labeller', 'metrics');
ALTER TABLE token DROP CONSTRAINT token_role_check;
ALTER TABLE token ADD CONSTRAINT token_role_check
    CHECK (role IN ('client', 'analyst', 'operator'));
"""


# The item that has waited longest is one step in this index. Objects of one commit have the same time, so
# that PostgreSQL stores it once for all of them. Created first: it takes longest, and later statements lock
# tables that requests read.
_METRICS = "CREATE INDEX item_oldest ON item (tier, received_at) WHERE state = 0"
_NO_METRICS = "DROP INDEX item_oldest"


def upgrade() -> None:
    """Create the tables."""
    for sql in (_METRICS, _MODELS, _MONITORS, _EVENTS, _DELETION, _TOKENS):
        if sql:
            op.execute(sql)


def downgrade() -> None:
    """Drop the tables and their contents."""
    for sql in (_NO_TOKENS, _NO_DELETION, _NO_EVENTS, _NO_MONITORS, _NO_MODELS, _NO_METRICS):
        if sql:
            op.execute(sql)
