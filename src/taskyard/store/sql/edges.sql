-- each insert_edges(prerequisite_id: int, dependent_id: int, on_end: text): insert edges.
INSERT INTO edge (prerequisite_id, dependent_id, on_end) VALUES (:prerequisite_id, :dependent_id, :on_end);

-- select_edges_out_of(prerequisites: ints, count: int): the edges out of tasks.
SELECT prerequisite_id, dependent_id, on_end, handled_round FROM edge WHERE prerequisite_id IN (:prerequisites)
 ORDER BY prerequisite_id, dependent_id LIMIT :count;

-- select_edges_out_of_page(prerequisite_id: int, cursor: int, count: int): a page of the edges out of one task.
SELECT prerequisite_id, dependent_id, on_end, handled_round FROM edge
 WHERE prerequisite_id = :prerequisite_id AND dependent_id >= :cursor ORDER BY dependent_id LIMIT :count;

-- select_edges_after(prerequisites: ints, prerequisite_id: int, dependent_id: int, on_end: text, count: int): the edges out of tasks, in pages.
SELECT prerequisite_id, dependent_id, on_end FROM edge
 WHERE prerequisite_id IN (:prerequisites)
   AND (prerequisite_id, dependent_id, on_end) > (:prerequisite_id, :dependent_id, :on_end)
 ORDER BY prerequisite_id, dependent_id, on_end LIMIT :count;

-- select_tasks_with_dependents(ids: ints): those of these tasks that have dependents.
SELECT t.id FROM task t WHERE t.id IN (:ids) AND EXISTS (SELECT 1 FROM edge e WHERE e.prerequisite_id = t.id);

-- select_edges_into(dependents: ints): the edges into tasks, with the state of each prerequisite.
SELECT e.prerequisite_id, e.dependent_id, e.on_end, e.handled_round, t.state, t.open_continuations
  FROM edge e JOIN task t ON t.id = e.prerequisite_id WHERE e.dependent_id IN (:dependents)
 ORDER BY e.dependent_id, e.prerequisite_id;

-- select_edges_into_handlers(dependents: ints, on_end: text, final: texts): the edges into tasks that are not of one kind and whose prerequisites may still move.
SELECT e.prerequisite_id, e.dependent_id, e.on_end, e.handled_round, t.state, t.open_continuations
  FROM edge e JOIN task t ON t.id = e.prerequisite_id
 WHERE e.dependent_id IN (:dependents) AND e.on_end <> :on_end AND NOT t.state IN (:final)
 ORDER BY e.dependent_id, e.prerequisite_id;

-- select_edges_into_page(dependent_id: int, cursor: int, count: int): a page of the edges into one task.
SELECT e.prerequisite_id, e.dependent_id, e.on_end, e.handled_round, t.state, t.open_continuations
  FROM edge e JOIN task t ON t.id = e.prerequisite_id
 WHERE e.dependent_id = :dependent_id AND e.prerequisite_id >= :cursor ORDER BY e.prerequisite_id LIMIT :count;

-- each update_handled_rounds(prerequisite_id: int, dependent_id: int, on_end: text, handled_round: int): set the round of the prerequisite for which a failure handler ran.
UPDATE edge SET handled_round = :handled_round
 WHERE prerequisite_id = :prerequisite_id AND dependent_id = :dependent_id AND on_end = :on_end;
