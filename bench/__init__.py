"""Comparisons with other loaders: one script a question, results as JSON. Not part of the package."""
