"""Vocabulary that every room shares: ids, states, errors, settings and JSON. Pure, no I/O."""
