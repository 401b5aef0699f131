"""How big each part of a graph document may be, and what holds when a field is left out.

Nothing is unbounded: whatever a stranger can submit has a maximum here, with its reason. Where Swarming or
TaskCluster set a figure that still serves, it is theirs. Nothing here decides anything.
"""

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# The document as a whole.

#: The largest that the benchmarks submit; larger work is better split into graphs.
TASKS_MAX = 1_000_000
#: Two and a half edges for each task of the largest graph. It stops two matrices from multiplying without end.
EDGES_MAX = 2_500_000
#: Values looked at in one document, repeats through aliases and matrices included: ten for each task of the
#: largest graph.
VALUES_MAX = 10_000_000
#: Lists and objects inside each other. Far above any real document, far below Python's recursion limit.
DEPTH_MAX = 64
#: Graphs inside graphs. Workflows of workflows are rare beyond two or three.
NESTING_MAX = 8
#: Faults listed one by one; nobody reads more, and the rest is counted.
FAULTS_MAX = 100
#: The largest integer that every JSON reader keeps exactly.
INTEGER_MAX = 2**53

# Names and texts.

#: TaskCluster's limit for a label. Names that people choose (mutexes, secrets, parties) share it.
NAME_MAX = 255
#: TaskCluster's limit for a description.
DESCRIPTION_MAX = 32_768
#: The limit of the task-graph document: a routing is one short word of a routing key.
ROUTING_MAX = 10
#: TaskCluster's limit for a whole routing key; AMQP itself stops at 255 bytes.
ROUTING_KEY_BYTES_MAX = 128
#: Swarming's limits for tags (key, colon and value fit its 321 characters).
TAGS_MAX = 256
TAG_KEY_MAX = 64
TAG_VALUE_MAX = 256

# When a task may run.

#: Swarming's range; a lower number goes first.
PRIORITY_MAX = 255
#: One default for everybody, so that equal tasks run in the order of their creation; below the middle, so that
#: more can be told to step back than to push forward.
PRIORITY = 100
#: TaskCluster's limit; whoever needs more has a loop, not a rerun.
RERUNS_MAX = 999
#: The longest pause before a rerun, and the steepest growth of it.
RERUN_DELAY_MAX_MS = DAY_MS
RERUN_FACTOR_MAX = 10.0
#: What a POSIX process can end with, beside 0.
EXIT_CODE_MAX = 255
#: A lost bot is bad luck, two are suspicious, three are the task's own doing.
RETRIES = 2
RETRIES_MAX = 100
#: Weights are shares of a pool's capacity; this leaves room for capacities counted in megabytes.
WEIGHT = 1
WEIGHT_MAX = 1_000_000
#: AWX's busiest task holds three keys. Each mutex of a task is looked at in every admission.
MUTEXES_MAX = 16
#: Different licences or quotas that one task may use, and how much of one.
LIMITS_MAX = 16
LIMIT_AMOUNT_MAX = 1_000_000
#: Deadlines and starts lie at most this far ahead; a longer wait belongs to a schedule.
AHEAD_MAX_MS = 366 * DAY_MS
#: Moments outside these years are typing errors.
YEAR_MIN = 2000
YEAR_MAX = 2199

# Where a task may run: all but the shortest expiry are Swarming's figures.

SLICES_MAX = 8
#: How long a slice waits for a bot.
EXPIRES_MS = DAY_MS
EXPIRES_MIN_MS = SECOND_MS
EXPIRES_MAX_MS = 7 * DAY_MS
DIMENSIONS_MAX = 32
DIMENSION_KEY_MAX = 64
DIMENSION_VALUE_MAX = 256
DIMENSION_VALUES_MAX = 16

# What a task runs.

#: More belongs in a file or on standard input.
COMMAND_MAX = 1_024
#: Linux refuses a longer single argument or environment entry (MAX_ARG_STRLEN).
ARGUMENT_MAX = 131_071
#: A script is text that people read; programs belong in files.
SCRIPT_MAX = 262_144
ENV_MAX = 128
ENV_NAME_MAX = 64
ENV_VALUE_MAX = 32_768
SECRETS_MAX = 64
#: Swarming's limit; the length is Linux's PATH_MAX.
OUTPUTS_MAX = 4_096
PATH_MAX = 4_096
#: How long an attempt may take. A day ends what hangs and surprises nobody whose build is slow.
TIMEOUT_MS = DAY_MS
TIMEOUT_MIN_MS = SECOND_MS
TIMEOUT_MAX_MS = 7 * DAY_MS
#: How long a process may take to end itself before it is killed.
GRACE_MS = 30 * SECOND_MS
GRACE_MAX_MS = HOUR_MS
#: Ansible's own tags, its widest fan-out that still makes sense on one bot, and its most verbose level.
PLAY_TAGS_MAX = 64
FORKS_MAX = 500
VERBOSITY_MAX = 5

# A matrix.

#: Combinations of one task, counted before any is excluded.
MATRIX_MAX = 256
AXES_MAX = 8
AXIS_NAME_MAX = 64
