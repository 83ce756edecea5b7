"""What the tables tell of an incident, as a page, as Markdown and as a trace."""
