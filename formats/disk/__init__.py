"""What a broker keeps on disk: the DATA, JOURNAL and QLIST files of a partition, the ledger of the cluster's state."""
