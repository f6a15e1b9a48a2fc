"""The judgement of compiled extensions: would one load, and if not, why, and what to do."""
