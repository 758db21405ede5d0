"""The long-lived services that advance jobs."""
