-- each insert_continuations(kind: text, graph_id: int, task_id: int, source: text, target: text, tasks: text, actor: text): insert work that does not fit into this transaction.
INSERT INTO continuation (kind, graph_id, task_id, source, target, tasks, actor)
VALUES (:kind, :graph_id, :task_id, :source, :target, :tasks, :actor);

-- select_continuations(after: int, count: int): open continuations, in order.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation WHERE id > :after ORDER BY id LIMIT :count;

-- lock_continuation(id: int): one continuation, locked.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation WHERE id = :id FOR UPDATE;

-- select_continuations_of_tasks(tasks: ints): the continuations of these tasks, in order.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation WHERE task_id IN (:tasks) ORDER BY id;

-- lock_continuations_in_graph(graph_id: int, kind: text): the continuations of one kind in a graph, in order, locked.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation
 WHERE graph_id = :graph_id AND kind = :kind ORDER BY id FOR UPDATE;

-- select_first_continuation(graph_id: int, kind: text, but: ints): the first continuation of one kind in a graph, except for those of some tasks.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation
 WHERE graph_id = :graph_id AND kind = :kind AND (task_id IS NULL OR NOT task_id IN (:but)) ORDER BY id LIMIT 1;

-- lock_old_continuations(kind: text, before: int, count: int): continuations of one kind whose cursor is below a value, locked.
SELECT id, kind, graph_id, task_id, source, target, cursor, tasks, actor FROM continuation
 WHERE kind = :kind AND cursor < :before ORDER BY id LIMIT :count FOR UPDATE;

-- advance_continuation(id: int, cursor: int): set how far a continuation is done.
UPDATE continuation SET cursor = :cursor WHERE id = :id;

-- delete_continuation(id: int): delete a continuation that is done.
DELETE FROM continuation WHERE id = :id;
