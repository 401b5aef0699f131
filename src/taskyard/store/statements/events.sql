-- each add_events(subject_id: int, number: int, graph_id: int, fact: text): note what happened.
INSERT INTO event (subject_id, number, graph_id, fact) VALUES (:subject_id, :number, :graph_id, :fact);

-- events_of(subject_id: int, after: int, count: int): what happened to a task or a graph, in order.
SELECT subject_id, number, graph_id, fact FROM event
 WHERE subject_id = :subject_id AND number > :after ORDER BY number LIMIT :count;

-- events_between(subjects: ints, first: int, last: int): what happened to some tasks and their graph, in order.
SELECT subject_id, number, graph_id, fact FROM event
 WHERE subject_id IN (:subjects) AND number >= :first AND number <= :last ORDER BY number;

-- each add_outbox(graph_id: int, number: int, first: int, subjects: text): keep what has to be told outside.
INSERT INTO outbox (graph_id, number, first, subjects) VALUES (:graph_id, :number, :first, :subjects);

-- outbox(count: int): what nobody outside was told yet, in order per graph.
SELECT graph_id, number, first, subjects FROM outbox ORDER BY graph_id, number LIMIT :count;

-- each drop_outbox(graph_id: int, number: int): these were told.
DELETE FROM outbox WHERE graph_id = :graph_id AND number = :number;

-- each add_audits(at_ms: int, actor: text, action: text, subject_id: int, note: text): note what a person asked for.
INSERT INTO audit (at_ms, actor, action, subject_id, note) VALUES (:at_ms, :actor, :action, :subject_id, :note);

-- audits_of(subject_id: int, count: int): what people asked for about a task or a graph.
SELECT at_ms, actor, action, subject_id, note FROM audit WHERE subject_id = :subject_id ORDER BY id LIMIT :count;

-- answers(keys: texts): what was answered to these keys.
SELECT key, digest, answer FROM answer WHERE key IN (:keys);

-- each add_answers(key: text, digest: text, answer: text, at_ms: int): remember what was answered.
INSERT INTO answer (key, digest, answer, at_ms) VALUES (:key, :digest, :answer, :at_ms);

-- forget_answers(before_ms: int, count: int): keys that are older are not kept; the oldest go first, in pages.
DELETE FROM answer WHERE key IN (SELECT key FROM answer WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :count);
