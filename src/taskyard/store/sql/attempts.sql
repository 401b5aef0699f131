-- each insert_attempts(task_id: int, number: int, bot_id: text, session: text, poll_id: text, fence: int, round: int, slice_index: int, claimed_ms: int, snapshot_id: int): insert the attempts that bots begin.
INSERT INTO attempt (task_id, number, bot_id, session, poll_id, fence, round, slice_index, claimed_ms, snapshot_id)
VALUES (:task_id, :number, :bot_id, :session, :poll_id, :fence, :round, :slice_index, :claimed_ms, :snapshot_id);

-- each insert_attempt_blocks(bot_id: text, block: int): store in which blocks of tasks bots have attempts.
INSERT INTO attempt_block (bot_id, block) VALUES (:bot_id, :block) ON CONFLICT DO NOTHING;

-- each end_attempts(task_id: int, number: int, ended_ms: int, signal: text, reason: text, exit_code: int): end attempts that are open.
UPDATE attempt SET ended_ms = :ended_ms, signal = :signal, reason = :reason, exit_code = :exit_code
 WHERE task_id = :task_id AND number = :number AND ended_ms IS NULL;

-- count_lost_attempts(task_id: int, round: int, signal: text, reasons: texts): how many attempts of a round ended with a signal for one of some reasons.
SELECT COUNT(*) FROM attempt WHERE task_id = :task_id AND round = :round AND signal = :signal AND reason IN (:reasons);

-- select_losing_bots(task_id: int, round: int, signal: text, spared: texts): the bots that lost a task in a round, except for some reasons.
SELECT DISTINCT bot_id FROM attempt WHERE task_id = :task_id AND round = :round AND signal = :signal
   AND NOT reason IN (:spared) ORDER BY bot_id;

-- each upsert_results(task_id: int, attempt: int, body: text, digest: text): store the results of attempts; a later result replaces an earlier one.
INSERT INTO result (task_id, attempt, body, digest) VALUES (:task_id, :attempt, :body, :digest)
ON CONFLICT (task_id, attempt) DO UPDATE SET body = excluded.body, digest = excluded.digest;

-- select_attempts(task_id: int): all attempts of a task.
SELECT number, bot_id, session, poll_id, fence, round, slice_index, claimed_ms, ended_ms, signal, reason, exit_code, snapshot_id,
       claim_fence
  FROM attempt WHERE task_id = :task_id ORDER BY number;

-- select_open_attempts(tasks: ints): the open attempts of tasks, with their sessions and the fences of their claims.
SELECT task_id, number, session, COALESCE(claim_fence, fence) FROM attempt
 WHERE task_id IN (:tasks) AND ended_ms IS NULL;

-- each adopt_attempts(task_id: int, number: int, session: text, fence: int): move open attempts to another session.
UPDATE attempt SET session = :session, claim_fence = COALESCE(claim_fence, fence), fence = :fence
 WHERE task_id = :task_id AND number = :number AND ended_ms IS NULL;

-- select_leases_by_poll(bots: texts): the tasks that bots hold, with the polls that gave them.
SELECT t.bot_id, a.poll_id, t.id FROM task t JOIN attempt a ON a.task_id = t.id AND a.number = t.attempt
 WHERE t.bot_id IN (:bots) ORDER BY t.id;
