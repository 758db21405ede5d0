"""What the pages say of the public functions and views beyond the comments that stand in the database."""

FUNCTIONS = {
    "enqueue": (
        "Call it with named arguments: new ones are added at the end. It raises [WF001 and WF002](errors.md#in-sql), "
        "and writes nothing then. A worker is told with the commit."
    ),
    "add_effect": (
        "Raises [WF001 and WF002](errors.md#in-sql), and writes nothing then. Like `weft.enqueue` it must be granted "
        "to those who may call it, and needs no right on the tables."
    ),
    "now": "",
    "first_id_at": "The lowest id that can be made at a moment: bounds a query by time, because ids grow with it.",
}

PARAMETERS = {
    ("enqueue", "handler"): "the name of the handler that will run it, 1 to 200 characters",
    ("enqueue", "params"): "a JSON object whose keys are the handler's arguments; at most 256 KiB",
    ("enqueue", "queue"): "the name of an existing queue",
    ("enqueue", "priority"): "higher comes first, -32767 to 32767",
    ("enqueue", "idempotency_key"): "unique per org and handler, until `WEFT_IDEMPOTENCY_TTL` after its task's end",
    ("enqueue", "run_at"): "not before this moment; not together with `delay`",
    ("enqueue", "delay"): "not before this time has passed",
    (
        "enqueue",
        "max_attempts",
    ): "how often it is attempted in all, the first included; by default as its handler says, else 3",
    ("enqueue", "retry"): (
        "an object with any of `backoff` (exponential, linear, fixed), `initial_delay` and `max_delay` (seconds), "
        "`jitter` (0 to 1)"
    ),
    (
        "enqueue",
        "timeout",
    ): "an attempt is ended after this time; by default as its handler says, else `WEFT_WORKER_TASK_TIMEOUT`",
    ("enqueue", "heartbeat_timeout"): "an attempt fails when its handler says nothing for this time",
    ("enqueue", "concurrency_key"): "tasks of one key share the limit of that key in their queue",
    ("enqueue", "org"): "the org that the queue belongs to",
    ("enqueue", "actor"): "who did it, kept with the task; by default the user who logged in",
    ("add_effect", "kind"): "`enqueue_task`; `route_event` and `callback` are kept for parts to come",
    ("add_effect", "payload"): (
        "of `enqueue_task`: an object with `handler` and any of `params`, `queue`, `priority`, `idempotency_key`, "
        "`delay`, `max_attempts`, `timeout`, `heartbeat_timeout`, `concurrency_key`; times in seconds"
    ),
    ("add_effect", "ordering_key"): "effects of one key are carried out in order",
    ("add_effect", "org"): "the org that it belongs to",
    ("add_effect", "actor"): "who did it; by default the user who logged in",
    ("first_id_at", "moment"): "the moment",
}

VIEWS = {
    "tasks": "Those that ended are here until the retention removes them.",
    "attempts": "An attempt that completed is told by its task.",
    "queues": "",
    "workers": "Those that stopped or were lost stay for one hour more.",
    "audits": "Rows are never changed, and stay until the retention removes them.",
    "patch_chain_member": "The patches on a version that give the document of a patch, a row each, in their order.",
    "blob_use": "Who refers to which blob. A blob that is not listed is removed a day after it was put.",
    "artifact_use": "Who refers to which version, patch or snapshot. Patches and snapshots not listed are removed.",
    "orgs": "An installation has one, `default`, until there are accounts.",
}

