"""Names kept local or taken back."""
