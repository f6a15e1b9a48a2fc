"""Builds: helped along, and looked at before and after."""
