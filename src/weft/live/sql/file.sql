-- name: changed_files
-- Of files as they are now, those of which there has been no unit: with whether they are as they were so long ago.
select u.place::int - 1 as place, f.tag = u.tag and f.seen_at <= weft.now() - $4::interval as is_settled, f.tag is distinct from u.tag as is_new
from unnest($2::text[], $3::text[]) with ordinality as u (path, tag, place)
  left join weft.live_file f on f.live_job_id = $1 and f.path = u.path
where f.path is null or f.tag <> u.tag or not f.is_emitted order by u.place;

-- name: gone_files
-- Those from after one to another that are not among these any more.
select f.path from weft.live_file f
where f.live_job_id = $1 and f.path > $2 and ($3::text is null or f.path <= $3) and f.path <> all ($4::text[]) order by f.path limit $5;
