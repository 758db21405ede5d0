-- name: lend_key
-- Guarded by worker, attempt and the state running.
select weft.lend_key($1, $2, $3);

-- name: take_key
-- Guarded by worker, attempt and the state running.
select weft.take_key($1, $2, $3);

-- name: end_loans
-- Of tasks that the caller has moved out of the state running.
select weft.end_loans($1);

-- name: forget
-- Of tasks that have ended meanwhile.
delete from weft.key_loan l where not exists (select 1 from weft.task t where t.id = l.task_id) returning 1;
