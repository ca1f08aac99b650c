"""From scheduled functions to one shared library, and what is known of it."""
