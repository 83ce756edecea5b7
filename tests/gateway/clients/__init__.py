"""Members of client libraries of other languages, built from the sources beside this when a test needs one."""
