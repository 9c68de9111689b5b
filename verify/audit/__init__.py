"""Checks, contract identification and the sandboxed runner."""
