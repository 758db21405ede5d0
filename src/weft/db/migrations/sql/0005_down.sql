-- name: drop_schedules
drop function weft.grant_schedules_to_server;
drop view weft.schedules;
drop table weft.backfill, weft.schedule;
