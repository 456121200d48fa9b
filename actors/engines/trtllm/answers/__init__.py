"""What the library repeats of an answer, as what is new in it."""
