"""JPEG decoding alone. __main__ is the driver, plan says what is decoded, contest takes turns, serve decodes."""
