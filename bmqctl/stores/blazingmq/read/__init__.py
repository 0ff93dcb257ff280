"""Reading of stores while a broker writes: finding the files, scanning them, selecting records, checks."""
