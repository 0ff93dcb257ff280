"""Load tests of a broker, with producers and consumers in processes of their own."""
