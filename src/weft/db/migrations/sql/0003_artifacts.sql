-- name: artifact_list
-- What an org has kept, newest first.
create index artifact_list on weft.artifact (org_id, id);

-- name: artifact_list_of_workflow
create index artifact_list_of_workflow on weft.artifact (org_id, workflow_id, id);
