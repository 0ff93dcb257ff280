"""A broker under a controller: its membership, and its terms as master or slave."""
