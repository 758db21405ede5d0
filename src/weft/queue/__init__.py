"""The durable queue: tasks, their leases and outcomes, limits, workers, leadership and the outbox."""
