"""Loaded last by the process that is copied: a copy that collects garbage would touch, and so copy, all its memory."""

import gc

gc.freeze()
