-- lock_graphs(ids: ints): the graphs with these ids, locked.
SELECT id, state, active, behind, unhandled, events, extensions, created_ms, canceled_ms, loader, parent_id,
       parent_attempt FROM graph WHERE id IN (:ids) ORDER BY id FOR NO KEY UPDATE;

-- select_graphs(ids: ints): the graphs with these ids, not locked.
SELECT id, state, active, behind, unhandled, events, extensions, created_ms, canceled_ms, loader, parent_id,
       parent_attempt FROM graph WHERE id IN (:ids);

-- each update_graph_states(id: int, state: text, active: int, behind: int, unhandled: int, events: int, moved_ms: int): write the states and counts of graphs after their tasks moved.
UPDATE graph SET moved_ms = CASE WHEN state = :state THEN moved_ms ELSE :moved_ms END, state = :state, active = :active,
       behind = :behind, unhandled = :unhandled, events = :events WHERE id = :id;

-- insert_graph(id: int, state: text, created_ms: int, loader: text, parent_id: int, parent_attempt: int): insert an empty graph that a loader fills.
INSERT INTO graph (id, state, created_ms, moved_ms, loader, parent_id, parent_attempt)
VALUES (:id, :state, :created_ms, :created_ms, :loader, :parent_id, :parent_attempt) ON CONFLICT DO NOTHING;

-- select_subgraphs(tasks: ints): the completely loaded graphs that attempts of tasks run.
SELECT parent_id, parent_attempt, id FROM graph WHERE parent_id IN (:tasks) AND loader IS NULL ORDER BY parent_id, parent_attempt;

-- insert_graph_definition(id: int, scheduler_id: text, name: text, routing: text, description: text, tags: text, digest: text): insert the submitted fields of a graph.
INSERT INTO graph_definition (id, scheduler_id, name, routing, description, tags, digest)
VALUES (:id, :scheduler_id, :name, :routing, :description, :tags, :digest) ON CONFLICT DO NOTHING;

-- select_graph_definition(id: int): the submitted fields of a graph.
SELECT scheduler_id, name, routing, description, tags, digest FROM graph_definition WHERE id = :id;

-- update_loader(id: int, loader: text): set who loads a graph; null once it is loaded.
UPDATE graph SET loader = :loader WHERE id = :id;

-- update_created(id: int, created_ms: int): set when a graph was loaded completely.
UPDATE graph SET created_ms = :created_ms, moved_ms = :created_ms WHERE id = :id;

-- update_extensions(id: int, extensions: int): set how often a graph was extended.
UPDATE graph SET extensions = :extensions WHERE id = :id;

-- update_canceled(id: int, canceled_ms: int): mark a graph as canceled, unless it is.
UPDATE graph SET canceled_ms = :canceled_ms WHERE id = :id AND canceled_ms IS NULL;

-- select_stale_loads(before_ms: int, purged: text, count: int): the graphs whose loading began before a time and has not ended; those that are being purged are not among them.
SELECT id, loader FROM graph WHERE loader IS NOT NULL AND loader <> :purged AND created_ms < :before_ms ORDER BY id LIMIT :count;

-- Tasks that were inserted last come first: they have no dependents, or their dependents are deleted already.
-- select_loaded_page(graph_id: int, count: int): the newest tasks of a graph that is not loaded completely, and how many edges lead into each.
SELECT id, awaited + met + broken + impossible FROM task WHERE graph_id = :graph_id ORDER BY id DESC LIMIT :count;

-- delete_edges_into(ids: ints): delete the edges into these tasks.
DELETE FROM edge WHERE dependent_id IN (:ids);

-- delete_edges_out_of(ids: ints): delete the edges out of these tasks.
DELETE FROM edge WHERE prerequisite_id IN (:ids);

-- delete_mutexes(ids: ints): delete the mutexes of these tasks.
DELETE FROM task_mutex WHERE task_id IN (:ids);

-- delete_limits(ids: ints): delete the limits that these tasks use.
DELETE FROM task_limit WHERE task_id IN (:ids);

-- delete_definitions(ids: ints): delete the definitions of these tasks.
DELETE FROM task_definition WHERE id IN (:ids);

-- delete_tasks(ids: ints): delete these tasks.
DELETE FROM task WHERE id IN (:ids);

-- each insert_graph_pools(graph_id: int, pool: text): insert the pools in which tasks of graphs may run.
INSERT INTO graph_pool (graph_id, pool) VALUES (:graph_id, :pool) ON CONFLICT (graph_id, pool) DO NOTHING;

-- select_graph_pools(graphs: ints): the pools in which tasks of these graphs may run.
SELECT graph_id, pool FROM graph_pool WHERE graph_id IN (:graphs);

-- delete_graph_pools(id: int): delete the pools of a graph.
DELETE FROM graph_pool WHERE graph_id = :id;

-- delete_graph_definition(id: int): delete the submitted fields of a graph.
DELETE FROM graph_definition WHERE id = :id;

-- delete_unloaded_graph(id: int): delete a graph that is not loaded completely.
DELETE FROM graph WHERE id = :id AND loader IS NOT NULL;
