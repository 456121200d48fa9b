"""A spec on its way into the library: its arguments, its call, and what a call that raises means."""
