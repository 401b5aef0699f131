-- select_retention(): how long things are kept, by pool and kind.
SELECT pool, kind, keep_ms FROM retention ORDER BY pool, kind;

-- each upsert_retention(pool: text, kind: text, keep_ms: int): set how long things are kept.
INSERT INTO retention (pool, kind, keep_ms) VALUES (:pool, :kind, :keep_ms)
ON CONFLICT (pool, kind) DO UPDATE SET keep_ms = excluded.keep_ms;

-- each delete_retention(pool: text, kind: text): let the time for all pools hold again.
DELETE FROM retention WHERE pool = :pool AND kind = :kind;

-- The condition of the partial index is written out, as in `claim_candidates`. Graphs inside tasks go with their tasks.
-- select_settled_graphs(moved_ms: int, id: int, before_ms: int, count: int): graphs that settled before a time, from another one on; and which of their parts are purged since.
SELECT g.id, g.state, g.moved_ms, g.parent_id, CASE WHEN p.settled_ms = g.moved_ms THEN p.parts ELSE 0 END
  FROM graph g LEFT JOIN purged_graph p ON p.graph_id = g.id
 WHERE g.active = 0 AND g.loader IS NULL AND (g.moved_ms, g.id) > (:moved_ms, :id) AND g.moved_ms <= :before_ms
 ORDER BY g.moved_ms, g.id LIMIT :count;

-- select_hidden_graphs(loader: text, count: int): graphs that are hidden for one reason.
SELECT id FROM graph WHERE loader IS NOT NULL AND loader = :loader ORDER BY id LIMIT :count;

-- each upsert_purged(graph_id: int, settled_ms: int, parts: int): store that parts of graphs are purged since they settled.
INSERT INTO purged_graph (graph_id, settled_ms, parts) VALUES (:graph_id, :settled_ms, :parts)
ON CONFLICT (graph_id) DO UPDATE SET settled_ms = excluded.settled_ms,
       parts = CASE WHEN purged_graph.settled_ms = excluded.settled_ms THEN purged_graph.parts | excluded.parts ELSE excluded.parts END;

-- select_purged(graphs: ints): which parts of graphs were purged.
SELECT graph_id, parts FROM purged_graph WHERE graph_id IN (:graphs);

-- select_graphs_inside(graph_id: int, count: int): graphs inside the tasks of a graph that are not hidden.
SELECT g.id FROM task t JOIN graph g ON g.parent_id = t.id WHERE t.graph_id = :graph_id AND g.loader IS NULL ORDER BY g.id LIMIT :count;

-- purge_output(ids: ints, count: int): delete some of the output of tasks.
DELETE FROM output_chunk WHERE (task_id, attempt, number) IN
       (SELECT task_id, attempt, number FROM output_chunk WHERE task_id IN (:ids) LIMIT :count);

-- purge_results(ids: ints, count: int): delete some of the results of tasks.
DELETE FROM result WHERE (task_id, attempt) IN (SELECT task_id, attempt FROM result WHERE task_id IN (:ids) LIMIT :count);

-- purge_progress(ids: ints, count: int): delete some of the progress and the checkpoints of tasks.
DELETE FROM progress WHERE (task_id, attempt) IN (SELECT task_id, attempt FROM progress WHERE task_id IN (:ids) LIMIT :count);

-- purge_attempt_files(ids: ints, count: int): delete some of the output files of tasks.
DELETE FROM attempt_files WHERE (task_id, attempt) IN (SELECT task_id, attempt FROM attempt_files WHERE task_id IN (:ids) LIMIT :count);

-- purge_artifacts(ids: ints, count: int): delete some of the named files of tasks.
DELETE FROM artifact WHERE (task_id, attempt, name) IN (SELECT task_id, attempt, name FROM artifact WHERE task_id IN (:ids) LIMIT :count);

-- purge_stats(ids: ints, count: int): delete some of what the attempts of tasks used.
DELETE FROM attempt_stats WHERE (task_id, attempt) IN (SELECT task_id, attempt FROM attempt_stats WHERE task_id IN (:ids) LIMIT :count);

-- purge_attempts(ids: ints, count: int): delete some of the attempts of tasks.
DELETE FROM attempt WHERE (task_id, number) IN (SELECT task_id, number FROM attempt WHERE task_id IN (:ids) LIMIT :count);

-- purge_events(ids: ints, count: int): delete some of the events of tasks or graphs.
DELETE FROM event WHERE (graph_id, number) IN (SELECT graph_id, number FROM event WHERE subject_id IN (:ids) LIMIT :count);

