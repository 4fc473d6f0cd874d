"""Whole training recipes on stoker's loader and on torch's, side by side; see __main__."""
