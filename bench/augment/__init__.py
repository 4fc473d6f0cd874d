"""What augmentations cost, one at a time and in whole loaders; see __main__."""
