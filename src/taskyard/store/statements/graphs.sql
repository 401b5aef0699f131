-- look_graphs(ids: ints): the graphs with these ids, kept from others until the transaction ends.
SELECT id, state, active, behind, unhandled, events, extensions, created_ms, canceled_ms, loader, parent_id,
       parent_attempt FROM graph WHERE id IN (:ids) ORDER BY id FOR NO KEY UPDATE;

-- peek_graphs(ids: ints): the graphs with these ids, as they are now.
SELECT id, state, active, behind, unhandled, events, extensions, created_ms, canceled_ms, loader, parent_id,
       parent_attempt FROM graph WHERE id IN (:ids);

-- each turn_graphs(id: int, state: text, active: int, behind: int, unhandled: int, events: int, moved_ms: int): write what the moves of their tasks made of graphs.
UPDATE graph SET moved_ms = CASE WHEN state = :state THEN moved_ms ELSE :moved_ms END, state = :state, active = :active,
       behind = :behind, unhandled = :unhandled, events = :events WHERE id = :id;

-- add_graph(id: int, state: text, created_ms: int, loader: text, parent_id: int, parent_attempt: int): insert an empty graph that somebody is loading.
INSERT INTO graph (id, state, created_ms, moved_ms, loader, parent_id, parent_attempt)
VALUES (:id, :state, :created_ms, :created_ms, :loader, :parent_id, :parent_attempt) ON CONFLICT DO NOTHING;

-- graphs_inside(tasks: ints): the graphs that attempts of tasks are, if they are whole.
SELECT parent_id, parent_attempt, id FROM graph WHERE parent_id IN (:tasks) AND loader IS NULL ORDER BY parent_id, parent_attempt;

-- add_graph_definition(id: int, scheduler_id: text, name: text, routing: text, description: text, tags: text, digest: text): insert what was said about a graph.
INSERT INTO graph_definition (id, scheduler_id, name, routing, description, tags, digest)
VALUES (:id, :scheduler_id, :name, :routing, :description, :tags, :digest) ON CONFLICT DO NOTHING;

-- graph_definition(id: int): what was said about a graph.
SELECT scheduler_id, name, routing, description, tags, digest FROM graph_definition WHERE id = :id;

-- set_loader(id: int, loader: text): say who is loading a graph; null when it is whole.
UPDATE graph SET loader = :loader WHERE id = :id;

-- set_created(id: int, created_ms: int): say when a graph became whole.
UPDATE graph SET created_ms = :created_ms, moved_ms = :created_ms WHERE id = :id;

-- count_extension(id: int, extensions: int): an extension was added.
UPDATE graph SET extensions = :extensions WHERE id = :id;

-- set_canceled(id: int, canceled_ms: int): a person canceled the graph.
UPDATE graph SET canceled_ms = :canceled_ms WHERE id = :id AND canceled_ms IS NULL;

-- loading(before_ms: int, count: int): graphs whose loading began before a moment and never ended.
SELECT id, loader FROM graph WHERE loader IS NOT NULL AND created_ms < :before_ms ORDER BY id LIMIT :count;

-- Those that were written down last come first: mostly nobody requires them, or nobody does any more.
-- loaded_page(graph_id: int, count: int): some tasks of a graph that never became whole, and how many edges lead to each.
SELECT id, awaited + met + broken + impossible FROM task WHERE graph_id = :graph_id ORDER BY id DESC LIMIT :count;

-- drop_edges(ids: ints): forget the edges into these tasks.
DELETE FROM edge WHERE dependent_id IN (:ids);

-- drop_mutexes(ids: ints): forget the mutexes of these tasks.
DELETE FROM task_mutex WHERE task_id IN (:ids);

-- drop_limits(ids: ints): forget the demands of these tasks.
DELETE FROM task_limit WHERE task_id IN (:ids);

-- drop_definitions(ids: ints): forget what was asked for.
DELETE FROM task_definition WHERE id IN (:ids);

-- drop_tasks(ids: ints): forget these tasks.
DELETE FROM task WHERE id IN (:ids);

-- each add_graph_pools(graph_id: int, pool: text): tasks of graphs may run in these pools.
INSERT INTO graph_pool (graph_id, pool) VALUES (:graph_id, :pool) ON CONFLICT (graph_id, pool) DO NOTHING;

-- drop_graph_pools(id: int): forget in which pools a graph may run.
DELETE FROM graph_pool WHERE graph_id = :id;

-- drop_graph_definition(id: int): forget what was said about a graph.
DELETE FROM graph_definition WHERE id = :id;

-- drop_graph(id: int): forget a graph that never became whole.
DELETE FROM graph WHERE id = :id AND loader IS NOT NULL;
