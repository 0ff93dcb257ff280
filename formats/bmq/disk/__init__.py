"""Layouts of a broker's files: DATA, JOURNAL and QLIST of a partition, and the ledger of the cluster's state."""
