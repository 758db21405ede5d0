"""What begins work by itself: schedules and their ticks."""
