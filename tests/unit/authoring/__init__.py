"""Tests of Python workflows."""
