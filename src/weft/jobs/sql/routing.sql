-- name: route_event
select last from weft.route_event($1, $2, $3);
