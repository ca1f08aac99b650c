"""A page about tuning records: one file of HTML that needs neither a network nor a script."""