-- purge_edges_into(ids: ints, count: int): delete some of the edges into tasks.
DELETE FROM edge WHERE (prerequisite_id, dependent_id, on_end) IN
       (SELECT prerequisite_id, dependent_id, on_end FROM edge WHERE dependent_id IN (:ids) LIMIT :count);

-- purge_edges_out_of(ids: ints, count: int): delete some of the edges out of tasks.
DELETE FROM edge WHERE (prerequisite_id, dependent_id, on_end) IN
       (SELECT prerequisite_id, dependent_id, on_end FROM edge WHERE prerequisite_id IN (:ids) LIMIT :count);

-- purge_tags(ids: ints, count: int): delete some of the runs that end with one of these tasks.
DELETE FROM task_tag WHERE (tag, last_id) IN (SELECT tag, last_id FROM task_tag WHERE last_id IN (:ids) LIMIT :count);

-- delete_holds_of(ids: ints): delete why tasks were held.
DELETE FROM hold WHERE task_id IN (:ids);

-- delete_keys_of_graphs(ids: ints): delete the idempotency keys that created graphs.
DELETE FROM idempotency_key WHERE graph_id IN (:ids);

-- delete_purged(id: int): delete which parts of a graph are purged.
DELETE FROM purged_graph WHERE graph_id = :id;

-- delete_hidden_graph(id: int, loader: text): delete a graph that has no tasks any more.
DELETE FROM graph WHERE id = :id AND loader = :loader;

-- select_bot_pools(after: text, count: int): bots after a name, and their pools.
SELECT id, pool FROM bot WHERE id > :after ORDER BY id LIMIT :count;

-- The newest event, and the newest of those that say whether the bot is there, are kept: counts follow from them.
-- purge_bot_events(bot_id: text, before_ms: int, kinds: texts, count: int): delete the oldest events of a bot, but for the newest one and the newest of some kinds.
DELETE FROM bot_event WHERE bot_id = :bot_id AND id IN
       (SELECT e.id FROM (SELECT id, at_ms FROM bot_event WHERE bot_id = :bot_id ORDER BY id DESC LIMIT :count) e
         WHERE e.at_ms <= :before_ms
           AND e.id NOT IN (SELECT MIN(k.id) FROM bot_event k WHERE k.bot_id = :bot_id AND k.kind IN (:kinds) GROUP BY k.kind)
           AND e.id <> (SELECT MIN(n.id) FROM bot_event n WHERE n.bot_id = :bot_id));

-- purge_tokens(before_ms: int, count: int): delete tokens that expired or were revoked before a time.
DELETE FROM token WHERE id IN
       (SELECT id FROM token WHERE revoked_ms <= :before_ms OR expires_ms <= :before_ms LIMIT :count);

-- select_old_audits(after: int, before_ms: int, count: int): the ids of audit rows after one of them, in order, up to a time.
SELECT id FROM audit WHERE id > :after AND at_ms <= :before_ms ORDER BY id LIMIT :count;

-- purge_audits(ids: ints): delete audit rows about no task or graph that exists.
DELETE FROM audit WHERE id IN (:ids) AND NOT EXISTS (SELECT 1 FROM task t WHERE t.id = audit.subject_id)
   AND NOT EXISTS (SELECT 1 FROM graph g WHERE g.id = audit.subject_id);

-- The newest queue stays: servers remember queues by their numbers. Queue 0 is that of the server.
-- select_idle_queues(before_ms: int, after: int, count: int): queues into which no task has come since a time, with their pools and when they were used.
SELECT id, pool, used_ms FROM queue WHERE used_ms < :before_ms AND id > :after AND id > 0
   AND number < (SELECT queues FROM service WHERE id = 1) ORDER BY id LIMIT :count;

-- select_queues_of_tasks(after: int, count: int): the queues of tasks, in the order of the tasks.
SELECT id, queue_id FROM task WHERE id > :after ORDER BY id LIMIT :count;

-- purge_queues(ids: ints, before_ms: int): delete queues, unless a task has come into them since a time.
DELETE FROM queue WHERE id IN (:ids) AND used_ms < :before_ms;

-- select_attempt_blocks(after: int, count: int): the blocks after one of them in which bots had attempts.
SELECT DISTINCT block FROM attempt_block WHERE block > :after ORDER BY block LIMIT :count;

-- purge_attempt_blocks(blocks: ints, span: int): delete those of some blocks that have no tasks.
DELETE FROM attempt_block WHERE block IN (:blocks)
   AND NOT EXISTS (SELECT 1 FROM task t WHERE t.id >= attempt_block.block * :span AND t.id < (attempt_block.block + 1) * :span);
