"""Load on a broker, and what it did with it: producers and consumers in processes of their own."""
