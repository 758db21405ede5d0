-- name: worker_token
-- The token by which a worker without a database of its own has registered: nobody else acts in its name.
alter table weft.worker add column token_id bigint;

-- name: task_resting
-- The attempt that waits, through a server, for tasks that it made: it takes no slot of its queue until it goes on. Any server
-- may be asked next, and none has to clear it when the attempt ends: the next one has another number.
alter table weft.task add column resting_attempt int;
