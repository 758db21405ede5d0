-- name: answer
-- What was answered to a request with a key, written with what the request did: whoever sends it again gets the same. Keys are of
-- an org, so that nobody learns of those of another; only their digests are kept. A `body` of null had a secret in it.
create table weft.answer (
  org_id bigint not null references weft.org,
  key bytea not null,
  request bytea not null,
  status smallint,
  body bytea,
  etag text,
  created_at timestamptz not null default weft.now(),
  primary key (org_id, key)
);

-- name: answer_age
create index answer_age on weft.answer (created_at);
