"""Tests of what runs on machines."""
