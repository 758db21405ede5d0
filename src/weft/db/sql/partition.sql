-- name: ensure
select weft.ensure_partitions();