# By view and column; `*` stands for every view that has the column.
COLUMNS = {
    ("*", "org_id"): "the org that it belongs to",
    ("*", "created_at"): "when it was made, by the clock of the database",
    ("patch_chain_member", "head_id"): "the patch whose chain it is",
    ("patch_chain_member", "seq"): "the place in the chain, from 1",
    ("patch_chain_member", "member_id"): "the patch at that place; the last is the head itself",
    ("blob_use", "digest"): "the SHA-256 of the blob",
    ("blob_use", "used_by"): "`task`, `log` or `artifact`",
    ("blob_use", "user_id"): "the id of the task or the artifact",
    ("artifact_use", "artifact_id"): "the version, patch or snapshot",
    ("artifact_use", "used_by"): "`tag`, or the kind of the artifact that was made from it",
    ("artifact_use", "user_name"): "the name of the tag, or the id of the artifact",
    ("tasks", "id"): "the task's id, which contains the time at which it was made",
    ("tasks", "queue"): "the name of its queue",
    ("tasks", "handler"): "the name of its handler",
    ("tasks", "state"): "see [states](states.md)",
    ("tasks", "reason"): "why it is in its state, where that needs saying",
    ("tasks", "priority"): "higher comes first",
    ("tasks", "job_id"): "the job that it belongs to; null for a task that stands alone",
    ("tasks", "attempt"): "the number of its latest attempt; never goes back, also after a replay",
    (
        "tasks",
        "failures",
    ): "how many attempts of this generation failed; at `max_attempts`, or at the handler's, it is dead",
    ("tasks", "crashes"): "how often it was running when its worker died; counted apart from failures",
    (
        "tasks",
        "max_attempts",
    ): "how often it is attempted in a generation; null: as its handler says, which the worker knows",
    ("tasks", "generation"): "how often it was replayed",
    ("tasks", "params"): "its params, or a reference to the blob storage under the key `$blob`",
    ("tasks", "output"): "what its handler returned, or a reference to the blob storage; null while it lives",
    ("tasks", "error"): "the error that ended it: `type`, `message`, `traceback`",
    ("tasks", "concurrency_key"): "the key whose limit it shares",
    ("tasks", "waiting_on"): "how many others it waits for",
    ("tasks", "worker_id"): "the worker that holds it, or held it last",
    ("tasks", "actor"): "who enqueued it",
    ("tasks", "due_at"): "when it becomes ready; null unless it is scheduled",
    ("tasks", "claimed_at"): "when its latest attempt began",
    ("tasks", "ended_at"): "when it ended; null while it lives",
    ("tasks", "queue_id"): "the id of its queue",
    ("tasks", "timeout"): "how long an attempt may take; null: as its handler says, else the worker's setting",
    ("tasks", "heartbeat_timeout"): "how long its handler may be silent",
    ("tasks", "retry"): "its retry policy; null: the default, or where `max_attempts` is null too that of its handler",
    ("attempts", "task_id"): "the task",
    ("attempts", "attempt"): "the number of the attempt",
    ("attempts", "worker_id"): "the worker that ran it",
    ("attempts", "outcome"): "`failed`, `snoozed`, `declined`, `lost`, `crashed` or `cancelled`",
    ("attempts", "reason"): "see [states](states.md#reasons)",
    ("attempts", "started_at"): "when it was claimed",
    ("attempts", "ended_at"): "when its outcome was written",
    ("attempts", "error"): "`type`, `message` and `traceback` of what was raised",
    ("queues", "id"): "the queue's id",
    ("queues", "name"): "its name, unique in its org",
    ("queues", "runtime"): "where its tasks run; `worker` is the only one so far",
    ("queues", "max_running"): "how many of its tasks run at once over all workers; null: no limit",
    ("queues", "max_running_per_key"): "the same for each concurrency key",
    ("queues", "paused"): "whether claims are stopped",
    ("queues", "paused_at"): "since when",
    ("workers", "id"): "the worker's id, new at each start",
    ("workers", "hostname"): "the machine",
    ("workers", "pid"): "the process",
    ("workers", "version"): "the release of Weft that it runs",
    ("workers", "state"): "see [states](states.md#states-of-a-worker)",
    ("workers", "concurrency"): "how many tasks it runs at once",
    ("workers", "queues"): "the queues that it claims from",
    ("workers", "handlers"): "the handlers that it knows",
    ("workers", "started_at"): "when it started",
    ("workers", "last_heartbeat"): "when it was last heard of",
    ("workers", "until"): "until when its tasks are its own",
    ("workers", "tasks_completed"): "how many tasks it completed",
    ("workers", "tasks_failed"): "how many of its attempts failed",
    ("workers", "is_leader"): "whether it does the upkeep of the whole queue at present",
    ("audits", "id"): "the act's id, which contains its time",
    ("audits", "at"): "when it was done",
    ("audits", "actor"): "who did it",
    ("audits", "verb"): "`cancel`, `replay`, `purge`, `create`, `pause`, `resume` or `limit`",
    ("audits", "subject_kind"): "`task`, `effect` or `queue`",
    ("audits", "subject_ids"): "the tasks or effects, the first 1,000 of them",
    ("audits", "subject_name"): "the name of the queue",
    ("audits", "detail"): "what else there is to say: `count`, `reason`, the limit",
    ("orgs", "id"): "the org's id",
    ("orgs", "slug"): "its short name, which `WEFT_ORG` takes",
    ("orgs", "name"): "its name",
}
