"""How `cudaguard doctor` says what it has found."""
