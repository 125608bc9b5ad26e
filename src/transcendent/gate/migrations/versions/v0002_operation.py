"""Operation: processes and deployments, monitors, events, deletion, tokens that expire.

Gates of the version before go on working: they neither read nor write what is new here.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
works_from = "0001"

# Deployments and artifacts are only added. An artifact is read in parts, which EXTERNAL makes quick: without
# compression, a part is found without reading those before it.
_MODELS = """
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


# Counts of decided objects, by the process that decided them; a number of objects for each cell. The rows of
# a minute are folded into the monitor together, once all processes that live have flushed it.
_MONITORS = """
ALTER TABLE process ADD COLUMN flushed bigint;

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
    kind text NOT NULL CHECK (kind IN ('drift', 'rejections', 'harm')),
    at bigint NOT NULL,
    log_value double precision NOT NULL,
    moved jsonb NOT NULL DEFAULT '[]',
    raised_at timestamptz NOT NULL DEFAULT now(),
    acknowledged_at timestamptz,
    acknowledged_by text,
    reason text,
    UNIQUE (deployment, kind)
);
"""
_NO_MONITORS = "DROP TABLE alarm, monitor, minute_counts; ALTER TABLE process DROP COLUMN flushed"


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
    ahead bigint NOT NULL,
    server text NOT NULL
);
INSERT INTO event_order
    SELECT 0, system_identifier || '-' || timeline_id FROM pg_control_system(), pg_control_checkpoint();

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
        jsonb_strip_nulls(jsonb_build_object('label', label, 'reason', reason, 'author', author,
            'labels', CASE WHEN action IN ('label', 'skip') THEN array_agg(id ORDER BY item) END))
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

CREATE FUNCTION tell_alarm() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER AS $$ BEGIN
    INSERT INTO event (kind, detail) SELECT 'alarm', jsonb_build_object('alarm', id, 'kind', kind,
        'deployment', deployment, 'at', at, 'log_value', log_value, 'moved', moved) FROM added ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_alarm AFTER INSERT ON alarm REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_alarm();

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

CREATE TABLE outside_reason (
    outside bigint PRIMARY KEY,
    item bigint NOT NULL,
    reason text NOT NULL
);
CREATE INDEX outside_reason_item ON outside_reason (item);

CREATE FUNCTION tell_outside_label() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER AS $$ BEGIN
    INSERT INTO event (kind, items, detail) SELECT 'outside', ARRAY[item], jsonb_strip_nulls(
        jsonb_build_object('label', label, 'source', source, 'author', author, 'outside', ARRAY[id]))
    FROM added WHERE action IS NULL ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_outside_label AFTER INSERT ON outside_label REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_outside_label();

