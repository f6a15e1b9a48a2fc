"""What nobody wrote a rule for: one module per kind of fault that is found by looking."""
