"""Errors that look like those of this field and are none of order: nobody need search for one."""
