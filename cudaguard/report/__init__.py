"""How we tell it: warnings, log records, text, JSON."""
