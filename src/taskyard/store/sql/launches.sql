-- each insert_launches(graph_id: int, kind: text, name: text, version: int, launch_type: text, variables: text, options: text, actor: text, schedule: text, due_ms: int, relaunch_of: int): insert what graphs were launched from.
INSERT INTO launch (graph_id, kind, name, version, launch_type, variables, options, actor, schedule, due_ms, relaunch_of)
VALUES (:graph_id, :kind, :name, :version, :launch_type, :variables, :options, :actor, :schedule, :due_ms, :relaunch_of);

-- select_launches(graphs: ints): what these graphs were launched from.
SELECT graph_id, kind, name, version, launch_type, variables, options, actor, schedule, due_ms, relaunch_of FROM launch WHERE graph_id IN (:graphs);

-- Newer graphs have smaller ids.
-- select_launch_page(kind: text, all_pools: int, pools: texts, after: int, count: int): a page of what was launched from templates of a kind, or of any if it is empty; newest first.
SELECT l.graph_id, l.kind, l.name, l.version, l.launch_type, l.variables, l.options, l.actor, l.schedule, l.due_ms,
       l.relaunch_of
  FROM launch l JOIN graph g ON g.id = l.graph_id
 WHERE g.loader IS NULL AND (:kind = '' OR l.kind = :kind) AND l.graph_id > :after
   AND (:all_pools = 1 OR EXISTS (SELECT 1 FROM graph_pool p WHERE p.graph_id = l.graph_id AND p.pool IN (:pools)))
 ORDER BY l.graph_id LIMIT :count;

-- select_launch_page_of(kinds: texts, name: text, all_pools: int, pools: texts, after: int, count: int): a page of what was launched from templates of some kinds with a name; newest first.
SELECT l.graph_id, l.kind, l.name, l.version, l.launch_type, l.variables, l.options, l.actor, l.schedule, l.due_ms,
       l.relaunch_of
  FROM launch l JOIN graph g ON g.id = l.graph_id
 WHERE g.loader IS NULL AND l.kind IN (:kinds) AND l.name = :name AND l.graph_id > :after
   AND (:all_pools = 1 OR EXISTS (SELECT 1 FROM graph_pool p WHERE p.graph_id = l.graph_id AND p.pool IN (:pools)))
 ORDER BY l.graph_id LIMIT :count;

-- select_last_launch(kind: text, name: text): the newest graph that was launched from something.
SELECT graph_id FROM launch WHERE kind = :kind AND name = :name ORDER BY graph_id LIMIT 1;

-- each insert_updates(task_id: int, resource: text, digest: text, graph_id: int): insert updates of resources.
INSERT INTO resource_update (task_id, resource, digest, graph_id) VALUES (:task_id, :resource, :digest, :graph_id);

-- select_updates(ids: ints): the resources that these tasks update.
SELECT task_id, resource, graph_id FROM resource_update WHERE task_id IN (:ids);

-- Newer tasks have smaller ids. A graph that is being deleted is not there any more.
-- select_newest_update(resource: text, digest: text): the newest update of a resource with some content.
SELECT u.task_id, u.graph_id FROM resource_update u JOIN graph g ON g.id = u.graph_id
 WHERE u.resource = :resource AND u.digest = :digest AND g.loader IS NULL ORDER BY u.task_id LIMIT 1;

-- select_good_update(resource: text, digest: text, state: text): the newest update of a resource that is in a state.
SELECT u.task_id, u.graph_id FROM resource_update u JOIN graph g ON g.id = u.graph_id JOIN task t ON t.id = u.task_id
 WHERE u.resource = :resource AND u.digest = :digest AND g.loader IS NULL AND t.state = :state ORDER BY u.task_id LIMIT 1;

-- each insert_links(task_id: int, resource: text, update_id: int, update_graph_id: int, freshness: text): insert links to updates.
INSERT INTO link (task_id, resource, update_task_id, update_graph_id, freshness)
VALUES (:task_id, :resource, :update_id, :update_graph_id, :freshness);

