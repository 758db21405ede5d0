-- name: worker_token
-- The token by which a worker without a database of its own has registered: nobody else acts in its name.
alter table weft.worker add column token_id bigint;
