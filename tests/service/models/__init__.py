"""Tests of model preparation."""
