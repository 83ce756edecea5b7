"""What a group would have done under other settings: its members' behaviour, taken from a log, in a world.

Its thresholds were halved and doubled, one at a time, with seven groups of five recorded logs (two A/B pairs, a
broker's restart, a storm of rebalances, members beyond max.poll.interval.ms): all came out alike but for these. With
`group_log._REQUESTS_TO_JOIN` at one, two groups have 0.1 s more or less without owners; with
`hangs._SILENT_INTERVALS` at one, 17.1 s in place of 13.4 for the members beyond max.poll.interval.ms.
"""
