"""Arrays with ``__cuda_array_interface__`` that one library does not take from another."""