DO $$ DECLARE function text; BEGIN
    FOREACH function IN ARRAY ARRAY['event_transaction', 'tell_rejected', 'tell_label', 'tell_deployment',
        'tell_alarm', 'tell_outside_label'] LOOP
        EXECUTE format('ALTER FUNCTION %I SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
"""
_NO_EVENTS = """
DROP TABLE outside_label, outside_reason, delivery, webhook;
DROP FUNCTION tell_outside_label;
DROP TRIGGER tell_alarm ON alarm;
DROP TRIGGER tell_deployment ON deployment;
DROP TRIGGER tell_label ON label;
DROP TRIGGER tell_rejected ON item;
DROP FUNCTION tell_alarm, tell_deployment, tell_label, tell_rejected;
DROP TABLE event;
DROP FUNCTION event_transaction;
DROP TABLE event_order;
"""


# Labels are never deleted, so they name an item by its number alone. What says more about an object is in
# rows that can be deleted: `remark` for notes and reasons, `payload` and `example` for ids. Why the gate has
# decided an item again or closed it is said in words of its own, which stay. Gates of the version before
# still write all of this into `label`: a trigger moves notes and reasons away and drops ids. The trigger that
# refuses changes is off only while old rows are emptied, and nobody can write labels meanwhile.
#
# The triggers run with the rights of the owner: the role of gates may not have been granted the new tables
# yet. Their search path ends with pg_temp: a temporary table of that role must not stand in for one of these.
_DELETION = """
CREATE TABLE remark (
    label bigint PRIMARY KEY,
    item bigint NOT NULL,
    note text,
    reason text
);
CREATE INDEX remark_item ON remark (item);

-- Gates lock `payload` before `label`, so this does as well.
LOCK TABLE payload IN SHARE ROW EXCLUSIVE MODE;
ALTER TABLE label ALTER object_id DROP NOT NULL, DISABLE TRIGGER label_only_grows;
INSERT INTO remark SELECT id, item, note, said FROM (
    SELECT id, item, note, CASE WHEN action NOT IN ('decide', 'close') THEN reason END AS said FROM label
) AS written WHERE note IS NOT NULL OR said IS NOT NULL;
UPDATE label SET object_id = NULL, note = NULL,
    reason = CASE WHEN action IN ('decide', 'close') THEN reason END, author = CASE
    WHEN action = 'decide' OR (action = 'close' AND reason <> 'retired') THEN 'gate' ELSE author END;
ALTER TABLE label ENABLE TRIGGER label_only_grows;

-- An object that is decided again, or closed by that, names its sender as the author.
CREATE FUNCTION move_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    said text := CASE WHEN NEW.action NOT IN ('decide', 'close') THEN NEW.reason END;
BEGIN
    IF NEW.note IS NOT NULL OR said IS NOT NULL THEN
        INSERT INTO remark (label, item, note, reason) VALUES (NEW.id, NEW.item, NEW.note, said);
    END IF;
    IF said IS NOT NULL THEN
        NEW.reason := NULL;
    END IF;
    IF NEW.action = 'decide' OR (NEW.action = 'close' AND NEW.reason <> 'retired') THEN
        NEW.author := 'gate';
    END IF;
    NEW.note := NULL;
    NEW.object_id := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER label_note_moves BEFORE INSERT ON label FOR EACH ROW EXECUTE FUNCTION move_note();

-- Labelled objects whose month was dropped, to learn from. Their labels are in `label`.
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
    shown text
);
CREATE INDEX example_object ON example (hashtextextended(object_id, 0));

-- Dropped months whose identities, notes and keys of contexts are not deleted yet.
CREATE TABLE unswept (
    month integer PRIMARY KEY
);

-- Fields of contexts by which objects can be deleted. Items from `indexed_from` on are all in `context_key`.
CREATE TABLE context_field (
    name text PRIMARY KEY,
    indexed_from bigint NOT NULL
);
CREATE TABLE context_key (
    key bigint NOT NULL,
    item bigint NOT NULL,
    PRIMARY KEY (key, item)
);
CREATE INDEX context_key_item ON context_key (item);

-- PostgreSQL cannot read a context with the character 0. That must not stop an insertion, nor hide the object
-- from a deletion: it gets one key for all values of the field.
CREATE FUNCTION hash_context(context text, field text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN hashtextextended(field || '=' || (context::json ->> field), 0);
EXCEPTION WHEN others THEN
    RETURN hashtextextended(field, 1);
END $$;
CREATE FUNCTION index_context() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM context_key WHERE item = NEW.id;
    END IF;
    INSERT INTO context_key (key, item)
    SELECT key, NEW.id FROM context_field, hash_context(NEW.context, name) AS key WHERE key IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NEW;
END $$;
CREATE TRIGGER payload_context BEFORE INSERT OR UPDATE OF context ON payload
    FOR EACH ROW WHEN (NEW.context IS NOT NULL) EXECUTE FUNCTION index_context();

DO $$ BEGIN
    EXECUTE 'ALTER FUNCTION move_note SET search_path = ' || quote_ident(current_schema()) || ', pg_temp';
    EXECUTE 'ALTER FUNCTION index_context SET search_path = ' || quote_ident(current_schema()) || ', pg_temp';
END $$;

-- What was deleted is not said: that would keep it.
CREATE TABLE deletion (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('object', 'sender', 'context')),
    items bigint NOT NULL,
    examples bigint NOT NULL,
    notes bigint NOT NULL,
    author text NOT NULL,
    reason text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
);
"""
# Version 0001 needs an id in every label; those of objects that are gone stay unknown.
_NO_DELETION = """
DROP TRIGGER payload_context ON payload;
DROP TRIGGER label_note_moves ON label;
DROP FUNCTION move_note, index_context, hash_context;
ALTER TABLE label DISABLE TRIGGER label_only_grows;
UPDATE label SET note = (SELECT note FROM remark WHERE remark.label = label.id),
    reason = coalesce(reason, (SELECT reason FROM remark WHERE remark.label = label.id)),
    object_id = coalesce((SELECT object_id FROM payload WHERE payload.id = item), '');
