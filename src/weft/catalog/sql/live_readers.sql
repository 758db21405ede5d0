-- name: told
-- Of some live jobs those of which one of some roles sees each dataset that they read or write.
select j.id from weft.live_job j
where j.org_id = $1 and j.id = any ($2) and not exists (
  select 1 from (
    select i.dataset_id from weft.live_input i where i.live_job_id = j.id
    union all select o.dataset_id from weft.live_output o where o.live_job_id = j.id) u join weft.dataset r on r.id = u.dataset_id
  where not r.read_roles && $3);
