-- name: facts
select current_setting('server_version') as version, pg_database_size(current_database()) as size,
  pg_postmaster_start_time() as started_at;

-- name: ping
-- Whether anybody is there.
select 1;
