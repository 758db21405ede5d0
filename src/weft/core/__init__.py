"""Vocabulary that every room shares: ids, states, errors, settings and JSON; reads weft.toml, and else does no I/O."""
