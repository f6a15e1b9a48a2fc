"""When two files of one library, or two claims to one file, are a fault."""
