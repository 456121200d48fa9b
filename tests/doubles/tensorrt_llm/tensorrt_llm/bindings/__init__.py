"""Stand-ins for the compiled part of the library, as far as the Python part hands its objects around."""
