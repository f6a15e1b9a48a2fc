"""Stands for a package with compiled parts."""
