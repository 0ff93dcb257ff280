"""Bodies of requests and answers, most of them JSON."""
