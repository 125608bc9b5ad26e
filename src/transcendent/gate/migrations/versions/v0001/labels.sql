-- The history of items: labels of analysts, second opinions, labels of other systems and labels that follow
-- from others. These rows are never changed, and never deleted. So they name items by number alone, without a
-- foreign key: the history outlives dropped months. What says more about an object is in rows that can be
-- deleted.

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'labels are only added: they are never changed or deleted';
END $$;

-- `note` is always null, and `reason` one of the gate's own words: `move_note` moves what people write.
CREATE TABLE label (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item bigint NOT NULL,
    action text NOT NULL CHECK (action IN ('label', 'skip', 'undo', 'decide', 'close')),
    label text,
    reason text,
    note text,
    author text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((action = 'label') = (label IS NOT NULL))
);
-- The last action of an item is one step in this index.
CREATE INDEX label_item ON label (item, id);
CREATE INDEX label_author ON label (author, written_at);
CREATE TRIGGER label_only_grows BEFORE UPDATE OR DELETE ON label
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
-- TRUNCATE fires no trigger of rows.
CREATE TRIGGER label_only_grows_whole BEFORE TRUNCATE ON label
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Notes and reasons of people, which can be deleted.
CREATE TABLE remark (
    label bigint PRIMARY KEY,
    item bigint NOT NULL,
    note text,
    reason text
);
CREATE INDEX remark_item ON remark (item);

-- Gates write a note and a reason with the label. Why a gate has decided an item again or closed it stays.
CREATE FUNCTION move_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    said text := CASE WHEN NEW.action NOT IN ('decide', 'close') THEN NEW.reason END;
BEGIN
    IF NEW.note IS NOT NULL OR said IS NOT NULL THEN
        INSERT INTO remark (label, item, note, reason) VALUES (NEW.id, NEW.item, NEW.note, said);
    END IF;
    IF said IS NOT NULL THEN
        NEW.reason := NULL;
    END IF;
    NEW.note := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER label_note_moves BEFORE INSERT ON label FOR EACH ROW EXECUTE FUNCTION move_note();

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
CREATE INDEX opinion_writer ON opinion (writer, written_at);
CREATE TRIGGER opinion_only_grows BEFORE UPDATE OR DELETE ON opinion
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER opinion_only_grows_whole BEFORE TRUNCATE ON opinion
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The queue of items with a label that may want another opinion. A trigger fills it, so that it is complete
-- whatever version or setting the gates have that write labels. Items are held here, since nobody holds an
-- item that has a label.
CREATE TABLE unconfirmed (
    item bigint PRIMARY KEY,
    holder text,
    held_until timestamptz
);

CREATE FUNCTION want_opinion() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
    DELETE FROM unconfirmed USING added WHERE unconfirmed.item = added.item AND action <> 'label';
    INSERT INTO unconfirmed (item) SELECT DISTINCT item FROM added WHERE action = 'label'
    ON CONFLICT (item) DO UPDATE SET item = excluded.item;  -- waits for a claim that is deleting the row
    RETURN NULL;
END $$;
CREATE TRIGGER want_opinion AFTER INSERT ON label REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION want_opinion();

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

-- A label that nobody gave to an item is a row of `label` like any other, and has a row here. It follows from
-- the labels `sources`: if one of those is taken back, so is this one.
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
