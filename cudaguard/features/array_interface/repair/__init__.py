"""Arrays on their way from a producer to a consumer."""
