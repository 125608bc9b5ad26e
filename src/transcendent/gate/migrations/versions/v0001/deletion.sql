-- Deleting objects by a field of their contexts, and what was deleted.

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
CREATE FUNCTION index_context() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
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

-- Numbers only: a row that said what was deleted would keep it.
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
