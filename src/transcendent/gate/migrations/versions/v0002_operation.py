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


_EVENTS = ""
_NO_EVENTS = ""


# Labels are never deleted, so they name an item by its number alone. What says more about an object is in
# rows that can be deleted: `remark` for notes, `payload` and `example` for ids. Gates of the version before
# still write both into `label`: a trigger moves notes away and drops ids. The trigger that refuses changes is
# off only while old rows are emptied, and nobody can write labels meanwhile.
#
# The triggers run with the rights of the owner: the role of gates may not have been granted the new tables
# yet. Their search path ends with pg_temp: a temporary table of that role must not stand in for one of these.
_DELETION = """
CREATE TABLE remark (
    label bigint PRIMARY KEY,
    item bigint NOT NULL,
    note text NOT NULL
);
CREATE INDEX remark_item ON remark (item);

-- Gates lock `payload` before `label`, so this does as well.
LOCK TABLE payload IN SHARE ROW EXCLUSIVE MODE;
ALTER TABLE label ALTER object_id DROP NOT NULL, DISABLE TRIGGER label_only_grows;
INSERT INTO remark SELECT id, item, note FROM label WHERE note IS NOT NULL;
UPDATE label SET object_id = NULL, note = NULL, author = CASE
    WHEN action = 'decide' OR (action = 'close' AND reason <> 'retired') THEN 'gate' ELSE author END;
ALTER TABLE label ENABLE TRIGGER label_only_grows;

-- An object that is decided again, or closed by that, names its sender as the author.
CREATE FUNCTION move_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.note IS NOT NULL THEN
        INSERT INTO remark (label, item, note) VALUES (NEW.id, NEW.item, NEW.note);
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
    object_id = coalesce((SELECT object_id FROM payload WHERE payload.id = item), '');
ALTER TABLE label ALTER object_id SET NOT NULL, ENABLE TRIGGER label_only_grows;
DROP TABLE remark, example, unswept, context_field, context_key, deletion;
"""


_TOKENS = ""
_NO_TOKENS = ""


def upgrade() -> None:
    """Create the tables."""
    for sql in (_MODELS, _MONITORS, _EVENTS, _DELETION, _TOKENS):
        if sql:
            op.execute(sql)


def downgrade() -> None:
    """Drop the tables and their contents."""
    for sql in (_NO_TOKENS, _NO_DELETION, _NO_EVENTS, _NO_MONITORS, _NO_MODELS):
        if sql:
            op.execute(sql)
