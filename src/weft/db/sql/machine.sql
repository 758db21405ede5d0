-- name: lease
-- A number whose lease lapsed.
update weft.machine m set holder = $1, until = weft.now() + $2::interval
from (select f.number from weft.machine f where f.until < weft.now() order by f.until, f.number limit 1
      for update skip locked) free
where m.number = free.number and m.until < weft.now() returning m.number, weft.now() as now;

-- name: release
-- Kept back for a while: ids may have run ahead of the clock.
update weft.machine m set holder = null, until = weft.now() + interval '10 seconds' where m.number = $1 and m.holder = $2;
