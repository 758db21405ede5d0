"""Programs that the crash tests start as processes of their own."""