ALTER TABLE label ALTER object_id SET NOT NULL, ENABLE TRIGGER label_only_grows;
DROP TABLE remark, example, unswept, context_field, context_key, deletion;
"""


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


# How the decisions of shadows compare with those that were answered: counts by the process that compared, a
# number of objects for each pair of outcomes. An outcome is a label, or null if the object is rejected. Where
# they disagree, the items drawn for a label are rows, which name them by number alone.
_SHADOWS = """
INSERT INTO secret VALUES ('shadow', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

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

-- Whether an accepted object was kept because a shadow disagreed, and not drawn for the audit.
ALTER TABLE example ADD COLUMN disagreed boolean NOT NULL DEFAULT false;
"""
_NO_SHADOWS = """
ALTER TABLE example DROP COLUMN disagreed;
DROP TABLE disagreement, shadow_counts;
DELETE FROM secret WHERE name = 'shadow';
"""


# What each model was taught is stored as a whole: labels that were undone since, or committed late, are then
# found by comparison, which the number of the last label would not tell.
#
# `unconfirmed` is the queue of items with a label that may want another opinion. A trigger fills it, so that
# it is complete whatever version or setting the gates have that write labels. Items are held there, since an
# item that has a label is held by nobody.
_LOOP = """
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

-- `after` is the last action of the item's history when the opinion was given. `author` is the analyst whose
-- opinion it is, and `writer` who wrote the row: an operator may take back the opinion of another.
CREATE TABLE opinion (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item bigint NOT NULL,
    after bigint NOT NULL,
    action text NOT NULL CHECK (action IN ('opinion', 'skip', 'undo')),
    label text,
    author text NOT NULL,
    writer text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((action = 'opinion') = (label IS NOT NULL))
);
CREATE INDEX opinion_item ON opinion (item, id);
CREATE TRIGGER opinion_only_grows BEFORE UPDATE OR DELETE ON opinion
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER opinion_only_grows_whole BEFORE TRUNCATE ON opinion
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TABLE unconfirmed (
    item bigint PRIMARY KEY,
    holder text,
    held_until timestamptz
);

CREATE FUNCTION want_opinion() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER AS $$ BEGIN
    DELETE FROM unconfirmed USING added WHERE unconfirmed.item = added.item AND action <> 'label';
    INSERT INTO unconfirmed (item) SELECT DISTINCT item FROM added WHERE action = 'label'
    ON CONFLICT (item) DO UPDATE SET item = excluded.item;  -- waits for a claim that is deleting the row
    RETURN NULL;
END $$;
CREATE TRIGGER want_opinion AFTER INSERT ON label REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION want_opinion();
DO $$ BEGIN
    EXECUTE 'ALTER FUNCTION want_opinion SET search_path = ' || quote_ident(current_schema()) || ', pg_temp';
END $$;

INSERT INTO unconfirmed (item) SELECT item FROM (
    SELECT DISTINCT ON (item) item, action FROM label ORDER BY item, id DESC
) AS last WHERE action = 'label';
"""
_NO_LOOP = """
DROP TRIGGER want_opinion ON label;
DROP FUNCTION want_opinion;
DROP TABLE unconfirmed, opinion, learning;
"""


# The item that has waited longest is one step in this index. Objects of one commit have the same time, so
# that PostgreSQL stores it once for all of them. Created first: it takes longest, and later statements lock
# tables that requests read.
_METRICS = "CREATE INDEX item_oldest ON item (tier, received_at) WHERE state = 0"
_NO_METRICS = "DROP INDEX item_oldest"


def upgrade() -> None:
    """Create the tables."""
    for sql in (_METRICS, _MODELS, _MONITORS, _EVENTS, _DELETION, _TOKENS, _SHADOWS, _LOOP):
        if sql:
            op.execute(sql)


def downgrade() -> None:
    """Drop the tables and their contents."""
    for sql in (
        *(_NO_LOOP, _NO_SHADOWS, _NO_TOKENS, _NO_DELETION, _NO_EVENTS, _NO_MONITORS, _NO_MODELS),
        _NO_METRICS,
    ):
        if sql:
            op.execute(sql)
