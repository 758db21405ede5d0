-- Runs once, when the database is made: `weft` owns the schema, and `weft_server` owns nothing, so that PostgreSQL holds each
-- of its sessions to the org that it acts for.
\getenv owner_password OWNER_PASSWORD
\getenv server_password SERVER_PASSWORD
create role weft login password :'owner_password';
create role weft_server login password :'server_password';
create database weft owner weft;
