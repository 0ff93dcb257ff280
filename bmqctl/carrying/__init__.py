"""Messages on their way between queues, topics and stores: bridges, copies, moves, replays and dead letters."""
