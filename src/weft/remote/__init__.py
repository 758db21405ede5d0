"""The client over HTTP: the same calls, made by a server, for those who have a token and no database."""
