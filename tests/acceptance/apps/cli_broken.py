"""A module with handlers that cannot be imported."""

FIGURES = 1 // 0
