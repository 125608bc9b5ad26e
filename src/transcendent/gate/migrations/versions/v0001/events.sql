-- Events, and webhooks that they are delivered to. An event is written by a trigger, in the transaction of what
-- it reports, so that every writer is covered. It names items by their numbers alone: what they hold is read
-- from their rows, and is gone with them. A rejection is its item's row; the event has the numbers of those
-- that one statement has inserted, so a batch costs one row.

-- Events are read in the order of their transactions. A restored database may be on a server that counts its
-- transactions from a lower number: `ahead` is what is added so that the order goes on.
CREATE TABLE event_order (
    ahead bigint NOT NULL,
    server text NOT NULL
);
INSERT INTO event_order
    SELECT 0, system_identifier || '-' || timeline_id FROM pg_control_system(), pg_control_checkpoint();

CREATE FUNCTION event_transaction() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
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
SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
    INSERT INTO event (kind, items) SELECT 'rejected', array_agg(id ORDER BY id) FROM added
    WHERE tier = 1 HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_rejected AFTER INSERT ON item REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_rejected();

CREATE FUNCTION tell_label() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
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
SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
    INSERT INTO event (kind, detail) SELECT 'deployed', jsonb_build_object('deployment', added.id,
        'action', added.action, 'model', model.digest, 'author', added.author, 'reason', added.reason)
    FROM added JOIN model ON model.id = added.model ORDER BY added.id;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_deployment AFTER INSERT ON deployment REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_deployment();

CREATE FUNCTION tell_alarm() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
    INSERT INTO event (kind, detail) SELECT 'alarm', jsonb_build_object('alarm', id, 'kind', kind,
        'deployment', deployment, 'at', at, 'log_value', log_value, 'moved', moved) FROM added ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_alarm AFTER INSERT ON alarm REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_alarm();

CREATE FUNCTION tell_outside_label() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
    INSERT INTO event (kind, items, detail) SELECT 'outside', ARRAY[item], jsonb_strip_nulls(
        jsonb_build_object('label', label, 'source', source, 'author', author, 'outside', ARRAY[id]))
    FROM added WHERE action IS NULL ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_outside_label AFTER INSERT ON outside_label REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_outside_label();

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
