"""Files, cache, settings, documents, processes and text."""
