"""When it happens: the import finder and loader, the native load points, the journal."""