-- each copy_links(task_id: int, source_id: int): insert links to the updates of other links.
INSERT INTO link (task_id, resource, update_task_id, update_graph_id, freshness)
VALUES (:task_id, (SELECT o.resource FROM link o WHERE o.task_id = :source_id), (SELECT o.update_task_id FROM link o WHERE o.task_id = :source_id),
        (SELECT o.update_graph_id FROM link o WHERE o.task_id = :source_id),
        (SELECT o.freshness FROM link o WHERE o.task_id = :source_id));

-- select_links(ids: ints): the links that these tasks are.
SELECT task_id, resource, update_task_id, update_graph_id, freshness FROM link WHERE task_id IN (:ids);

-- select_links_in(states: texts, updates: ints, count: int): links to updates that are in some states, by update, the oldest first.
SELECT l.task_id, l.resource, l.update_task_id, l.update_graph_id, l.freshness FROM link l JOIN task t ON t.id = l.task_id
 WHERE l.update_task_id IN (:updates) AND t.state IN (:states) ORDER BY l.update_task_id, l.task_id DESC LIMIT :count;

-- select_overdue_links(bot: text, kind: text, states: texts, count: int): links that a bot runs although their update has ended or is deleted.
SELECT t.id FROM task t JOIN link l ON l.task_id = t.id LEFT JOIN task u ON u.id = l.update_task_id
 WHERE t.bot_id = :bot AND t.kind = :kind AND (u.id IS NULL OR u.state IN (:states)) ORDER BY t.id DESC LIMIT :count;

-- select_graphs_linked_to(graph_id: int, count: int): graphs with links to the updates in a graph.
SELECT DISTINCT t.graph_id FROM launch r JOIN task o ON o.graph_id = r.graph_id JOIN resource_update u ON u.task_id = o.id
  JOIN link l ON l.update_task_id = u.task_id JOIN task t ON t.id = l.task_id
 WHERE r.graph_id = :graph_id ORDER BY t.graph_id LIMIT :count;

-- select_current_updates(graphs: ints, state: text): those of these graphs that have the newest update of a resource in a state.
SELECT DISTINCT r.graph_id FROM launch r JOIN task t ON t.graph_id = r.graph_id JOIN resource_update u ON u.task_id = t.id
 WHERE r.graph_id IN (:graphs) AND t.state = :state
   AND NOT EXISTS (SELECT 1 FROM resource_update n JOIN task m ON m.id = n.task_id
                    WHERE n.resource = u.resource AND n.task_id < u.task_id AND m.state = :state);

-- select_result_sizes(ids: ints): how long the results of the last attempts of tasks are.
SELECT t.id, LENGTH(r.body) FROM task t JOIN result r ON r.task_id = t.id AND r.attempt = t.attempt WHERE t.id IN (:ids);

-- copy_update_results(ids: ints): copy the results of updates to the links to them.
INSERT INTO result (task_id, attempt, body, digest)
SELECT l.task_id, t.attempt, r.body, r.digest FROM link l JOIN task t ON t.id = l.task_id JOIN task u ON u.id = l.update_task_id
  JOIN result r ON r.task_id = u.id AND r.attempt = u.attempt WHERE l.task_id IN (:ids);

-- copy_update_files(ids: ints): copy the output files of updates to the links to them.
INSERT INTO attempt_files (task_id, attempt, pool, tree, files, bytes)
SELECT l.task_id, t.attempt, f.pool, f.tree, f.files, f.bytes FROM link l JOIN task t ON t.id = l.task_id
  JOIN task u ON u.id = l.update_task_id JOIN attempt_files f ON f.task_id = u.id AND f.attempt = u.attempt
 WHERE l.task_id IN (:ids);

-- copy_update_artifacts(ids: ints): copy the named files of updates to the links to them.
INSERT INTO artifact (task_id, attempt, name, pool, tree, path, size, content_type)
SELECT l.task_id, t.attempt, a.name, a.pool, a.tree, a.path, a.size, a.content_type FROM link l
  JOIN task t ON t.id = l.task_id JOIN task u ON u.id = l.update_task_id
  JOIN artifact a ON a.task_id = u.id AND a.attempt = u.attempt WHERE l.task_id IN (:ids);

