"""Declarations of this feature for the core; it has no rules."""

from __future__ import annotations

from cudaguard.features.duplicate_libraries.judgement import PACKAGES

DETECTORS = {"detector:DuplicateDetector": tuple(PACKAGES), "soname_conflicts:SonameDetector": ()}
