"""Fast code that claims to compute a formula."""
