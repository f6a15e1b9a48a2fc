"""Where the process is touched, and which feature acts: hooks, rules in force, what is told."""
