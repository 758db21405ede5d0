"""Definitions: what a workflow is, how it is written, checked, compared and drawn. Pure: no database, no clock."""
