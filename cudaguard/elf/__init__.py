"""ELF files and the dynamic loader: what files say, and what the loader has done or would do."""
