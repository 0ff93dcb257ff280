"""Reading of stores while a broker writes: finding the files, scanning the log, selecting records, queues and index."""
