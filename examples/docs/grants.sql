-- docs: begin enqueue
create role shop_web login;
grant usage on schema weft to shop_web;
grant select on weft.org, weft.queue, weft.worker, weft.lease to shop_web;
grant usage on sequence weft.id_sequence to shop_web;
grant insert, select, update on weft.task, weft.idempotency_key, weft.key_slot to shop_web;
grant insert on weft.task_params to shop_web;
-- docs: end enqueue

-- docs: begin read
create role shop_report login;
grant usage on schema weft to shop_report;
grant select on weft.tasks, weft.attempts, weft.queues, weft.workers, weft.orgs to shop_report;
-- docs: end read
