-- Days: what was decided, labelled and waiting, and what monitors found, so that pages read few rows.

-- A row belongs to one process, day and deployment, and is replaced as a whole by a larger one.
CREATE TABLE decided_day (
    day date NOT NULL,
    deployment bigint NOT NULL,
    process uuid NOT NULL,
    objects bigint NOT NULL,
    rejected bigint NOT NULL,
    PRIMARY KEY (day, deployment, process)
);

-- What the monitors of a deployment found last on a day: the evidence of drift, and the error of the audit.
CREATE TABLE monitor_day (
    deployment bigint NOT NULL,
    day date NOT NULL,
    log_value double precision,
    labels bigint,
    wrong bigint,
    unclear bigint,
    low double precision,
    high double precision,
    PRIMARY KEY (deployment, day)
);

-- How many items waited when a day was last looked at, and for how many seconds the oldest one.
CREATE TABLE waiting_day (
    day date PRIMARY KEY,
    waiting bigint NOT NULL,
    oldest double precision,
    taken_at timestamptz NOT NULL
);

-- The last comparison of each shadow with the model that decides.
CREATE TABLE compared (
    shadow bigint PRIMARY KEY,
    active integer NOT NULL,
    found jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now()
);

-- Of each item, its last action counts on its day, if that is a label: `labels` of people, those of them on
-- rejected objects that the detector had answered otherwise (`caught`), those that nobody gave (`inferred`)
-- and those of other systems (`outside`). Whoever takes a label back, or replaces it, subtracts it from its
-- own day.
--
-- `seconds` are those between an analyst's actions, at most ten minutes each; a claim begins anew. So the last
-- rows have names. Rows are only added, so that nobody waits for a lock; a gate replaces them by their sums
-- every minute, and drops names that are not needed any more.
CREATE TABLE work (
    day date NOT NULL,
    author text NOT NULL DEFAULT '',
    labels bigint NOT NULL DEFAULT 0,
    caught bigint NOT NULL DEFAULT 0,
    inferred bigint NOT NULL DEFAULT 0,
    outside bigint NOT NULL DEFAULT 0,
    seconds double precision NOT NULL DEFAULT 0,
    last_at timestamptz
);
CREATE INDEX work_day ON work (day, author);

-- The day from which labels are counted.
CREATE TABLE work_from (
    day date NOT NULL
);
INSERT INTO work_from VALUES ((now() AT TIME ZONE 'UTC')::date);

-- The correlated counts read one row by an index each. As joins or EXISTS, or by plans for large tables, the
-- planner might read a whole table for few labels.
CREATE FUNCTION count_labels() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$ BEGIN
    WITH changed AS MATERIALIZED (
        SELECT 1 AS sign, id, item, label, written_at,
            coalesce(current_setting('transcendent.outside', true), '') = 'on' AS given
        FROM added WHERE action = 'label'
        UNION ALL
        SELECT -1, was.id, was.item, was.label, was.written_at, false
        FROM added CROSS JOIN LATERAL (
            SELECT * FROM label WHERE label.item = added.item AND label.id < added.id
            ORDER BY label.id DESC LIMIT 1
        ) AS was WHERE was.action = 'label'
    ), nobody AS MATERIALIZED (
        SELECT inferred.label AS id FROM inferred WHERE inferred.label = ANY(ARRAY(SELECT id FROM changed))
    ), others AS MATERIALIZED (
        SELECT action AS id FROM outside_label WHERE action = ANY(ARRAY(SELECT id FROM changed))
    ), told AS (
        SELECT (written_at AT TIME ZONE 'UTC')::date AS day, sign, item, label, CASE
            WHEN id IN (SELECT id FROM nobody) THEN 'nobody'
            WHEN given OR id IN (SELECT id FROM others) THEN 'others' ELSE 'people' END AS by
        FROM changed
    )
    INSERT INTO work (day, labels, caught, inferred, outside)
    SELECT day, coalesce(sum(sign) FILTER (WHERE by = 'people'), 0), coalesce(sum(sign * CASE
            WHEN by = 'people' THEN (
                SELECT count(*) FROM item JOIN payload ON payload.id = item.id
                JOIN model ON model.id = item.model
                WHERE item.id = told.item AND payload.id = told.item AND NOT payload.accepted
                    AND payload.label <> told.label
                    AND told.label IN (SELECT jsonb_array_elements_text(model.classes))
            ) ELSE 0 END), 0),
        coalesce(sum(sign) FILTER (WHERE by = 'nobody'), 0),
        coalesce(sum(sign) FILTER (WHERE by = 'others'), 0)
    FROM told GROUP BY day;
    RETURN NULL;
END $$;
CREATE TRIGGER count_labels AFTER INSERT ON label REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION count_labels();

CREATE FUNCTION count_seconds() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$ BEGIN
    IF coalesce(current_setting('transcendent.outside', true), '') = 'on' THEN
        RETURN NULL;
    END IF;
    INSERT INTO work (day, author, seconds, last_at)
    SELECT today, author, least(600, greatest(0, coalesce(extract(epoch FROM now() - (
        SELECT max(last_at) FROM work WHERE work.author = worked.author AND day >= today - 1)), 0))), now()
    FROM (
        SELECT DISTINCT author, (now() AT TIME ZONE 'UTC')::date AS today FROM added
        WHERE action IN ('label', 'skip', 'undo', 'opinion') AND author <> 'gate'
    ) AS worked;
    RETURN NULL;
END $$;
CREATE TRIGGER count_seconds AFTER INSERT ON label REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION count_seconds();
CREATE TRIGGER count_seconds AFTER INSERT ON opinion REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION count_seconds();
