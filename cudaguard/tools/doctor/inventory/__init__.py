"""What an issue report has to say of an environment, read from files: no check, no verdict."""
