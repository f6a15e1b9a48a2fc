"""Where the process is touched: the finder, the loaders, what loads libraries, and the barrier."""
