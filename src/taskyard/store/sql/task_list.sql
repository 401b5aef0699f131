-- each insert_task_tags(tag: text, last_id: int, first_id: int): insert the tags of new tasks, as runs of tasks.
INSERT INTO task_tag (tag, last_id, first_id) VALUES (:tag, :last_id, :first_id);

-- delete_task_tags(ids: ints): delete the runs that end with one of these tasks.
DELETE FROM task_tag WHERE last_id IN (:ids);

-- PostgreSQL could read an index that has only the order of `last_id`, to its end if the tag is rare; of these conditions
-- only one index has the order. SQLite always takes the index of an equation. So it is below, too.
-- select_tag_runs@sqlite(tag: text, after: int, count: int): the runs of tasks with a tag, newest first, from the first that has tasks after an id.
SELECT first_id, last_id FROM task_tag WHERE tag = :tag AND last_id > :after ORDER BY last_id LIMIT :count;

-- select_tag_runs@postgres(tag: text, after: int, count: int): the runs of tasks with a tag, newest first, from the first that has tasks after an id.
SELECT first_id, last_id FROM task_tag WHERE (tag, last_id) > (:tag, :after) AND tag <= :tag ORDER BY tag, last_id LIMIT :count;

-- The runs of one tag do not overlap, so only the first that ends at the task or after it can include it.
-- select_tagged@sqlite(ids: ints, tag: text): those of these tasks that have a tag.
SELECT t.id FROM task t
 WHERE t.id IN (:ids)
   AND (SELECT r.first_id FROM task_tag r WHERE r.tag = :tag AND r.last_id >= t.id ORDER BY r.last_id LIMIT 1) <= t.id
 ORDER BY t.id;

-- select_tagged@postgres(ids: ints, tag: text): those of these tasks that have a tag.
SELECT t.id FROM task t
 WHERE t.id IN (:ids)
   AND (SELECT r.first_id FROM task_tag r WHERE (r.tag, r.last_id) >= (:tag, t.id) AND r.tag <= :tag
         ORDER BY r.tag, r.last_id LIMIT 1) <= t.id
 ORDER BY t.id;

-- select_task_ids(after: int, count: int): tasks after an id.
SELECT id FROM task WHERE id > :after ORDER BY id LIMIT :count;

-- select_graph_task_ids(graph_id: int, after: int, count: int): tasks of a graph after an id.
SELECT id FROM task WHERE graph_id = :graph_id AND id > :after ORDER BY id LIMIT :count;

-- select_tasks_gone_wrong@sqlite(state: text, after: int, count: int): tasks in a state in which tasks do not succeed, after an id.
SELECT id FROM task WHERE gone_wrong = :state AND id > :after ORDER BY id LIMIT :count;

-- select_tasks_gone_wrong@postgres(state: text, after: int, count: int): tasks in a state in which tasks do not succeed, after an id.
SELECT id FROM task WHERE (gone_wrong, id) > (:state, :after) AND gone_wrong <= :state ORDER BY gone_wrong, id LIMIT :count;

-- The plus keeps the primary key out of it: the tasks that bots hold are few.
-- select_held_tasks(after: int, count: int): tasks that bots hold, after an id.
SELECT id FROM task WHERE bot_id > '' AND +id > :after ORDER BY +id LIMIT :count;

-- select_blocks_of_bot(bot_id: text, first: int, count: int): the next blocks in which a bot had attempts.
SELECT block FROM attempt_block WHERE bot_id = :bot_id AND block >= :first ORDER BY block LIMIT :count;

-- SQLite reads the tables of a cross join from left to right.
-- select_tasks_of_bot(bot_id: text, blocks: ints, span: int, after: int, count: int): tasks of some blocks of which a bot had an attempt, after an id.
SELECT DISTINCT a.task_id FROM attempt_block b CROSS JOIN attempt a
 WHERE b.bot_id = :bot_id AND b.block IN (:blocks) AND a.task_id >= b.block * :span AND a.task_id < (b.block + 1) * :span
   AND a.bot_id = :bot_id AND a.task_id > :after ORDER BY a.task_id LIMIT :count;

-- select_tried_by_bot(ids: ints, bot_id: text): those of these tasks of which a bot had an attempt.
SELECT DISTINCT task_id FROM attempt WHERE bot_id = :bot_id AND task_id IN (:ids) ORDER BY task_id;

-- select_visible_tasks(ids: ints, all_states: int, states: texts, all_pools: int, pools: texts): those of these tasks that are loaded, in some states, and in graphs of some pools.
SELECT t.id, t.state FROM task t JOIN graph g ON g.id = t.graph_id
 WHERE t.id IN (:ids) AND t.loading = 0 AND g.loader IS NULL AND (:all_states = 1 OR t.state IN (:states))
   AND (:all_pools = 1 OR EXISTS (SELECT 1 FROM graph_pool p WHERE p.graph_id = g.id AND p.pool IN (:pools)))
 ORDER BY t.id;

-- select_owners(ids: ints): who submitted tasks, and for whom they run.
SELECT id, submitter, user_name FROM task_definition WHERE id IN (:ids);

-- insert_child(graph_id: int, parent_id: int, parent_attempt: int): store that a graph ends with an attempt.
INSERT INTO task_child (graph_id, parent_id, parent_attempt) VALUES (:graph_id, :parent_id, :parent_attempt);

-- select_parents(graphs: ints): the attempts with which graphs end.
SELECT graph_id, parent_id, parent_attempt FROM task_child WHERE graph_id IN (:graphs);

-- select_children(parent_id: int, count: int): the graphs that end with attempts of a task, newest first.
SELECT graph_id FROM task_child WHERE parent_id = :parent_id ORDER BY graph_id LIMIT :count;

-- has_watched_children(): whether any graph waits for the end of an attempt.
SELECT graph_id FROM task_child WHERE watched = 1 LIMIT 1;

-- select_orphans(count: int): loaded graphs whose attempt has ended, and that attempt.
SELECT c.graph_id, c.parent_id, c.parent_attempt
  FROM task_child c JOIN graph g ON g.id = c.graph_id LEFT JOIN task t ON t.id = c.parent_id
 WHERE c.watched = 1 AND g.loader IS NULL AND (t.bot_id IS NULL OR t.attempt <> c.parent_attempt) ORDER BY c.graph_id LIMIT :count;

-- each forget_children(graph_id: int): do not watch the attempts of these graphs any more: they have ended.
UPDATE task_child SET watched = 0 WHERE graph_id = :graph_id;

-- delete_child(graph_id: int): delete with which attempt a graph ends.
DELETE FROM task_child WHERE graph_id = :graph_id;
