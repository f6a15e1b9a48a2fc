"""The engine: rules in force, repairs, detectors, the journal, and reporting of what is found."""
