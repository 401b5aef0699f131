BEGIN TRANSACTION;
CREATE TABLE admission_dirty (
	id INTEGER NOT NULL,
	task_id INTEGER,
	CONSTRAINT admission_dirty_pk PRIMARY KEY (id)
);
CREATE TABLE admission_lock (
	id INTEGER NOT NULL,
	epoch INTEGER DEFAULT 0 NOT NULL,
	holder TEXT,
	until_ms INTEGER,
	CONSTRAINT admission_lock_pk PRIMARY KEY (id)
);
INSERT INTO "admission_lock" VALUES(1,0,NULL,NULL);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE attempt (
	task_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	bot_id TEXT NOT NULL,
	session TEXT NOT NULL,
	poll_id TEXT NOT NULL,
	fence INTEGER DEFAULT 0 NOT NULL,
	round INTEGER DEFAULT 0 NOT NULL,
	slice_index INTEGER DEFAULT 0 NOT NULL,
	claimed_ms INTEGER NOT NULL,
	ended_ms INTEGER,
	signal TEXT,
	reason TEXT,
	exit_code INTEGER,
	CONSTRAINT attempt_pk PRIMARY KEY (task_id, number)
)
 WITHOUT ROWID
;
CREATE TABLE attempt_stats (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	prepared_ms INTEGER,
	ran_ms INTEGER,
	uploaded_ms INTEGER,
	cpu_s FLOAT,
	memory_bytes INTEGER,
	read_bytes INTEGER,
	written_bytes INTEGER,
	truncated INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT attempt_stats_pk PRIMARY KEY (task_id, attempt)
)
 WITHOUT ROWID
;
CREATE TABLE audit (
	id INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	actor TEXT NOT NULL,
	action TEXT NOT NULL,
	subject_id INTEGER NOT NULL,
	note TEXT NOT NULL,
	CONSTRAINT audit_pk PRIMARY KEY (id)
);
CREATE TABLE bot (
	id TEXT NOT NULL,
	pool TEXT,
	session TEXT NOT NULL,
	previous_sessions TEXT NOT NULL,
	recent_polls TEXT NOT NULL,
	slots INTEGER DEFAULT 1 NOT NULL,
	first_seen_ms INTEGER NOT NULL,
	last_seen_ms INTEGER NOT NULL,
	server TEXT NOT NULL,
	quarantined TEXT,
	maintenance TEXT,
	draining INTEGER DEFAULT 0 NOT NULL,
	terminated INTEGER DEFAULT 0 NOT NULL,
	missing INTEGER DEFAULT 0 NOT NULL,
	version INTEGER DEFAULT 0 NOT NULL,
	events INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT bot_pk PRIMARY KEY (id)
);
CREATE TABLE bot_dimensions (
	bot_id TEXT NOT NULL,
	dimensions TEXT NOT NULL,
	CONSTRAINT bot_dimensions_pk PRIMARY KEY (bot_id),
	CONSTRAINT bot_dimensions_bot_id_fk FOREIGN KEY(bot_id) REFERENCES bot (id)
);
CREATE TABLE bot_event (
	bot_id TEXT NOT NULL,
	id TEXT NOT NULL,
	at_ms INTEGER NOT NULL,
	kind TEXT NOT NULL,
	task_id INTEGER,
	attempt INTEGER,
	note TEXT NOT NULL,
	CONSTRAINT bot_event_pk PRIMARY KEY (bot_id, id),
	CONSTRAINT bot_event_bot_id_fk FOREIGN KEY(bot_id) REFERENCES bot (id)
)
 WITHOUT ROWID
;
CREATE TABLE bot_queue (
	bot_id TEXT NOT NULL,
	queue_id INTEGER NOT NULL,
	CONSTRAINT bot_queue_pk PRIMARY KEY (bot_id, queue_id),
	CONSTRAINT bot_queue_bot_id_fk FOREIGN KEY(bot_id) REFERENCES bot (id),
	CONSTRAINT bot_queue_queue_id_fk FOREIGN KEY(queue_id) REFERENCES queue (id)
)
 WITHOUT ROWID
