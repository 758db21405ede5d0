"""Definitions: what a workflow is, how it is written, checked, compared and drawn, without a database or a clock."""
