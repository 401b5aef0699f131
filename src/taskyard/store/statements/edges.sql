-- each add_edges(prerequisite_id: int, dependent_id: int, on_end: text): insert edges.
INSERT INTO edge (prerequisite_id, dependent_id, on_end) VALUES (:prerequisite_id, :dependent_id, :on_end);

-- dependents(prerequisites: ints, count: int): the out-edges of tasks.
SELECT prerequisite_id, dependent_id, on_end, handled_round FROM edge WHERE prerequisite_id IN (:prerequisites)
 ORDER BY prerequisite_id, dependent_id LIMIT :count;

-- dependents_from(prerequisite_id: int, cursor: int, count: int): a page of the out-edges of one task.
SELECT prerequisite_id, dependent_id, on_end, handled_round FROM edge
 WHERE prerequisite_id = :prerequisite_id AND dependent_id >= :cursor ORDER BY dependent_id LIMIT :count;

-- prerequisites(dependents: ints): the in-edges of tasks, and where the tasks at their other ends are.
SELECT e.prerequisite_id, e.dependent_id, e.on_end, e.handled_round, t.state, t.open_continuations
  FROM edge e JOIN task t ON t.id = e.prerequisite_id WHERE e.dependent_id IN (:dependents)
 ORDER BY e.dependent_id, e.prerequisite_id;

-- dealt(dependents: ints, on_end: text, final: texts): the in-edges of tasks that are not of one kind, from tasks that may still move.
SELECT e.prerequisite_id, e.dependent_id, e.on_end, e.handled_round, t.state, t.open_continuations
  FROM edge e JOIN task t ON t.id = e.prerequisite_id
 WHERE e.dependent_id IN (:dependents) AND e.on_end <> :on_end AND NOT t.state IN (:final)
 ORDER BY e.dependent_id, e.prerequisite_id;

-- prerequisites_from(dependent_id: int, cursor: int, count: int): a page of the in-edges of one task.
SELECT e.prerequisite_id, e.dependent_id, e.on_end, e.handled_round, t.state, t.open_continuations
  FROM edge e JOIN task t ON t.id = e.prerequisite_id
 WHERE e.dependent_id = :dependent_id AND e.prerequisite_id >= :cursor ORDER BY e.prerequisite_id LIMIT :count;

-- each note_ran(prerequisite_id: int, dependent_id: int, on_end: text, handled_round: int): a handler ran for a failure.
UPDATE edge SET handled_round = :handled_round
 WHERE prerequisite_id = :prerequisite_id AND dependent_id = :dependent_id AND on_end = :on_end;
