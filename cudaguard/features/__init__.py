"""One package per kind of incident: its rules, repairs, detectors, checks and words."""
