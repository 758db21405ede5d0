-- name: find
-- Made within the given time, if one is given, and not past its own.
select c.task_id, c.output from weft.task t join weft.output_cache c on c.org_id = t.org_id and c.key = $2
where t.id = $1 and (c.expires_at is null or c.expires_at > (select weft.now()))
  and ($3::interval is null or c.made_at > (select weft.now() - $3::interval));

-- name: drop
-- The one output that a task was found to have made.
delete from weft.output_cache c using weft.task t
where t.id = $1 and c.org_id = t.org_id and c.key = $2 and c.task_id = $3 returning c.task_id;

-- name: note
select weft.note_outputs($1, $2, $3, $4, $5, $6);

-- name: list
-- By name after a key; all without a limit. It goes from one handler to the next by their index, and counts those of the page.
with recursive known as (
  (select c.handler, 1 as place from weft.output_cache c where c.org_id = $1 and c.handler > $2 order by c.handler limit 1)
  union all
  select n.handler, k.place + 1 from known k cross join lateral (
    select c.handler from weft.output_cache c where c.org_id = $1 and c.handler > k.handler order by c.handler limit 1) n
  where $3::int is null or k.place < $3
)
select k.handler, f.outputs, f.bytes, f.blobs, f.oldest_at, f.newest_at from known k cross join lateral (
  select count(*)::int as outputs, sum(octet_length(c.output::text))::bigint as bytes,
    count(c.digest)::int as blobs, min(c.made_at) as oldest_at, max(c.made_at) as newest_at
  from weft.output_cache c where c.org_id = $1 and c.handler = k.handler
) f order by k.handler;

-- name: clear
-- Of one handler, or of all.
delete from weft.output_cache c using (
  select o.org_id, o.key from weft.output_cache o where o.org_id = $1 and ($2::text is null or o.handler = $2) limit 10000
) old where c.org_id = old.org_id and c.key = old.key returning 1;

-- name: prune
-- Past their time, or without one made longer ago than the given time.
delete from weft.output_cache c using (
  (select o.org_id, o.key from weft.output_cache o where o.expires_at <= (select weft.now()) order by o.expires_at limit 1000)
  union all
  (select o.org_id, o.key from weft.output_cache o
   where o.expires_at is null and o.made_at < (select weft.now() - $1::interval) order by o.made_at limit 1000)
) old where c.org_id = old.org_id and c.key = old.key returning 1;