;
CREATE TABLE bot_settings (
	bot_id TEXT NOT NULL,
	quarantined TEXT,
	maintenance TEXT,
	draining INTEGER DEFAULT 0 NOT NULL,
	terminated INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT bot_settings_pk PRIMARY KEY (bot_id),
	CONSTRAINT bot_settings_bot_id_fk FOREIGN KEY(bot_id) REFERENCES bot (id)
);
CREATE TABLE continuation (
	id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	graph_id INTEGER NOT NULL,
	task_id INTEGER,
	source TEXT,
	target TEXT,
	cursor INTEGER DEFAULT 0 NOT NULL,
	tasks TEXT NOT NULL,
	actor TEXT NOT NULL,
	CONSTRAINT continuation_pk PRIMARY KEY (id),
	CONSTRAINT continuation_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
);
CREATE TABLE dimension_aggregation (
	id TEXT NOT NULL,
	dimensions TEXT NOT NULL,
	CONSTRAINT dimension_aggregation_pk PRIMARY KEY (id)
);
CREATE TABLE edge (
	prerequisite_id INTEGER NOT NULL,
	dependent_id INTEGER NOT NULL,
	on_end TEXT NOT NULL,
	handled_round INTEGER,
	CONSTRAINT edge_pk PRIMARY KEY (prerequisite_id, dependent_id, on_end),
	CONSTRAINT edge_prerequisite_id_fk FOREIGN KEY(prerequisite_id) REFERENCES task (id),
	CONSTRAINT edge_dependent_id_fk FOREIGN KEY(dependent_id) REFERENCES task (id)
)
 WITHOUT ROWID
;
CREATE TABLE event (
	graph_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	subject_id INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	facts TEXT NOT NULL,
	CONSTRAINT event_pk PRIMARY KEY (graph_id, number)
)
 WITHOUT ROWID
;
CREATE TABLE graph (
	id INTEGER NOT NULL,
	state TEXT NOT NULL,
	active INTEGER DEFAULT 0 NOT NULL,
	behind INTEGER DEFAULT 0 NOT NULL,
	unhandled INTEGER DEFAULT 0 NOT NULL,
	events INTEGER DEFAULT 0 NOT NULL,
	events_published INTEGER DEFAULT 0 NOT NULL,
	extensions INTEGER DEFAULT 0 NOT NULL,
	created_ms INTEGER NOT NULL,
	moved_ms INTEGER NOT NULL,
	canceled_ms INTEGER,
	loader TEXT,
	parent_id INTEGER,
	parent_attempt INTEGER,
	CONSTRAINT graph_pk PRIMARY KEY (id),
	CONSTRAINT graph_state_is_known CHECK (state IN ('blocked', 'canceled', 'canceling', 'finished', 'running')),
	CONSTRAINT graph_active_is_not_negative CHECK (active >= 0),
	CONSTRAINT graph_behind_is_not_negative CHECK (behind >= 0),
	CONSTRAINT graph_unhandled_is_not_negative CHECK (unhandled >= 0)
);
CREATE TABLE graph_definition (
	id INTEGER NOT NULL,
	scheduler_id TEXT NOT NULL,
	name TEXT NOT NULL,
	routing TEXT NOT NULL,
	description TEXT NOT NULL,
	tags TEXT NOT NULL,
	digest TEXT NOT NULL,
	CONSTRAINT graph_definition_pk PRIMARY KEY (id),
	CONSTRAINT graph_definition_id_fk FOREIGN KEY(id) REFERENCES graph (id)
);
CREATE TABLE graph_pool (
	graph_id INTEGER NOT NULL,
	pool TEXT NOT NULL,
	CONSTRAINT graph_pool_pk PRIMARY KEY (graph_id, pool),
	CONSTRAINT graph_pool_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
)
 WITHOUT ROWID
