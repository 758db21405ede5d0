-- name: find
-- By the org's slug, for nobody is known yet: what listens for an event now, and says how it is signed.
select o.id, o.slug, s.hook, weft.now() as now from weft.org o join weft.live_source s on s.org_id = o.id
where o.slug = $1 and s.event = $2 and s.is_listening and s.hook is not null order by s.live_job_id;
