"""The group coordinator's lines in a broker's own log (server.log, level INFO), which every broker writes."""
