"""``doctor --diff``: what differs between hosts, and what of it matters."""
