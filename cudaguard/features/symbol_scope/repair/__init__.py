"""Names kept local, taken back, or shielded."""
