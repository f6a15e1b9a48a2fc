"""Packages that need an order, and libraries that are found only once a module has loaded them."""
