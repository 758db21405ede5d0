"""What names in a definition are made of."""

MAX_NAME = 200
NAME = r"^[A-Za-z_][A-Za-z0-9_\-]*$"
# What begins with @ is the engine's own, and commas separate queues on the command line.
HANDLER = r"^[^@\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
QUEUE = r"^[^@,\x00-\x1f\x7f-\x9f][^,\x00-\x1f\x7f-\x9f]*$"
PATH = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*$"
# An @ begins a version of a dataset.
DATASET = r"^[^@\x00-\x1f\x7f-\x9f]+$"
