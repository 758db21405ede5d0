-- name: hold
-- For as long as the session lasts, or until it is held to another.
select set_config('weft.org', $1, false);

-- name: hold_transaction
select set_config('weft.org', $1, true);

-- name: is_walled
-- Whether the rows of tables are held back from this role, whichever they are.
select row_security_active('weft.task');
