"""The operators of live DAGs that come with Weft."""
