-- edges_beyond(prerequisites: ints, prerequisite_id: int, dependent_id: int, on_end: text, count: int): the out-edges of tasks, in pages.
SELECT prerequisite_id, dependent_id, on_end FROM edge
 WHERE prerequisite_id IN (:prerequisites)
   AND (prerequisite_id, dependent_id, on_end) > (:prerequisite_id, :dependent_id, :on_end)
 ORDER BY prerequisite_id, dependent_id, on_end LIMIT :count;

-- first_note(graph_id: int, kind: text, but: ints): the first note of one kind about a graph, but for those about some tasks.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation
 WHERE graph_id = :graph_id AND kind = :kind AND (task_id IS NULL OR NOT task_id IN (:but)) ORDER BY id LIMIT 1;

-- old_notes(kind: text, before: int, count: int): notes of one kind that stand at a point before this one, kept from others.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation
 WHERE kind = :kind AND cursor < :before ORDER BY id LIMIT :count FOR UPDATE;

-- drop_edges_out(ids: ints): forget the edges out of these tasks.
DELETE FROM edge WHERE prerequisite_id IN (:ids);

-- The condition of the index stands in the text, as for `candidates`.
-- waiting_of_kinds(queue_id: int, kinds: texts, count: int): who is first in a queue among the tasks of some kinds.
SELECT w.id FROM task w JOIN graph g ON g.id = w.graph_id
 WHERE w.queue_id = :queue_id AND w.state = 'waiting' AND w.kind IN (:kinds) AND g.canceled_ms IS NULL
 ORDER BY w.priority, w.created_ms, w.id LIMIT :count FOR UPDATE OF w SKIP LOCKED;

-- leading(ids: ints): those of some tasks that somebody hangs on.
SELECT t.id FROM task t WHERE t.id IN (:ids) AND EXISTS (SELECT 1 FROM edge e WHERE e.prerequisite_id = t.id);
