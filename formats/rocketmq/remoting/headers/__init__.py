"""Headers of requests and answers, by sender. `headers.table` maps request codes to headers."""
