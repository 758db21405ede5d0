"""The command ``weft``: a thin front of the client for people and shell scripts."""