;
CREATE TABLE graph_rerun (
	graph_id INTEGER NOT NULL,
	source_id INTEGER NOT NULL,
	labels TEXT NOT NULL,
	to_run INTEGER DEFAULT 0 NOT NULL,
	reused INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT graph_rerun_pk PRIMARY KEY (graph_id),
	CONSTRAINT graph_rerun_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id)
);
CREATE TABLE hold (
	task_id INTEGER NOT NULL,
	reason TEXT NOT NULL,
	name TEXT,
	blocker_id INTEGER,
	since_ms INTEGER,
	mutex_since_ms INTEGER,
	CONSTRAINT hold_pk PRIMARY KEY (task_id),
	CONSTRAINT hold_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE TABLE idempotency_key (
	"key" TEXT NOT NULL,
	digest TEXT NOT NULL,
	response TEXT NOT NULL,
	at_ms INTEGER,
	CONSTRAINT idempotency_key_pk PRIMARY KEY ("key")
);
CREATE TABLE mutex_policy (
	"key" TEXT NOT NULL,
	stake_after_ms INTEGER,
	CONSTRAINT mutex_policy_pk PRIMARY KEY ("key")
);
CREATE TABLE named_limit (
	name TEXT NOT NULL,
	total INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT named_limit_pk PRIMARY KEY (name)
);
CREATE TABLE output_chunk (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	number INTEGER NOT NULL,
	start INTEGER DEFAULT 0 NOT NULL,
	at_ms INTEGER NOT NULL,
	body BLOB NOT NULL,
	CONSTRAINT output_chunk_pk PRIMARY KEY (task_id, attempt, number)
);
CREATE TABLE pool (
	name TEXT NOT NULL,
	capacity INTEGER,
	from_bots INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT pool_pk PRIMARY KEY (name)
);
CREATE TABLE progress (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	body TEXT,
	checkpoint BLOB,
	CONSTRAINT progress_pk PRIMARY KEY (task_id, attempt)
)
 WITHOUT ROWID
;
CREATE TABLE queue (
	id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	hash INTEGER NOT NULL,
	root TEXT NOT NULL,
	pool TEXT NOT NULL,
	dimensions TEXT NOT NULL,
	CONSTRAINT queue_pk PRIMARY KEY (id),
	CONSTRAINT queue_number_key UNIQUE (number),
	CONSTRAINT queue_dimensions_key UNIQUE (dimensions)
);
INSERT INTO "queue" VALUES(0,0,0,'server','','');
CREATE TABLE result (
	task_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	body TEXT NOT NULL,
	CONSTRAINT result_pk PRIMARY KEY (task_id, attempt)
)
 WITHOUT ROWID
;
CREATE TABLE server (
	name TEXT NOT NULL,
	since_ms INTEGER NOT NULL,
	seen_ms INTEGER NOT NULL,
	CONSTRAINT server_pk PRIMARY KEY (name)
);
CREATE TABLE service (
	id INTEGER NOT NULL,
	queues INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT service_pk PRIMARY KEY (id)
);
INSERT INTO "service" VALUES(1,0);
CREATE TABLE signing_key (
	id INTEGER NOT NULL,
	body BLOB NOT NULL,
	CONSTRAINT signing_key_pk PRIMARY KEY (id)
);
CREATE TABLE task (
	id INTEGER NOT NULL,
	graph_id INTEGER NOT NULL,
	previous_state TEXT,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	moved_ms INTEGER NOT NULL,
	attempt INTEGER DEFAULT 0 NOT NULL,
	began_after INTEGER DEFAULT 0 NOT NULL,
	ended TEXT,
	round INTEGER DEFAULT 1 NOT NULL,
	reruns_used INTEGER DEFAULT 0 NOT NULL,
	retries_used INTEGER DEFAULT 0 NOT NULL,
	slice_index INTEGER DEFAULT 0 NOT NULL,
	waits_since_ms INTEGER,
	not_before_ms INTEGER,
	rules TEXT NOT NULL,
	kind TEXT NOT NULL,
	priority INTEGER DEFAULT 0 NOT NULL,
	created_ms INTEGER NOT NULL,
	weight INTEGER DEFAULT 0 NOT NULL,
	join_rule TEXT NOT NULL,
	on_impossible TEXT NOT NULL,
	is_handler INTEGER DEFAULT 0 NOT NULL,
	is_constrained INTEGER DEFAULT 0 NOT NULL,
	awaited INTEGER DEFAULT 0 NOT NULL,
	met INTEGER DEFAULT 0 NOT NULL,
	broken INTEGER DEFAULT 0 NOT NULL,
	impossible INTEGER DEFAULT 0 NOT NULL,
	handlers_ran INTEGER DEFAULT 0 NOT NULL,
	handlers_open INTEGER DEFAULT 0 NOT NULL,
	loading INTEGER DEFAULT 0 NOT NULL,
	open_continuations INTEGER DEFAULT 0 NOT NULL,
	needs_admission INTEGER DEFAULT 0 NOT NULL,
	queue_id INTEGER NOT NULL,
	bot_id TEXT,
	avoid_bot TEXT,
	fence INTEGER DEFAULT 0 NOT NULL,
	lease_until_ms INTEGER,
	due_ms INTEGER,
	CONSTRAINT task_pk PRIMARY KEY (id),
	CONSTRAINT task_moves_along_an_arrow CHECK (previous_state IS NULL AND state = 'unscheduled' OR previous_state IS NOT NULL AND CASE state WHEN 'waiting' THEN previous_state = 'pending' WHEN 'running' THEN previous_state = 'waiting' WHEN 'successful' THEN previous_state = 'unscheduled' OR previous_state = 'pending' OR previous_state = 'running' WHEN 'pending' THEN previous_state = 'unscheduled' OR previous_state = 'pending' OR previous_state = 'waiting' OR previous_state = 'running' WHEN 'unscheduled' THEN previous_state = 'blocked' OR previous_state = 'failed' OR previous_state = 'error' OR previous_state = 'canceled' OR previous_state = 'skipped' WHEN 'blocked' THEN previous_state = 'unscheduled' WHEN 'stopping' THEN previous_state = 'running' WHEN 'failed' THEN previous_state = 'unscheduled' OR previous_state = 'running' WHEN 'error' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' OR previous_state = 'pending' OR previous_state = 'waiting' OR previous_state = 'running' WHEN 'canceled' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' OR previous_state = 'pending' OR previous_state = 'waiting' OR previous_state = 'stopping' WHEN 'skipped' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' ELSE FALSE END),
	CONSTRAINT task_a_bot_has_what_is_leased CHECK ((bot_id IS NOT NULL) = (state IN ('running', 'stopping'))),
	CONSTRAINT task_awaited_is_not_negative CHECK (awaited >= 0),
	CONSTRAINT task_met_is_not_negative CHECK (met >= 0),
	CONSTRAINT task_broken_is_not_negative CHECK (broken >= 0),
	CONSTRAINT task_impossible_is_not_negative CHECK (impossible >= 0),
	CONSTRAINT task_handlers_ran_is_not_negative CHECK (handlers_ran >= 0),
	CONSTRAINT task_handlers_open_is_not_negative CHECK (handlers_open >= 0),
	CONSTRAINT task_open_continuations_is_not_negative CHECK (open_continuations >= 0),
	CONSTRAINT task_graph_id_fk FOREIGN KEY(graph_id) REFERENCES graph (id),
	CONSTRAINT task_queue_id_fk FOREIGN KEY(queue_id) REFERENCES queue (id)
);
CREATE TABLE task_definition (
	id INTEGER NOT NULL,
	graph_id INTEGER NOT NULL,
	label TEXT NOT NULL,
	definition TEXT NOT NULL,
	digest TEXT,
	submitter TEXT NOT NULL,
	CONSTRAINT task_definition_pk PRIMARY KEY (id),
	CONSTRAINT task_definition_id_fk FOREIGN KEY(id) REFERENCES task (id)
);
CREATE TABLE task_limit (
	task_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	amount INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT task_limit_pk PRIMARY KEY (task_id, name),
	CONSTRAINT task_limit_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
)
 WITHOUT ROWID
;
CREATE TABLE task_mutex (
	task_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	party TEXT,
	CONSTRAINT task_mutex_pk PRIMARY KEY (task_id, "key"),
	CONSTRAINT task_mutex_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
)
 WITHOUT ROWID
;
CREATE TABLE task_reuse (
	task_id INTEGER NOT NULL,
	source_id INTEGER NOT NULL,
	source_graph_id INTEGER NOT NULL,
	attempt INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT task_reuse_pk PRIMARY KEY (task_id),
	CONSTRAINT task_reuse_task_id_fk FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE TABLE token (
	id TEXT NOT NULL,
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	digest TEXT NOT NULL,
	scopes TEXT NOT NULL,
	pool TEXT,
	created_ms INTEGER NOT NULL,
	expires_ms INTEGER,
	revoked_ms INTEGER,
	CONSTRAINT token_pk PRIMARY KEY (id),
	CONSTRAINT token_kind_is_known CHECK (kind IN ('bot', 'enrolment', 'user'))
);
CREATE INDEX queue_of_root ON queue (root, hash);
CREATE INDEX bot_queue_queue ON bot_queue (queue_id);
CREATE INDEX graph_loading ON graph (id) WHERE loader IS NOT NULL;
CREATE UNIQUE INDEX graph_of_attempt ON graph (parent_id, parent_attempt) WHERE parent_id IS NOT NULL;
CREATE INDEX graph_unpublished ON graph (id) WHERE events > events_published;
CREATE INDEX graph_name ON graph_definition (name, id) WHERE name <> '';
CREATE INDEX task_in_admission ON task (state, id) WHERE needs_admission = 1;
CREATE INDEX task_due ON task (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX task_in_queue ON task (queue_id, priority, created_ms, id) WHERE state = 'waiting';
CREATE INDEX task_of_bot ON task (bot_id) WHERE bot_id IS NOT NULL;
CREATE INDEX task_of_graph ON task (graph_id, id);
CREATE INDEX edge_of_dependent ON edge (dependent_id, prerequisite_id);
CREATE UNIQUE INDEX task_label ON task_definition (graph_id, label);
CREATE INDEX task_mutex_key ON task_mutex ("key");
CREATE INDEX idempotency_key_at ON idempotency_key (at_ms);
CREATE INDEX audit_of_subject ON audit (subject_id);
CREATE INDEX event_of_subject ON event (subject_id, number);
CREATE INDEX continuation_of_graph ON continuation (graph_id);
CREATE INDEX continuation_of_task ON continuation (task_id);
CREATE INDEX token_created ON token (created_ms, id);
CREATE INDEX graph_pool_pool ON graph_pool (pool, graph_id);
COMMIT;
